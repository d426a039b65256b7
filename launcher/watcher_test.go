package launcher

import (
	"io"
	"net/http"
	"net/url"
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
	c.quota.answered(f.header) // before the first answer it would keep to the usual limit
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

// A build that no listing shows is asked for by number.
func TestRunMissingFromListingsIsNotLost(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fake) {
		begun := time.Now()
		f.onCreate = func(b *fakeBuild) {
			b.state = "running"
			if b.number == 1 {
				b.hidden = func(url.Values) bool { return true }
			}
			b.script = func(b *fakeBuild) {
				if time.Since(begun) > 40*time.Second {
					b.finish("passed")
				}
			}
		}
		c := f.client()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				r, err := c.Submit(t.Context(), submission())
				if err != nil {
					t.Error(err)
				} else if took := r.Timeline.Fetched.Sub(begun); took > 80*time.Second {
					t.Errorf("build %d: its end after 40 s was noticed after %s", r.Build, took)
				}
			})
		}
		wg.Wait()
	})
}

// Builds that are over before they are in any listing of open ones are noticed
// at once, several in flight or not.
func TestShortBuildsAreNoticedAtOnce(t *testing.T) {
	t.Parallel()
	for _, runs := range []int{1, 2, 10} {
		bubble(t, func(t *testing.T, f *fake) {
			f.onCreate = func(b *fakeBuild) {
				b.state = "running"
				b.script = func(b *fakeBuild) {
					if time.Since(b.created) > 700*time.Millisecond {
						b.finish("passed")
					}
				}
			}
			c := f.client()
			var wg sync.WaitGroup
			for range runs {
				wg.Go(func() {
					r, err := c.Submit(t.Context(), submission())
					if err != nil {
						t.Error(err)
					} else if took := r.Timeline.Fetched.Sub(r.Timeline.Created); took > 1500*time.Millisecond {
						t.Errorf("%d in flight: a build of 0.7 s was noticed after %s", runs, took)
					}
				})
			}
			wg.Wait()
		})
	}
}
