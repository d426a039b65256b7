package launcher

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/launcher/pace"
)

// hinted makes every build of the fake end after run, and a hint come for it
// delay later; lost says which hints do not.
func hinted(f *fake, c *Client, run, delay time.Duration, lost func(number int) bool) {
	f.onCreate = withInline(func(b *fakeBuild) {
		endsAfter(time.Second/2, run)(b)
		if !lost(b.number) {
			time.AfterFunc(run+time.Second/2+delay, func() { c.Hint(b.number) })
		}
	})
}

// collects submits one after the other, each a pause after the one before, and
// returns how long after its end each result was here.
func collects(t *testing.T, c *Client, submissions int, pause, run time.Duration) (late []time.Duration) {
	var mu sync.Mutex
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
		time.Sleep(pause)
	}
	wg.Wait()
	slices.Sort(late)
	return late
}

// Where hints come, polls wait for them.
func TestHintsTakeThePlaceOfPolls(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		submissions int
		perHour     time.Duration
		run, delay  time.Duration
		lost        func(int) bool
		calls       float64
		worst       time.Duration
	}{
		{"4,000 an hour", 800, 4000, 40 * time.Second, 200 * time.Millisecond, func(int) bool { return false }, 1.16, 12 * time.Second},
		{"one after the other", 40, 30, 70 * time.Second, 200 * time.Millisecond, func(int) bool { return false }, 2.5, 4 * time.Second},
		{"each tenth is lost", 400, 4000, 40 * time.Second, 200 * time.Millisecond, func(n int) bool { return n%10 == 0 }, 1.3, 75 * time.Second},
		{"they stop", 400, 4000, 40 * time.Second, 200 * time.Millisecond, func(n int) bool { return n > 200 }, 1.3, 75 * time.Second},
		{"an hour late", 100, 400, 40 * time.Second, time.Hour, func(int) bool { return false }, 4, 20 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				rejected := f.limited(pace.DefaultLimit)
				c := f.client()
				hinted(f, c, tt.run, tt.delay, tt.lost)
				late := collects(t, c, tt.submissions, time.Hour/tt.perHour, tt.run)
				if len(late) != tt.submissions {
					t.Fatalf("%d results of %d", len(late), tt.submissions)
				}
				each, worst := float64(c.Calls().Total)/float64(tt.submissions), late[len(late)-1]
				t.Logf("%.2f calls each: %s; beyond the run: median %s, the worst %s", each, c.Calls(), late[len(late)/2], worst)
				if each > tt.calls {
					t.Errorf("%.2f calls a submission, want at most %.2f", each, tt.calls)
				}
				if worst > tt.worst {
					t.Errorf("the worst came %s after its end, want at most %s", worst, tt.worst)
				}
				if rejected() > 0 {
					t.Errorf("%d requests over the limit", rejected())
				}
			})
		})
	}
}

// False hints, however many, cost a request now and then and change nothing.
func TestFalseHintsAreCheap(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fake) {
		const run = 60 * time.Second
		f.onCreate = withInline(endsAfter(time.Second/2, run))
		c := f.client()
		gets := 0
		f.fault = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet {
				gets++
			}
			return false
		}
		flood := time.NewTicker(10 * time.Millisecond)
		defer flood.Stop()
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-flood.C:
					c.Hint(1)
					c.Hint(77)
				case <-stop:
					return
				}
			}
		}()
		late := collects(t, c, 1, 0, run)
		close(stop)
		if len(late) != 1 || late[0] > 4*time.Second {
			t.Errorf("the result came %v after its end", late)
		}
		if most := int(run/hintPause) + 25; gets > most {
			t.Errorf("%d requests for 6,000 false hints, want at most %d", gets, most)
		}
	})
}
