package launcher

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestTroubleWhilePollingIsWaitedOut(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.onCreate = passes
	var gets atomic.Int32
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		switch gets.Add(1) {
		case 1:
			return fail(w, 500, `{"message":"oops"}`)
		case 3: // the second artifact list will be cut instead
			w.Header().Set("Content-Length", "900")
			io.WriteString(w, `{"number":1,`)
			return true
		}
		return false
	}
	if _, err := f.client().Submit(t.Context(), submission()); err != nil {
		t.Errorf("Submit: got %v, want to wait out a 500 and a cut body", err)
	}
}

func TestPollPause(t *testing.T) {
	t.Parallel()
	var at time.Duration
	var polls []time.Duration
	for at < 5*time.Minute {
		at += pollPause(at)
		polls = append(polls, at)
	}
	within := func(d time.Duration) int {
		i, _ := slices.BinarySearch(polls, d)
		return i
	}
	t.Logf("polls within 3 s, 10 s, 60 s, 5 min: %d, %d, %d, %d", within(3*time.Second), within(10*time.Second), within(time.Minute), len(polls))
	if within(3*time.Second) > 20 || len(polls) > 100 {
		t.Errorf("polls: got %d in 3 s and %d in 5 min, want at most 20 and 100", within(3*time.Second), len(polls))
	}
}

func TestManyWaitsShareTheirPolls(t *testing.T) {
	t.Parallel()
	bubble(t, manyWaitsShareTheirPolls)
}

func manyWaitsShareTheirPolls(t *testing.T, f *fake) {
	const runs = 50
	f.header = http.Header{}
	for name, v := range map[string]string{"Ratelimit-Remaining": "9000", "Ratelimit-Limit": "10000", "Ratelimit-Reset": "60"} {
		f.header.Set(name, v)
	}
	created := 0
	f.onCreate = func(b *fakeBuild) {
		created++
		b.state = "running"
		b.jobs = []map[string]any{scriptJob("job-1", "evaluate", "cpu", "running")}
		done := time.Now().Add(1500 * time.Millisecond)
		b.script = func(b *fakeBuild) {
			if b.state == "running" && time.Now().After(done) {
				b.finish("passed")
			}
		}
	}
	c := f.client()
	c.quota.see(f.header) // before the first answer it would keep to the least limit there is
	ids := make(chan string, runs)
	var wg sync.WaitGroup
	for range runs {
		wg.Go(func() {
			r, err := c.Submit(t.Context(), submission())
			if err != nil {
				t.Error(err)
				return
			}
			ids <- r.Result.RunID
		})
	}
	wg.Wait()
	close(ids)
	seen := map[string]bool{}
	for id := range ids {
		seen[id] = true
	}
	if len(seen) != runs || created != runs {
		t.Errorf("got %d results of %d builds, want %d of each", len(seen), created, runs)
	}
	n := c.Calls()
	t.Logf("%d submissions of 1.5 s at once: %+v, %.2f requests each", runs, n, float64(n.Total)/runs)
	if fixed := n.Total - n.Polls - n.Lookups; fixed > 3*runs+6 {
		t.Errorf("requests besides polls: got %d, want about 3 each", fixed)
	}
	if n.Polls > 40 {
		t.Errorf("polls: got %d for %d waits of 1.5 s, want them shared", n.Polls, runs)
	}
}

// A build that the listing does not show is asked for by number.
func TestRunMissingFromListingsIsNotLost(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var hidden *fakeBuild
	f.onCreate = func(b *fakeBuild) {
		b.state = "running"
		if hidden == nil {
			hidden = b
			b.script = func(b *fakeBuild) {
				if b.probes == 2 {
					b.finish("passed")
				}
			}
			return
		}
		b.script = func(b *fakeBuild) {
			if hidden.state == "passed" {
				b.finish("passed")
			}
		}
	}
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && strings.Contains(r.URL.RawQuery, "launcher") {
			f.mu.Lock()
			defer f.mu.Unlock()
			var open []any
			for _, b := range f.builds {
				if b.probe(); b != hidden && b.state == "running" {
					open = append(open, f.show(b, false))
				}
			}
			hidden.probes = 0
			json.NewEncoder(w).Encode(open)
			return true
		}
		return false
	}
	c := f.client()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if _, err := c.Submit(t.Context(), submission()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
