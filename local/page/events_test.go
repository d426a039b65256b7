package page

import (
	"bufio"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
)

// listen opens a stream and returns the names of its events as they come. The
// channel is closed when the stream ends.
func (w *world) listen(ctx context.Context, path string) <-chan string {
	w.t.Helper()
	r := must[*http.Request](w.t)(http.NewRequestWithContext(ctx, "GET", w.server.URL+path, nil))
	resp := must[*http.Response](w.t)(w.server.Client().Do(r))
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		w.t.Fatalf("GET %s = %d %s, want a stream of events", path, resp.StatusCode, got)
	}
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || lines.Text() != "retry: 1000" { // now it is subscribed
		w.t.Fatalf("GET %s begins with %q", path, lines.Text())
	}
	events := make(chan string, 1000)
	go func() { // ends with ctx or the server
		defer close(events)
		defer resp.Body.Close()
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				events <- name
			}
		}
	}()
	return events
}

// drain takes events until none has come for a while.
func drain(events <-chan string) int {
	for n := 0; ; n++ {
		select {
		case <-events:
		case <-time.After(3 * calm):
			return n
		}
	}
}

// drainAll is drain for several streams at once.
func drainAll(streams map[string]<-chan string) map[string]int {
	var mu sync.Mutex
	var wg sync.WaitGroup
	counts := map[string]int{}
	for name, events := range streams {
		wg.Go(func() {
			n := drain(events)
			mu.Lock()
			defer mu.Unlock()
			counts[name] = n
		})
	}
	wg.Wait()
	return counts
}

func TestEvents(t *testing.T) {
	w := newWorld(t)
	w.pipeline("p", "steps: [{label: x, command: x}, {label: y, command: y}]")
	w.create("p", engine.NewBuild{})
	other := w.create("p", engine.NewBuild{})
	a := w.agent("a", "default")
	j := w.start(a)
	build := "/gpu-mode/p/builds/1"
	streams := map[string]<-chan string{}
	for name, path := range map[string]string{
		"index": "/events", "build": build + "/events", "job": build + "/jobs/" + j.ID + "/events",
		"other job": build + "/jobs/" + must[engine.Build](t)(w.engine.Build("p", 1)).Jobs[1].ID + "/events",
		"other":     "/gpu-mode/p/builds/2/events", "other's job": "/gpu-mode/p/builds/2/jobs/" + other.Jobs[0].ID + "/events",
	} {
		streams[name] = w.listen(t.Context(), path)
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
		drainAll(streams)
		began, fastest := time.Now(), time.Hour
		tt.do()
		for _, name := range tt.want {
			select {
			case got := <-streams[name]:
				if fastest = min(fastest, time.Since(began)); got != "change" {
					t.Errorf("%s: %s is told %q, want change", tt.name, name, got)
				}
			case <-time.After(5 * time.Second):
				t.Errorf("%s: %s is not told", tt.name, name)
			}
		}
		if fastest > 100*time.Millisecond { // one slow stream is a busy machine, all of them are ours
			t.Errorf("%s is told after %v, want within 100 ms", tt.name, fastest)
		}
		for name, n := range drainAll(streams) {
			if n > 0 && !slices.Contains(tt.want, name) {
				t.Errorf("%s: %s is told %d times, want never", tt.name, name, n)
			}
		}
	}
}

// A busy log does not flood the page, and its last change is told, too.
func TestEventsAreCalm(t *testing.T) {
	w := newWorld(t)
	w.pipeline("p", "steps: [{label: x, command: x}]")
	w.create("p", engine.NewBuild{})
	j := w.start(w.agent("a", "default"))
	events := w.listen(t.Context(), "/gpu-mode/p/builds/1/jobs/"+j.ID+"/events")
	began := time.Now()
	const writes = 500
	for range writes {
		w.log(j, "x\n")
	}
	took := time.Since(began)
	if n, most := drain(events), 2+int(took/calm); n < 2 || n > most {
		t.Errorf("%d changes in %v were told %d times, want 2 to %d", writes, took, n, most)
	}
}

func TestEventsEnd(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	events := w.listen(ctx, "/events")
	cancel()
	select {
	case _, open := <-events:
		if open {
			t.Error("an event came though nothing happened")
		}
	case <-time.After(5 * time.Second):
		t.Error("the stream goes on without its client")
	}
	if status, body, _ := w.request(http.MethodHead, "/events"); status != 200 || body != "" {
		t.Errorf("HEAD /events = %d %q, want 200 at once", status, body)
	}
}
