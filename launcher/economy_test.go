package launcher

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/launcher/pace"
)

// A lone submission costs at most five calls: what is known of its kind says
// when to ask, and its result comes with the answer.
func TestLoneSubmissionIsCheap(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{0, time.Second, 3 * time.Second, 10 * time.Second, time.Minute, 10 * time.Minute} {
		for _, known := range []int{0, 4} {
			for _, factor := range []float64{0.8, 1, 1.2} {
				if known == 0 && d > 3*time.Second {
					continue // nobody could know
				}
				bubble(t, func(t *testing.T, f *fake) {
					run := 200*time.Millisecond + d
					f.onCreate = withInline(endsAfter(time.Second, run))
					for i := range known { // by other clients, before
						time.Sleep(time.Minute)
						b := &fakeBuild{number: i + 1, created: time.Now(), meta: map[string]string{"run_id": fmt.Sprint(i), "gpu": "CPU_BK", "queue": "cpu", "mode": "test"}}
						endsAfter(time.Second, time.Duration(float64(run)*(0.9+0.05*float64(i))))(b)
						f.builds = append(f.builds, b)
						time.Sleep(2 * run)
					}
					run = time.Duration(float64(run) * factor)
					f.onCreate = withInline(endsAfter(time.Second, run))
					c := f.client()
					r, err := c.Submit(t.Context(), submission())
					if err != nil {
						t.Fatal(err)
					}
					late := r.Timeline.Fetched.Sub(r.Timeline.Created) - time.Second - run
					t.Logf("%s, %d known, factor %.1f: %s, %s late", run, known, factor, c.Calls(), late)
					want := 5
					if factor > 1 && run > 10*time.Minute {
						want = 8 // overdue by minutes
					}
					if n := c.Calls().Total; n > want {
						t.Errorf("a run of %s with %d known: %d calls, want at most %d", run, known, n, want)
					}
					if most := max(2*time.Second, run*3/10); known > 0 && late > most {
						t.Errorf("a run of %s with %d known: %s late, want at most %s", run, known, late, most)
					}
				})
			}
		}
	}
}

// limited makes the fake count requests as Buildkite does.
func (f *fake) limited(limit int) (rejected func() int) {
	window, count, over := time.Now(), 0, 0
	f.fault = func(w http.ResponseWriter, r *http.Request) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if time.Since(window) >= time.Minute {
			window, count = time.Now(), 0
		}
		count++
		reset := int((time.Minute - time.Since(window) + time.Second - 1) / time.Second)
		for name, values := range headers(limit, limit-count, reset) {
			w.Header()[name] = values
		}
		if count > limit {
			over++
			return fail(w, 429, fmt.Sprintf(`{"scope":"rest","limit":%d,"current":%d,"reset":%d}`, limit, count, reset))
		}
		return false
	}
	return func() int { return over }
}

// Four thousand an hour through one client, within the usual limit.
func TestManySubmissionsWithinTheLimit(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fake) {
		const submissions, perHour, run = 400, 4000, 40 * time.Second
		f.onCreate = withInline(endsAfter(time.Second/2, run))
		rejected := f.limited(pace.DefaultLimit)
		c := f.client()
		var mu sync.Mutex
		var late []time.Duration
		var wg sync.WaitGroup
		for range submissions {
			wg.Go(func() {
				begun := time.Now()
				if _, err := c.Submit(t.Context(), submission()); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				late = append(late, time.Since(begun)-run)
			})
			time.Sleep(time.Hour / perHour)
		}
		wg.Wait()
		slices.Sort(late)
		calls := c.Calls()
		each := float64(calls.Total) / submissions
		t.Logf("%.2f calls each: %s; beyond the run: median %s, the worst %s", each, calls, late[len(late)/2], late[len(late)-1])
		if each > 1.25 {
			t.Errorf("%.2f calls a submission, want about 1.1", each)
		}
		if late[len(late)/2] > 5*time.Second {
			t.Errorf("median %s beyond the run, want at most 5 s", late[len(late)/2])
		}
		if rejected() > 0 {
			t.Errorf("%d requests over the limit", rejected())
		}
	})
}
