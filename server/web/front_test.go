package web

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/httpx"
)

// unread fails the test when a body is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) { u.t.Error("the body was read"); return 0, io.EOF }

// front is the pages as a viewer gets them, without a database.
type front struct {
	viewer  backend.Viewer
	foreign bool
}

func (f front) Viewer(*http.Request) backend.Viewer { return f.viewer }
func (f front) Providers() []string                 { return nil }
func (f front) CheckOrigin(*http.Request) error {
	if f.foreign {
		return fmt.Errorf("foreign")
	}
	return nil
}

// A form of a client that is not logged in, or of another site's page, is refused
// before its body is read.
func TestRefusedFormsAreNotRead(t *testing.T) {
	for name, f := range map[string]front{"not logged in": {}, "from another site": {viewer: backend.Viewer{ID: "7"}, foreign: true}} {
		pages := httpx.Wrap(New(Options{Identity: f}), httpx.Options{})
		for _, path := range []string{"/b/sort", "/s/1/delete", "/u/7", "/admin"} {
			r := httptest.NewRequest("POST", path, unread{t})
			r.Header.Set("Content-Type", "multipart/form-data; boundary=X")
			w := httptest.NewRecorder()
			if pages.ServeHTTP(w, r); w.Code != http.StatusForbidden {
				t.Errorf("%s, POST %s: %d, want 403", name, path, w.Code)
			}
		}
	}
}

// A client that does not send the rest of a form gets its refusal, and does not keep
// its connection.
func TestUnsentFormsEnd(t *testing.T) {
	w := newRig(t)
	c, err := net.Dial("tcp", w.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(httpx.MaxTime / 2))
	fmt.Fprintf(c, "POST /b/sort HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=X\r\nContent-Length: 1000000\r\n\r\n%s", strings.Repeat("x", 999_000))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusForbidden {
		t.Fatalf("%v, %v, want 403", resp, err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("the connection stays open: %v", err)
	}
}

func TestPagesHaveARate(t *testing.T) {
	pages := httpx.Wrap(New(Options{Identity: front{}, Limit: &httpx.Limiter{PerSecond: 0.001, Burst: 3}}), httpx.Options{})
	get := func(address, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		r.RemoteAddr = address + ":1"
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, r)
		return w
	}
	for i, want := range []int{404, 404, 404, 429} {
		if got := get("192.0.2.1", "/nothing"); got.Code != want || want == 429 && (got.Header().Get("Retry-After") == "" || !strings.Contains(got.Body.String(), "too often")) {
			t.Errorf("page %d: %d, want %d", i, got.Code, want)
		}
	}
	if got := get("192.0.2.1", "/robots.txt"); got.Code != 200 {
		t.Errorf("a file beside the pages: %d, want 200", got.Code)
	}
	if got := get("192.0.2.2", "/nothing"); got.Code != 404 {
		t.Errorf("another address: %d, want 404", got.Code)
	}
}

// One address holds a number of streams, and others have theirs.
func TestPageStreamsAreCounted(t *testing.T) {
	streams := &httpx.Quota{Each: 1}
	pages := httpx.Wrap(New(Options{Identity: front{}, Backend: backend.New(backend.Options{}), Streams: streams}), httpx.Options{})
	s := httptest.NewServer(pages)
	defer s.Close()
	var open []*http.Response
	defer func() {
		for _, resp := range open {
			resp.Body.Close()
		}
	}()
	for i := range 11 {
		resp, err := http.Get(s.URL + "/events/queue")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, resp)
		want := 200
		if i == 10 {
			want = 429
		}
		if resp.StatusCode != want {
			t.Errorf("stream %d: %d, want %d", i, resp.StatusCode, want)
		}
	}
	var first bytes.Buffer
	if _, err := io.CopyN(&first, open[0].Body, 5); err != nil || first.String() != "retry" {
		t.Errorf("the first stream: %q, %v", first.String(), err)
	}
}
