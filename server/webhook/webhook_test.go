package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/server/httpx"
)

const token = "key-of-the-webhook"

// A site is a handler, what it hinted and what it logged.
type site struct {
	*Handler
	hints []string
	seen  bool // a genuine event
	log   strings.Builder
}

func newSite(token string) *site {
	s := &site{}
	s.Handler = New(Options{Token: token, Hint: func(_ context.Context, id string) { s.hints = append(s.hints, id) }, Seen: func(context.Context, time.Time) { s.seen = true }, Log: slog.New(slog.NewTextHandler(&s.log, nil))})
	return s
}

// sign is the header that Buildkite sends with a body.
func sign(key, timestamp, body string) string {
	mac := hmac.New(sha256.New, []byte(key))
	io.WriteString(mac, timestamp+"."+body)
	return "timestamp=" + timestamp + ",signature=" + hex.EncodeToString(mac.Sum(nil))
}

func (s *site) post(header, value, body string) int {
	req := httptest.NewRequest("POST", "/webhooks/buildkite", strings.NewReader(body))
	if header != "" {
		req.Header.Set(header, value)
	}
	w := httptest.NewRecorder()
	httpx.Wrap(s, httpx.Options{}).ServeHTTP(w, req)
	return w.Code
}

const finished = `{"event": "build.finished", "build": {"number": 7, "state": "passed", "blocked": false, "meta_data": {"run_id": "run-1"}}, "pipeline": {}}`

func TestOnlyGenuineEventsHint(t *testing.T) {
	const signature, clear = "X-Buildkite-Signature", "X-Buildkite-Token"
	good := sign(token, "1700000000", finished)
	_, mac, _ := strings.Cut(good, "signature=")
	for name, c := range map[string]struct {
		header, value string
		want          int
	}{
		"a signature":              {signature, good, 204},
		"a signature with a space": {signature, strings.Replace(good, ",", ", ", 1), 204},
		"the clear token":          {clear, token, 204},
		"another key":              {signature, sign("other", "1700000000", finished), 401},
		"another body":             {signature, sign(token, "1700000000", finished+" "), 401},
		"another timestamp":        {signature, "timestamp=1700000001,signature=" + mac, 401},
		"no timestamp":             {signature, "signature=" + mac, 401},
		"half a signature":         {signature, good[:len(good)-2], 401},
		"no hex":                   {signature, "timestamp=1,signature=zz", 401},
		"an empty signature":       {signature, "timestamp=1700000000,signature=", 401},
		"words":                    {signature, "hello", 401},
		"another token":            {clear, token + "x", 401},
		"neither":                  {"", "", 401},
		"an authorization":         {"Authorization", "Bearer " + token, 401},
	} {
		s := newSite(token)
		if got := s.post(c.header, c.value, finished); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		if hinted := len(s.hints) == 1 && s.hints[0] == "run-1"; hinted != (c.want == 204) {
			t.Errorf("%s: hints %q", name, s.hints)
		}
		if strings.Contains(s.log.String(), token) || strings.Contains(s.log.String(), mac) {
			t.Errorf("%s: the log holds a secret: %s", name, s.log.String())
		}
	}
	wrong := newSite(token) // a signature that is wrong is not made good by a token
	req := httptest.NewRequest("POST", "/", strings.NewReader(finished))
	req.Header.Set(signature, sign("other", "1", finished))
	req.Header.Set(clear, token)
	w := httptest.NewRecorder()
	if wrong.ServeHTTP(w, req); w.Code != 401 || len(wrong.hints) != 0 {
		t.Errorf("a wrong signature beside the token: %d, hints %q", w.Code, wrong.hints)
	}
	none := newSite("")
	if got := none.post(signature, sign("", "1", finished), finished); got != 401 {
		t.Errorf("without a token: %d, want 401", got)
	}
	if got := none.post(clear, "", finished); got != 401 {
		t.Errorf("without a token, an empty one: %d, want 401", got)
	}
}

// What is no event about a build's end is taken and means nothing.
func TestEventsThatAreNoHints(t *testing.T) {
	for body, want := range map[string]int{
		`{"event": "ping", "service": {}, "organization": {}, "sender": {}}`:                                                 204,
		`{"event": "job.finished", "job": {}, "build": {"number": 7, "state": "running", "meta_data": {"run_id": "run-1"}}}`: 204,
		`{"event": "build.running", "build": {"number": 7, "meta_data": {"run_id": "run-1"}}}`:                               204,
		`{"event": "build.finished", "build": {"number": 7}}`:                                                                204,
		`{"event": "build.finished", "build": {"number": 7, "meta_data": null}}`:                                             204,
		`{"event": "build.finished", "build": {"number": 7, "meta_data": {"run_id": 7}}}`:                                    204,
		`{"event": "build.finished", "build": {"number": 7, "meta_data": {"run_id": "run 1\n"}}}`:                            204,
		`{"event": "build.finished", "build": {"number": 7, "meta_data": {"run_id": "` + strings.Repeat("x", 201) + `"}}}`:   204,
		`null`: 204, `{}`: 204, ``: 400, `hello`: 400, `[]`: 400, `"x"`: 400, `{"event": 7}`: 400, `{"build": []}`: 400, finished + "x": 400,
		strings.Repeat("[", 100_000): 400,
	} {
		s := newSite(token)
		if got := s.post("X-Buildkite-Signature", sign(token, "1700000000", body), body); got != want || len(s.hints) != 0 {
			t.Errorf("%.90s: %d and hints %q, want %d and none", body, got, s.hints, want)
		}
		if !s.seen {
			t.Errorf("%.90s: a genuine event was not noticed", body)
		}
	}
	s := newSite(token)
	for range 3 { // replayed
		if got := s.post("X-Buildkite-Token", token, finished); got != 204 {
			t.Errorf("got %d", got)
		}
	}
	if s.Hints() != 3 || s.Refused() != 0 {
		t.Errorf("counted %d hints and %d refused", s.Hints(), s.Refused())
	}
	w := httptest.NewRecorder()
	if s.ServeHTTP(w, httptest.NewRequest("GET", "/", nil)); w.Code != 405 || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET: %d", w.Code)
	}
}

func TestLargeEvents(t *testing.T) {
	fill := func(size int) string {
		head, tail := `{"event": "build.finished", "build": {"meta_data": {"run_id": "run-1", "more": "`, `"}}}`
		return head + strings.Repeat("x", size-len(head)-len(tail)) + tail
	}
	s := newSite(token)
	if got := s.post("X-Buildkite-Token", token, fill(maxBody)); got != 204 || len(s.hints) != 1 {
		t.Errorf("the largest event: %d, hints %q", got, s.hints)
	}
	if got := s.post("X-Buildkite-Token", token, fill(maxBody+1)); got != 413 || len(s.hints) != 1 {
		t.Errorf("a larger one: %d, hints %q", got, s.hints)
	}
}

// A database that does not answer costs a hint and not the event.
func TestHintHasATimeLimit(t *testing.T) {
	h := New(Options{Token: token, Hint: func(ctx context.Context, _ string) {
		if _, limited := ctx.Deadline(); !limited {
			t.Error("a hint may take for ever")
		}
	}})
	req := httptest.NewRequest("POST", "/", strings.NewReader(finished))
	req.Header.Set("X-Buildkite-Token", token)
	if h.ServeHTTP(httptest.NewRecorder(), req); h.Hints() != 1 {
		t.Error("no hint")
	}
}

// Who sends a body a byte at a time does not hold a connection.
func TestSlowSenderHasATimeLimit(t *testing.T) {
	limited := make(chan time.Time, 9)
	h := New(Options{Token: token})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpx.Wrap(h, httpx.Options{}).ServeHTTP(&deadlines{w, limited}, r)
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nX-Buildkite-Token: "+token+"\r\nContent-Length: 100\r\n\r\n{")
	for {
		select {
		case at := <-limited:
			if time.Until(at) <= readTime { // before that, the limit of every request
				return
			}
		case <-time.After(time.Minute):
			t.Fatal("nothing limits the reading")
		}
	}
}

// unread fails the test when a body is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) { u.t.Error("the body was read"); return 0, io.EOF }

// Nothing is read of a body whose header already shows that it is forged.
func TestForgedEventsAreNotRead(t *testing.T) {
	for name, value := range map[string]string{"X-Buildkite-Token": "x", "X-Buildkite-Signature": "timestamp=1,signature=00", "X-Other": ""} {
		req := httptest.NewRequest("POST", "/", unread{t})
		req.Header.Set(name, value)
		w := httptest.NewRecorder()
		if httpx.Wrap(newSite(token), httpx.Options{}).ServeHTTP(w, req); w.Code != http.StatusUnauthorized {
			t.Errorf("%s: %d, want 401", name, w.Code)
		}
	}
}

type deadlines struct {
	http.ResponseWriter
	limited chan time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	select {
	case d.limited <- at:
	default:
	}
	return nil
}
