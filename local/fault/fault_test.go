package fault_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/local/fault"
)

// A site is a wrapped handler on a test server; calls counts how often the
// handler ran.
type site struct {
	*testing.T
	in    fault.Injector
	calls atomic.Int32
	url   string
}

const body = `{"id":"0123456789","number":1}`

func newSite(t *testing.T) *site {
	s := &site{T: t}
	server := httptest.NewServer(s.in.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.calls.Add(1)
		sent, _ := io.ReadAll(r.Body)
		w.Header().Set("Sent", string(sent))
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, body)
	})))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *site) add(text string) {
	s.Helper()
	r, err := fault.Parse(text)
	if err != nil {
		s.Fatal(err)
	}
	if _, err := s.in.Add(r); err != nil {
		s.Fatal(err)
	}
}

// post makes a request on a connection of its own, which no client repeats.
func (s *site) post(path string) (*http.Response, string, error) {
	s.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Minute}
	resp, err := client.Post(s.url+path, "application/json", strings.NewReader("hello"))
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp, string(data), err
}

func TestNoRule(t *testing.T) {
	s := newSite(t)
	s.add("GET /x status=500")
	s.add("/y status=500")
	resp, data, err := s.post("/x")
	if err != nil || resp.StatusCode != 201 || data != body {
		t.Errorf("a request of no rule = %v %q, %v", resp, data, err)
	}
	for _, e := range s.in.List() {
		if e.Matched != 0 || e.Hits != 0 {
			t.Errorf("rule %s counted %d, %d, want nothing", e.Rule, e.Matched, e.Hits)
		}
	}
}

func TestStatus(t *testing.T) {
	for rule, want := range map[string]struct {
		status     int
		kind, body string
	}{
		`/* status=502 body="<h1>no</h1>"`: {502, "text/html; charset=utf-8", "<h1>no</h1>"},
		`/* status=500`:                    {500, "application/json; charset=utf-8", `{"message":"500 Internal Server Error (injected)"}`},
		`/* body="{\"a\":1}"`:              {200, "application/json; charset=utf-8", `{"a":1}`},
		`/* body="{\"a\":"`:                {200, "text/plain; charset=utf-8", `{"a":`},
		`/* status=204`:                    {204, "application/json; charset=utf-8", ``},
	} {
		s := newSite(t)
		s.add(rule)
		resp, data, err := s.post("/builds")
		if err != nil || resp.StatusCode != want.status || data != want.body || resp.Header.Get("Content-Type") != want.kind || s.calls.Load() != 0 {
			t.Errorf("%s = %v %q, %v, %d calls, want %v and no call", rule, resp, data, err, s.calls.Load(), want)
		}
	}
}

func TestAfterAndCount(t *testing.T) {
	s := newSite(t)
	s.add("POST /v2/*/builds after=1 count=2 status=500")
	s.add("POST /v2/*/builds count=1 status=503")
	var got []int
	for range 5 {
		resp, _, err := s.post("/v2/organizations/o/pipelines/p/builds")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, resp.StatusCode)
	}
	if want := []int{503, 500, 500, 201, 201}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("answers = %v, want %v", got, want)
	}
	list := s.in.List()
	if list[0].Matched != 5 || list[0].Hits != 2 || list[1].Hits != 1 {
		t.Errorf("List = %+v, want 5 matched and 2 hits, then 1 hit", list)
	}
}

func TestDrop(t *testing.T) {
	s := newSite(t)
	s.add("/before count=1 drop")
	s.add("/behind count=1 drop_after")
	for path, calls := range map[string]int32{"/before": 0, "/behind": 1} {
		s.calls.Store(0)
		if resp, data, err := s.post(path); !errors.Is(err, io.EOF) {
			t.Errorf("POST %s = %v %q, %v, want EOF", path, resp, data, err)
		}
		if got := s.calls.Load(); got != calls {
			t.Errorf("POST %s ran the handler %d times, want %d", path, got, calls)
		}
		if resp, _, err := s.post(path); err != nil || resp.StatusCode != 201 {
			t.Errorf("the next POST %s = %v, %v, want 201", path, resp, err)
		}
	}
}

func TestCut(t *testing.T) {
	s := newSite(t)
	s.add("/cut cut=12")
	s.add("/long cut=1000")
	resp, data, err := s.post("/cut")
	if !errors.Is(err, io.ErrUnexpectedEOF) || data != body[:12] || resp.StatusCode != 201 {
		t.Errorf("POST /cut = %v %q, %v, want 201, %q, unexpected EOF", resp, data, err, body[:12])
	}
	if _, data, err = s.post("/long"); err != nil || data != body {
		t.Errorf("a body shorter than the cut = %q, %v, want it whole", data, err)
	}
}

// TestCutEndsStream has a handler that writes until writing fails.
func TestCutEndsStream(t *testing.T) {
	var in fault.Injector
	if _, err := in.Add(fault.Rule{Path: "*", Cut: 10}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	server := httptest.NewServer(in.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := io.WriteString(w, "1234"); err != nil {
				ended <- err
				return
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				ended <- err
				return
			}
		}
	})))
	defer server.Close()
	resp, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if data, err := io.ReadAll(resp.Body); string(data) != "1234123412" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("stream = %q, %v, want its first 10 bytes, then unexpected EOF", data, err)
	}
	if err := <-ended; err == nil {
		t.Error("the handler's write did not fail")
	}
}

func TestRateLimit(t *testing.T) {
	s := newSite(t)
	s.add("/* rate_limit=rest_user:42")
	resp, data, err := s.post("/x")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Scope                 string
		Limit, Current, Reset int
	}
	if err := json.Unmarshal([]byte(data), &got); err != nil || resp.StatusCode != 429 || got.Scope != "rest_user" || got.Limit != 50 || got.Current != 51 || got.Reset != 42 {
		t.Errorf("answer = %d %s, want 429 of rest_user for 42 seconds", resp.StatusCode, data)
	}
	h := resp.Header
	if h.Get("RateLimit-User-Remaining") != "-1" || h.Get("RateLimit-User-Reset") != "42" || h.Get("RateLimit-User-Warning") == "" || h.Get("RateLimit-Reset") != "60" || h.Get("RateLimit-Remaining") != "100" || h.Get("Retry-After") != "" {
		t.Errorf("headers = %v", h)
	}
}

func TestDuplicate(t *testing.T) {
	s := newSite(t)
	s.add("/* duplicate")
	resp, data, err := s.post("/x")
	if err != nil || resp.StatusCode != 201 || data != body || resp.Header.Get("Sent") != "hello" || s.calls.Load() != 2 {
		t.Errorf("POST = %v %q, %v, handler ran %d times, want a normal answer and 2 runs with the body", resp, data, err, s.calls.Load())
	}
}

func TestLatency(t *testing.T) {
	s := newSite(t)
	s.add("/slow latency=60ms")
	s.add("/stuck latency=10m status=500")
	start := time.Now()
	if resp, _, err := s.post("/slow"); err != nil || resp.StatusCode != 201 || time.Since(start) < 60*time.Millisecond {
		t.Errorf("POST /slow = %v, %v after %v, want 201 after 60ms", resp, err, time.Since(start))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", s.url+"/stuck", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := http.DefaultClient.Do(req); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("GET /stuck = %v, want the client's own deadline", err)
	} // the server's Close waits for the handler: it must have left
}

// TestStreamsPassThrough has an injector with rules about other requests.
func TestStreamsPassThrough(t *testing.T) {
	var in fault.Injector
	if _, err := in.Add(fault.Rule{Path: "/other", Status: 500}); err != nil {
		t.Fatal(err)
	}
	got := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Sum")
		_, _ = io.WriteString(w, "frame")
		w.(http.Flusher).Flush()
		<-got // the client has the frame before the handler ends
		w.Header().Set("Sum", "7")
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "raw")
		_ = conn.Close()
	})
	server := httptest.NewServer(in.Wrap(mux))
	defer server.Close()
	resp, err := http.Get(server.URL + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	frame := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, frame); err != nil || string(frame) != "frame" {
		t.Fatalf("frame = %q, %v", frame, err)
	}
	close(got)
	if _, err := io.ReadAll(resp.Body); err != nil || resp.Trailer.Get("Sum") != "7" {
		t.Errorf("trailer = %v, %v, want Sum 7", resp.Trailer, err)
	}
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /hijack HTTP/1.1\r\nHost: x\r\n\r\n")
	if data, err := io.ReadAll(conn); err != nil || string(data) != "raw" {
		t.Errorf("hijacked connection sent %q, %v", data, err)
	}
}
