package page

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
)

// A stream is a client that reads a page's events as they come.
type stream struct {
	header http.Header
	mu     sync.Mutex
	text   strings.Builder
}

func (s *stream) Header() http.Header { return s.header }
func (s *stream) WriteHeader(int)     {}
func (s *stream) Flush()              {}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// take returns the names of the events that have come since it was called last.
func (s *stream) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for line := range strings.Lines(s.text.String()) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "event: "); ok {
			names = append(names, name)
		}
	}
	s.text.Reset()
	return names
}

// listen opens a stream, which ends with the test, in a bubble of synctest. It
// is subscribed when listen returns.
func (w *rig) listen(path string) *stream {
	w.t.Helper()
	s := &stream{header: http.Header{}}
	r := httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, path, nil)
	r.Host = "localhost"
	go w.pages.ServeHTTP(s, r) // ends with the test's context
	synctest.Wait()
	if got, want := s.text.String(), "retry: 1000\n\n"; got != want || s.header.Get("Content-Type") != "text/event-stream" {
		w.t.Fatalf("GET %s begins with %q of %v, want %q", path, got, s.header, want)
	}
	return s
}

// Each page is told of what it shows, at once, and of nothing else.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newQuietRig(t)
		w.pipeline("p", "steps: [{label: x, command: x}, {label: y, command: y}]")
		w.create("p", engine.NewBuild{})
		other := w.create("p", engine.NewBuild{})
		a := w.agent("a", "default")
		j := w.start(a)
		build := "/gpu-mode/p/builds/1"
		streams := map[string]*stream{}
		for name, path := range map[string]string{
			"index": "/events", "build": build + "/events", "job": build + "/jobs/" + j.ID + "/events",
			"other job": build + "/jobs/" + must[engine.Build](t)(w.engine.Build("p", 1)).Jobs[1].ID + "/events",
			"other":     "/gpu-mode/p/builds/2/events", "other's job": "/gpu-mode/p/builds/2/jobs/" + other.Jobs[0].ID + "/events",
		} {
			streams[name] = w.listen(path)
		}
		for _, tt := range []struct {
			name string
			do   func()
			want []string
		}{
			{"log", func() { w.log(j, "x\n") }, []string{"job"}},
			{"annotation", func() {
				_, _ = w.engine.Annotate(j.BuildID, engine.Annotation{Body: "x"}, false)
			}, []string{"index", "build", "job", "other job"}},
			{"end of a job", func() { w.finish(j, 1) }, []string{"index", "build", "job", "other job"}},
			{"agent", func() { w.agent("b", "default") }, []string{"index"}},
		} {
			tt.do()
			synctest.Wait() // no time passes
			for name, s := range streams {
				want := "[]"
				if slices.Contains(tt.want, name) {
					want = "[change]"
				}
				if got := fmt.Sprint(s.take()); got != want {
					t.Errorf("%s: %s is told %s at once, want %s", tt.name, name, got, want)
				}
			}
			time.Sleep(3 * calm)
			for name, s := range streams {
				if got := s.take(); len(got) > 0 && !slices.Contains(tt.want, name) {
					t.Errorf("%s: %s is told %s later, want nothing", tt.name, name, got)
				}
			}
		}
	})
}

// A busy log does not flood the page, its last change is told, too, and a
// stream is never silent for long.
func TestEventsAreCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newQuietRig(t)
		w.pipeline("p", "steps: [{label: x, command: x}]")
		w.create("p", engine.NewBuild{})
		j := w.start(w.agent("a", "default"))
		s := w.listen("/gpu-mode/p/builds/1/jobs/" + j.ID + "/events")
		check := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := fmt.Sprint(s.take()); got != want {
				t.Errorf("%s: told %s, want %s", when, got, want)
			}
		}
		for range 500 {
			w.log(j, "x\n")
		}
		check("500 changes at once", "[change]")
		time.Sleep(calm)
		check("after the calm", "[change]")
		time.Sleep(beat - time.Millisecond)
		check("in silence", "[]")
		time.Sleep(time.Millisecond)
		check("at the end of a beat", "[beat]")
		time.Sleep(calm)
		for range 40 {
			w.log(j, "x\n")
			time.Sleep(calm / 10)
		}
		check("40 changes in 4 calms, the last one included", "[change change change change change]")
		time.Sleep(2 * calm)
		check("afterwards", "[]")
	})
}

// A stream ends when its client leaves, over a real connection.
func TestEventsEnd(t *testing.T) {
	w := newRig(t)
	left := make(chan struct{})
	w.server.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.pages.ServeHTTP(rw, r)
		if r.Method == http.MethodGet {
			close(left)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := must[*http.Request](t)(http.NewRequestWithContext(ctx, http.MethodGet, w.server.URL+"/events", nil))
	resp := must[*http.Response](t)(w.server.Client().Do(r))
	defer resp.Body.Close()
	cancel()
	select {
	case <-left:
	case <-time.After(patience):
		t.Error("the stream goes on without its client")
	}
	if status, body, _ := w.request(http.MethodHead, "/events"); status != 200 || body != "" {
		t.Errorf("HEAD /events = %d %q, want 200 at once", status, body)
	}
}
