package web

import (
	"bufio"
	"context"
	"net/http"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store"
)

// events follows a page's stream; each line that has come is sent.
func (r *rig) events(as, path string) <-chan string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
	in, err := http.NewRequestWithContext(ctx, http.MethodGet, r.server.URL+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	in.AddCookie(&http.Cookie{Name: "kbserve_session", Value: r.cookies[as]})
	out, err := http.DefaultTransport.RoundTrip(in)
	if err != nil {
		r.t.Fatal(err)
	}
	if out.StatusCode != http.StatusOK || out.Header.Get("Content-Type") != "text/event-stream" {
		r.t.Fatalf("GET %s: %d %v", path, out.StatusCode, out.Header)
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		defer out.Body.Close()
		for s := bufio.NewScanner(out.Body); s.Scan(); {
			if s.Text() != "" {
				lines <- s.Text()
			}
		}
	}()
	return lines
}

// wait reads lines until one is as wanted.
func wait(t *testing.T, lines <-chan string, want string) {
	t.Helper()
	for line := range lines {
		if line == want {
			return
		}
	}
	t.Fatalf("the stream ended without %q", want)
}

// A stream says when something has changed.
func TestEvents(t *testing.T) {
	w := newRig(t)
	w.login(alice, "alice")
	w.save(board("sort", "H100"))
	id := w.accept(store.Submission{Board: "sort", GPU: "H100", UserID: alice})
	queue, submission, ranking := w.events(alice, "/events/queue"), w.events(alice, "/events/submission/1"), w.events("", "/events/board/sort")
	for _, lines := range []<-chan string{queue, submission, ranking} {
		wait(t, lines, "retry: 5000") // from here on it watches
	}
	w.accept(store.Submission{Board: "sort", GPU: "H100", UserID: alice})
	wait(t, queue, "event: change")
	w.evaluate(func(p store.PlannedRun) *schema.Result { return result(p.GPU, 4000+float64(id)) })
	wait(t, submission, "event: change")
	wait(t, ranking, "event: change")
	if a := w.do("", http.MethodHead, "/events/queue", nil, nil); a.StatusCode != http.StatusOK {
		t.Errorf("HEAD of a stream: %d", a.StatusCode)
	}
}
