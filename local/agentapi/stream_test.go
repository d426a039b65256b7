package agentapi

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
)

func TestFrames(t *testing.T) {
	id := strings.Repeat("a", 36)
	for _, c := range []struct {
		order engine.Order
		want  string
	}{
		{engine.Order{Action: engine.ActionJob, JobID: id}, "000000002a" + "2a280a260a24" + hex.EncodeToString([]byte(id))},
		{engine.Order{Action: engine.ActionIdle}, "0000000002" + "1200"},
		{engine.Order{Action: engine.ActionPause, Reason: "r"}, "0000000005" + "1a030a0172"},
		{engine.Order{Action: engine.ActionDisconnect}, "0000000002" + "2200"},
	} {
		if got := hex.EncodeToString(frameOf(c.order)); got != c.want {
			t.Errorf("frameOf(%+v) = %s, want %s", c.order, got, c.want)
		}
	}
}

func TestAgentIDOf(t *testing.T) {
	for body, want := range map[string]string{
		"\x00\x00\x00\x00\x04\x0a\x02id":           "id",
		"\x00\x00\x00\x00\x06\x10\x07\x0a\x02id":   "id", // an unknown varint first
		"\x00\x00\x00\x00\x08\x12\x02xx\x0a\x02id": "id",
		"":                               "",
		"\x01\x00\x00\x00\x04\x0a\x02id": "", // compressed
		"\x00\x00\x00\x00\x05\x0a\x02id": "",
		"\x00\x00\x00\x00\x04\x0a\x03id": "",
		"\x00\x00\x00\x00\x00":           "",
		"\x00\x00\x00\x00\x02\x0d\x01":   "", // fixed32
	} {
		got, err := agentIDOf([]byte(body))
		if got != want || (err == nil) != (want != "") {
			t.Errorf("agentIDOf(%q) = %q, %v; want %q", body, got, err, want)
		}
	}
}

func FuzzAgentIDOf(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x04\x0a\x02id"))
	f.Add([]byte("\x00\x00\x00\x00\x06\x10\x07\x0a\x02id"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if id, err := agentIDOf(body); (err == nil) != (id != "") {
			t.Errorf("agentIDOf(%q) = %q, %v", body, id, err)
		}
	})
}

// open starts a stream as an agent does.
func (w *rig) open(token, id string) *http.Response {
	w.t.Helper()
	message := append([]byte{0x0a, byte(len(id))}, id...)
	body := append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
	req, err := http.NewRequest("POST", w.url+StreamPath, bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Token "+token)
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// frame reads one message.
func frame(t *testing.T, r io.Reader) string {
	t.Helper()
	head := make([]byte, 5)
	if _, err := io.ReadFull(r, head); err != nil {
		t.Fatalf("reading a frame: %v", err)
	}
	body := make([]byte, head[4])
	if _, err := io.ReadFull(r, body); err != nil {
		t.Fatalf("reading a frame: %v", err)
	}
	return string(body)
}

// ended reads to the end and returns the gRPC status.
func ended(t *testing.T, resp *http.Response) string {
	t.Helper()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatalf("reading to the end of the stream: %v", err)
	}
	return resp.Trailer.Get("Grpc-Status")
}

func (w *rig) newest() string { return w.engine.Agents()[0].ID }

func TestStreamHandsOutJobs(t *testing.T) {
	const acceptAfter = time.Minute
	w := newRigWith(t, engine.Options{AcceptAfter: acceptAfter}, &clock{}, Options{StreamLimit: patience})
	token := w.agent()
	id := w.newest()
	resp := w.open(token, id)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/grpc" {
		t.Fatalf("stream: %s %v", resp.Status, resp.Header)
	}
	if got := frame(t, resp.Body); got != "\x12\x00" {
		t.Errorf("first frame %q, want resume", got)
	}
	b := w.build(`steps: [{command: "true"}]`)
	job := b.Jobs[0].ID
	if got := frame(t, resp.Body); !strings.Contains(got, job) || got[0] != 0x2a {
		t.Errorf("second frame %q, want job %s", got, job)
	}
	w.clock.pass(acceptAfter)
	if got := frame(t, resp.Body); !strings.Contains(got, job) {
		t.Errorf("third frame %q, want the job again: nobody accepted it", got)
	}
	w.want(200, "{}", token, "GET", "/v3/ping", "") // jobs go by the stream only

	newer := w.open(token, id)
	if status := ended(t, resp); status != grpcOK {
		t.Errorf("the older stream ended with %q, want %q", status, grpcOK)
	}
	if got := frame(t, newer.Body); got != "\x12\x00" {
		t.Errorf("first frame %q of the newer stream, want resume", got)
	}
	if got := frame(t, newer.Body); !strings.Contains(got, job) {
		t.Errorf("second frame %q of the newer stream, want the job again", got)
	}
	w.want(200, "", token, "PUT", "/v3/jobs/"+job+"/accept", "")
	if err := w.engine.LoseAgent(id); err != nil {
		t.Fatal(err)
	}
	if status := ended(t, newer); status != grpcUnauthenticated {
		t.Errorf("the stream of a lost agent ended with %q, want %q", status, grpcUnauthenticated)
	}
}

func TestStreamEnds(t *testing.T) {
	w := newRig(t, Options{StreamLimit: 50 * time.Millisecond})
	token := w.agent()
	if status := ended(t, w.open(token, w.newest())); status != grpcDeadlineExceeded {
		t.Errorf("at its limit: %q, want %q", status, grpcDeadlineExceeded)
	}
	w = newRig(t, Options{})
	token = w.agent()
	resp := w.open(token, w.newest())
	frame(t, resp.Body)
	w.api.Close()
	if status := ended(t, resp); status != grpcUnavailable {
		t.Errorf("at Close: %q, want %q", status, grpcUnavailable)
	}
}

func TestStreamPauses(t *testing.T) {
	w := newRig(t, Options{})
	token := w.agent()
	resp := w.open(token, w.newest())
	frame(t, resp.Body)
	w.want(200, "", token, "POST", "/v3/pause", `{"note":"lunch"}`)
	if got := frame(t, resp.Body); got != "\x1a\x07\x0a\x05lunch" {
		t.Errorf("frame %q, want pause", got)
	}
	w.want(200, "", token, "POST", "/v3/resume", ``)
	if got := frame(t, resp.Body); got != "\x12\x00" {
		t.Errorf("frame %q, want resume", got)
	}
	if err := w.engine.StopAgent(w.newest(), false); err != nil {
		t.Fatal(err)
	}
	if got := frame(t, resp.Body); !strings.HasPrefix(got, "\x22") {
		t.Errorf("frame %q, want disconnect", got)
	}
}

func TestStreamRefusals(t *testing.T) {
	w := newRig(t, Options{})
	token := w.agent()
	grpc := []string{"Content-Type", "application/grpc"}
	good := "\x00\x00\x00\x00\x04\x0a\x02id"
	w.want(401, "has no token", "", "POST", StreamPath, good, grpc...)
	w.want(401, "got the registration token", regToken, "POST", StreamPath, good, grpc...)
	w.want(403, "another agent", token, "POST", StreamPath, good, grpc...)
	w.want(400, "gRPC message", token, "POST", StreamPath, "x", grpc...)
	w.want(400, "reading the body", token, "POST", StreamPath, strings.Repeat("x", 5000), grpc...)
	w.want(415, "application/grpc", token, "POST", StreamPath, good)
}
