package httpx

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
)

func serve(h http.HandlerFunc, o Options, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/x", nil)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	Wrap(h, o).ServeHTTP(w, r)
	return w
}

// The id is the server's own: a client must not choose what the log says.
func TestRequestID(t *testing.T) {
	seen := ""
	h := func(w http.ResponseWriter, r *http.Request) { seen = RequestID(r.Context()); io.WriteString(w, "x") }
	for _, sent := range []string{"abcdef-0123", "", "line\nbreak12"} {
		w := serve(h, Options{}, func(r *http.Request) { r.Header.Set("X-Request-Id", sent) })
		if got := w.Header().Get("X-Request-Id"); got != seen || got == sent || len(got) != 32 {
			t.Errorf("X-Request-Id %q became %q, the handler saw %q", sent, got, seen)
		}
	}
}

func TestStrictTransportSecurity(t *testing.T) {
	for https, want := range map[bool]string{true: hsts, false: ""} {
		if got := serve(func(http.ResponseWriter, *http.Request) {}, Options{HTTPS: https}, nil).Header().Get("Strict-Transport-Security"); got != want {
			t.Errorf("HTTPS %v: %q, want %q", https, got, want)
		}
	}
}

func TestLogNamesRouteAndOutcome(t *testing.T) {
	var log bytes.Buffer
	o := Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Quiet: []string{"GET /health"}}
	mux := http.NewServeMux()
	status := http.StatusOK
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		if status >= 400 {
			Outcome(r.Context(), "kaput")
		}
		w.WriteHeader(status)
	})
	serve(mux.ServeHTTP, o, func(r *http.Request) { r.URL.Path = "/health" })
	if log.Len() != 0 {
		t.Errorf("a probe that succeeds is logged:\n%s", &log)
	}
	status = 503
	serve(mux.ServeHTTP, o, func(r *http.Request) { r.URL.Path = "/health" })
	if s := log.String(); !strings.Contains(s, `level=INFO msg=request`) || !strings.Contains(s, `route="GET /health"`) || !strings.Contains(s, "outcome=kaput") {
		t.Errorf("a probe that fails is logged as:\n%s", s)
	}
	log.Reset()
	if serve(mux.ServeHTTP, o, nil); !strings.Contains(log.String(), "route=other") {
		t.Errorf("a path without a route is logged as:\n%s", &log)
	}
}

// A handler that breaks is answered with 500, and the log has where and not what.
func TestPanics(t *testing.T) {
	var log bytes.Buffer
	o := Options{Log: slog.New(slog.NewTextHandler(&log, nil))}
	w := serve(func(http.ResponseWriter, *http.Request) { panic("canary-payload") }, o, func(r *http.Request) { r.URL.RawQuery = "code=canary-code" })
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), `"detail":"internal error; request `) || strings.Contains(w.Body.String(), "canary") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if strings.Contains(log.String(), "canary") || !strings.Contains(log.String(), "httpx_test.go") {
		t.Errorf("the log says:\n%s", &log)
	}
	log.Reset()
	serve(func(http.ResponseWriter, *http.Request) { var list []int; _ = list[len(log.String())] }, o, nil)
	if !strings.Contains(log.String(), "index out of range") {
		t.Errorf("the log says:\n%s", &log)
	}
	func() {
		defer func() {
			if recover() != http.ErrAbortHandler {
				t.Error("an answer that had begun was ended as if it were whole")
			}
		}()
		serve(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "half"); panic("x") }, o, nil)
	}()
}

func TestLogHasNoPath(t *testing.T) {
	var log bytes.Buffer
	serve(func(w http.ResponseWriter, r *http.Request) {
		Note(r.Context(), "GET /invites/{code}", "7")
		w.WriteHeader(http.StatusTeapot)
	}, Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, func(r *http.Request) {
		r.URL.Path, r.URL.RawQuery = "/invites/canary", "state=canary"
		r.Header.Set("Authorization", "canary")
	})
	if s := log.String(); strings.Contains(s, "canary") || !strings.Contains(s, `route="GET /invites/{code}" user=7`) || !strings.Contains(s, "status=418") {
		t.Errorf("the log says:\n%s", s)
	}
}

func TestOddPathsAreRefused(t *testing.T) {
	ok := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }
	for target, want := range map[string]int{"/": 200, "/a/b": 200, "/a/": 200, "/a b": 200, "/ü": 200, "//a": 400, "/a//b": 400, "/a/../b": 400, "/a/./b": 400, "/..": 400, "/a%00": 400, "/a%0ab": 400, `/a\b`: 400, "/%ff": 400, "/a%2fb": 400, "/a%2e%2e/b": 200, "/%2e%2e/b": 400} {
		w := serve(ok, Options{}, func(r *http.Request) {
			u, err := url.Parse("http://example.com" + strings.ReplaceAll(target, " ", "%20"))
			if err != nil {
				t.Fatal(err)
			}
			r.URL = u
			r.URL.Host = ""
		})
		if w.Code != want {
			t.Errorf("%s: %d, want %d", target, w.Code, want)
		}
	}
}

func TestClientOf(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, c := range []struct{ remote, forwarded, want string }{
		{"192.0.2.1:5", "", "192.0.2.1"},
		{"192.0.2.1:5", "203.0.113.9", "192.0.2.1"},
		{"10.0.0.1:5", "203.0.113.9", "203.0.113.9"},
		{"10.0.0.1:5", "198.51.100.7, 203.0.113.9, 10.1.1.1", "203.0.113.9"},
		{"10.0.0.1:5", "nonsense", "10.0.0.1"},
		{"10.0.0.1:5", "nonsense, 203.0.113.9", "203.0.113.9"},
		{"[::ffff:192.0.2.1]:5", "", "192.0.2.1"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.remote
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		if got := clientOf(r, proxies).String(); got != c.want {
			t.Errorf("from %s, forwarded for %q: %s, want %s", c.remote, c.forwarded, got, c.want)
		}
	}
}

func TestLimiter(t *testing.T) {
	l := &Limiter{PerSecond: 0.001, Burst: 2}
	for i, want := range []bool{true, true, false} {
		if wait := l.Ask("ann", 1); (wait == 0) != want || wait > 2000*time.Second {
			t.Errorf("request %d: wait %v", i, wait)
		}
	}
	if l.Ask("bob", 1) != 0 {
		t.Error("one client's rate holds another back")
	}
	if (*Limiter)(nil).Ask("x", 1) != 0 {
		t.Error("no limit limits")
	}
	w := httptest.NewRecorder()
	TooMany(w, 1500*time.Millisecond)
	if w.Code != 429 || w.Header().Get("Retry-After") != "2" {
		t.Errorf("TooMany: %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
	a, b := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2:0:0:1")
	if Network(a) != Network(b) || Network(a) == Network(netip.MustParseAddr("2001:db8:0:1::1")) {
		t.Errorf("networks of %v and %v: %s, %s", a, b, Network(a), Network(b))
	}
}

func TestLimiterForgetsTheOldest(t *testing.T) {
	l := &Limiter{PerSecond: 0.001, Burst: 1}
	for i := range maxClients + 100 {
		l.Ask(fmt.Sprint(i), 1)
	}
	if len(l.buckets) != maxClients || l.recent.Len() != maxClients {
		t.Errorf("%d clients are kept, want %d", len(l.buckets), maxClients)
	}
	if l.Ask("50099", 1) == 0 || l.Ask("0", 1) != 0 {
		t.Error("not the oldest was forgotten")
	}
}
