package launcher

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// endsAfter scripts a build that waits and runs for a while and passes.
func endsAfter(waits, runs time.Duration) func(*fakeBuild) {
	return func(b *fakeBuild) {
		b.state = "scheduled"
		stamp := func(d time.Duration) string { return b.created.Add(d).UTC().Format(time.RFC3339Nano) }
		started := func(j map[string]any) map[string]any { j["started_at"] = stamp(waits); return j }
		b.script = func(b *fakeBuild) {
			switch age := time.Since(b.created); {
			case b.state == "canceled" || b.state == "passed":
			case age >= waits+runs:
				b.finish("passed")
				b.finished = b.created.Add(waits + runs)
				b.jobs = []map[string]any{scriptJob("job-0", "upload", "bootstrap", "passed"), started(scriptJob("job-1", "evaluate", "cpu", "passed"))}
			case age >= waits:
				b.state = "running"
				b.jobs = []map[string]any{scriptJob("job-0", "upload", "bootstrap", "passed"), started(scriptJob("job-1", "evaluate", "cpu", "running"))}
			}
		}
	}
}

// inlined leaves b's result in its meta-data too, as kbrun does.
func (b *fakeBuild) inlined(job string) {
	value, _ := schema.InlineResult(b.artifacts[0].data, job)
	b.meta["result:"+b.meta["run_id"]] = value
}

// withInline makes builds leave their results in meta-data too.
func withInline(script func(*fakeBuild)) func(*fakeBuild) {
	return func(b *fakeBuild) {
		script(b)
		inner := b.script
		b.script = func(b *fakeBuild) {
			before := b.state
			if inner(b); b.state == "passed" && before != "passed" {
				b.inlined("job-1")
			}
		}
	}
}

func TestStopDetaches(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fake) {
		f.onCreate = endsAfter(time.Minute, time.Minute)
		c := f.installed("lab")
		s := submission()
		s.RunID = "run-1"
		run, err := c.Create(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		if _, err := c.Collect(ctx, run); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Collect: got %v, want the context's end", err)
		}
		if f.builds[0].state == "canceled" || f.count("PUT") != 0 {
			t.Error("the build was cancelled, want it left alone")
		}
		// The process ends here. Another one, of the same installation, knows the
		// run id.
		c = f.installed("lab")
		run, err = c.Adopt(t.Context(), "run-1")
		if err != nil {
			t.Fatal(err)
		}
		if run.GPU != "CPU_BK" || run.Queue != "cpu" || run.Mode != schema.ModeTest || run.Build != 1 {
			t.Errorf("Adopt: got %+v", run)
		}
		r, err := c.Collect(t.Context(), run)
		if err != nil || r.Result.RunID != "run-1" {
			t.Fatalf("Collect after a restart: %v", err)
		}
		if len(f.builds) != 1 {
			t.Errorf("got %d builds, want one", len(f.builds))
		}
		// Long after, by the number.
		if run, err = c.Open(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if r, err = c.Collect(t.Context(), run); err != nil || r.Result.RunID != "run-1" {
			t.Errorf("Collect of a build that is over: %v", err)
		}
	})
}

func TestCollectGivesUpAndCancelsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fake) {
		f.onCreate = func(b *fakeBuild) { b.state = "scheduled" }
		c := f.client()
		s := submission()
		s.QueueTimeout = time.Minute
		run, err := c.Create(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Collect(t.Context(), run)
		var gave *GaveUpError
		if !errors.As(err, &gave) || gave.Canceled || !strings.Contains(err.Error(), "may still run") || f.count("PUT") != 0 {
			t.Errorf("Collect: got %v and %d cancellations", err, f.count("PUT"))
		}
	})
}

// Of several builds of a run the oldest counts that nobody cancelled.
func TestAdoptKeepsOne(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fake) {
		for i, state := range []string{"canceled", "running", "running", "passed"} {
			f.builds = append(f.builds, &fakeBuild{number: i + 1, state: state, created: time.Now(), meta: map[string]string{"run_id": "run-1"}})
		}
		run, err := f.client().Adopt(t.Context(), "run-1")
		if err != nil || run.Build != 2 {
			t.Fatalf("Adopt: got %+v, %v, want build 2", run, err)
		}
		var states []string
		for _, b := range f.builds {
			states = append(states, b.state)
		}
		if want := []string{"canceled", "running", "canceled", "passed"}; !slices.Equal(states, want) {
			t.Errorf("builds are %v, want %v", states, want)
		}
	})
}

// One run may be collected twice at once.
func TestCollectTwiceAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fake) {
		f.onCreate = endsAfter(time.Second, 20*time.Second)
		c := f.client()
		run, err := c.Create(t.Context(), submission())
		if err != nil {
			t.Fatal(err)
		}
		short, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		var wg sync.WaitGroup
		for _, ctx := range []context.Context{t.Context(), short, t.Context()} {
			wg.Go(func() {
				r, err := c.Collect(ctx, run)
				if ctx == short {
					if err == nil {
						t.Error("Collect: no error after its context's end")
					}
				} else if err != nil || r.Timeline.Fetched.Sub(r.Timeline.Created) > time.Minute {
					t.Errorf("Collect: %v", err)
				}
			})
		}
		wg.Wait()
	})
}

// After a restart a service knows run ids and numbers. Builds that ended long ago
// are found by the lists that the others share.
func TestManyRunsAfterARestart(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fake) {
		c := f.installed("lab")
		var known []Run
		for i := range 30 {
			f.onCreate = withInline(endsAfter(time.Second, time.Duration(1+i)*time.Minute))
			run, err := c.Create(t.Context(), submission())
			if err != nil {
				t.Fatal(err)
			}
			known = append(known, Run{ID: run.ID, Build: run.Build, GPU: run.GPU, Queue: run.Queue, Mode: run.Mode, Created: run.Created})
		}
		time.Sleep(20 * time.Minute) // nobody there
		c = f.installed("lab")
		restarted := time.Now()
		var wg sync.WaitGroup
		for i, run := range known {
			wg.Go(func() {
				time.Sleep(time.Duration(i%3) * 45 * time.Second) // they come one after the other
				begun := time.Now()
				report, err := c.Collect(t.Context(), &run)
				if err != nil || report.Result.RunID != run.ID {
					t.Errorf("Collect: %v", err)
					return
				}
				end := run.Created.Add(time.Second + time.Duration(1+i)*time.Minute)
				if begun.After(end) {
					end = begun
				}
				if late := time.Since(end); late > time.Minute {
					t.Errorf("build %d: noticed %s after its end, or the restart", run.Build, late)
				}
			})
		}
		wg.Wait()
		n := c.Calls()
		t.Logf("%s after the restart, %s later", n, time.Since(restarted))
		if n.Artifacts+n.Downloads+n.Others > 0 {
			t.Errorf("%s: want lists only", n)
		}
	})
}

func TestAdoptOfNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fake) {
		if _, err := f.client().Adopt(t.Context(), "run-1"); !errors.Is(err, ErrNoBuild) {
			t.Errorf("Adopt: got %v, want ErrNoBuild", err)
		}
	})
}

// Whatever killed the first attempt: the second finds its build, or makes it
// once it is sure that there is none.
func TestAttemptedCreate(t *testing.T) {
	t.Parallel()
	for _, made := range []bool{true, false} {
		bubble(t, func(t *testing.T, f *fake) {
			f.onCreate = func(b *fakeBuild) { b.state = "running" }
			attempted := time.Now()
			s := submission()
			s.RunID, s.Attempted = "run-1", attempted
			if made {
				first := s
				first.Attempted = time.Time{}
				if _, err := f.client().Create(t.Context(), first); err != nil {
					t.Fatal(err)
				}
				f.builds[0].hidden = func(url.Values) bool { return time.Since(attempted) < 20*time.Second }
			}
			run, err := f.client().Create(t.Context(), s)
			if err != nil || run.Build != 1 || len(f.builds) != 1 {
				t.Fatalf("Create: got %+v, %v and %d builds, want one", run, err, len(f.builds))
			}
			if took := time.Since(attempted); !made && (took < defaultListingDelay || took > defaultListingDelay+10*time.Second) {
				t.Errorf("made again after %s, want the listing delay to pass first", took)
			}
			late := time.Now()
			s.RunID, s.Attempted = "run-2", late.Add(-time.Hour)
			if _, err := f.client().Create(t.Context(), s); err != nil || time.Since(late) > time.Second {
				t.Errorf("an attempt of an hour ago: %v after %s, want one look", err, time.Since(late))
			}
		})
	}
}

// The same run id given to Submit again finds its build.
func TestSubmitWithARunIDAdopts(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fake) {
		f.onCreate = endsAfter(time.Minute, time.Minute)
		s := submission()
		s.RunID = "mine"
		if _, err := f.client().Create(t.Context(), s); err != nil { // and is killed
			t.Fatal(err)
		}
		r, err := f.client().Submit(t.Context(), s)
		if err != nil || r.RunID != "mine" || len(f.builds) != 1 {
			t.Errorf("Submit: got %v and %d builds, want the one there is", err, len(f.builds))
		}
		// An outage of ten minutes at the first look is waited out, too.
		until := time.Now().Add(10 * time.Minute)
		f.fault = func(w http.ResponseWriter, r *http.Request) bool {
			return time.Now().Before(until) && fail(w, 503, `{"message":"maintenance"}`)
		}
		s.RunID = "yours"
		if r, err = f.client().Submit(t.Context(), s); err != nil || r.RunID != "yours" || len(f.builds) != 2 {
			t.Errorf("Submit after an outage: got %v and %d builds", err, len(f.builds))
		}
		s.RunID = "bad id\n"
		if _, err := f.client().Submit(t.Context(), s); err == nil {
			t.Error("a run id with a line end is taken")
		}
	})
}

// Answers of 503 at every step of the fetch, for longer than any number of
// tries, do not lose a verdict.
func TestTroubleWhileFetchingIsWaitedOut(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"/artifacts?", "/download", "store"} {
		for _, outage := range []time.Duration{20 * time.Second, 25 * time.Minute, 2 * time.Hour} {
			bubble(t, func(t *testing.T, f *fake) {
				f.onCreate = func(b *fakeBuild) { b.finish("passed") }
				until := time.Now().Add(outage)
				f.fault = func(w http.ResponseWriter, r *http.Request) bool {
					return strings.Contains(r.URL.String(), part) && time.Now().Before(until) && fail(w, 503, `{"message":"maintenance"}`)
				}
				f.storeDown = func() bool { return part == "store" && time.Now().Before(until) }
				_, err := f.client().Submit(t.Context(), submission())
				var gave *GaveUpError
				switch {
				case outage < 30*time.Minute && err != nil:
					t.Errorf("%s down for %s: got %v, want the result", part, outage, err)
				case outage > 30*time.Minute && (!errors.As(err, &gave) || gave.Phase != PhaseFetching || !strings.Contains(err.Error(), "503")):
					t.Errorf("%s down for %s: got %v, want to give up fetching and the last answer", part, outage, err)
				}
				if outage > 30*time.Minute && time.Now().After(until) {
					t.Errorf("%s down for %s: waited longer than the 30 minutes it has", part, outage)
				}
			})
		}
	}
}

// A refusal is not believed at once where something is known to be there; in the
// end it is.
func TestRefusalsOfWhatIsThere(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"/builds", "/artifacts?", "/download"} {
		for _, refusals := range []int{2, 1 << 30} {
			bubble(t, func(t *testing.T, f *fake) {
				f.onCreate = endsAfter(time.Second, 3*time.Second)
				n := 0
				f.fault = func(w http.ResponseWriter, r *http.Request) bool {
					if r.Method != http.MethodGet || !strings.Contains(r.URL.String(), part) {
						return false
					}
					n++
					return n <= refusals && fail(w, 404, `{"message":"Not Found"}`)
				}
				start := time.Now()
				_, err := f.client().Submit(t.Context(), submission())
				var api *APIError
				if refusals == 2 && err != nil || refusals > 2 && (!errors.As(err, &api) || api.Status != 404) {
					t.Errorf("%d refusals of %s: got %v", refusals, part, err)
				}
				if took := time.Since(start); took > time.Minute {
					t.Errorf("%d refusals of %s: took %s", refusals, part, took)
				}
			})
		}
	}
}

// A cancellation is repeated too, and said when it fails.
func TestCancelThatFailsIsSaid(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		failures int
		want     string
	}{{2, "it is cancelled"}, {1 << 30, "it may still run: cancelling build 1"}} {
		bubble(t, func(t *testing.T, f *fake) {
			f.onCreate = func(b *fakeBuild) { b.state = "scheduled" }
			n := 0
			f.fault = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPut {
					n++
				}
				return r.Method == http.MethodPut && n <= tt.failures && fail(w, 502, "")
			}
			s := submission()
			s.QueueTimeout = time.Minute
			if _, err := f.client().Submit(t.Context(), s); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%d failures: got %v, want %q", tt.failures, err, tt.want)
			}
		})
	}
}

// Two processes that begin with one run id at the same moment: neither finds a
// build, both make one, and one build is left, which both wait for.
func TestOneRunIDTwiceAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fake) {
		f.onCreate = endsAfter(time.Minute, time.Minute)
		var looked sync.WaitGroup // first looks, which found nothing
		looked.Add(2)
		f.fault = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost {
				looked.Done()
				looked.Wait()
			}
			return false
		}
		s := submission()
		s.RunID = "run-1"
		var over sync.WaitGroup
		builds := make([]int, 2)
		for i := range builds {
			c := f.client()
			over.Go(func() {
				report, err := c.Submit(t.Context(), s)
				if err != nil {
					t.Errorf("Submit: %v", err)
					return
				}
				builds[i] = report.Build
			})
		}
		over.Wait()
		if len(f.builds) != 2 || builds[0] != f.builds[0].number || builds[1] != builds[0] || f.builds[1].state != "canceled" {
			t.Errorf("both took the builds %v of %d, want the first of two", builds, len(f.builds))
		}
	})
}

// What a build says of itself was written by whoever made it.
func TestMetaDataOfStrangers(t *testing.T) {
	t.Parallel()
	b := &Build{MetaData: map[string]any{"run_id": "a\x1b[31m\nb", "gpu": "\x1b]0;evil\a", "queue": "q\n", "mode": "m\tt\u202e"}}
	for what, got := range map[string]string{"run id": b.RunID(), "GPU type": b.word(metaGPU), "queue": b.word(metaQueue), "mode": b.word(metaMode)} {
		if want := map[string]string{"queue": "q", "mode": "m t"}[what]; got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
}

// A try that is repeated hours after the first finds the first one's build.
func TestCreateLooksBackToTheFirstTry(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fake) {
		f.onCreate = func(b *fakeBuild) { b.state = "running" }
		s := submission()
		s.RunID = "run-1"
		first := time.Now()
		if _, err := f.client().Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Hour) // nobody was there; the clock is the bubble's
		f.requests = nil
		s.Attempted, s.Since = time.Now(), first
		run, err := f.client().Create(t.Context(), s)
		if err != nil || run.Build != 1 || len(f.builds) != 1 {
			t.Fatalf("Create: got %+v, %v and %d builds, want the one there is", run, err, len(f.builds))
		}
		from := "created_from=" + url.QueryEscape(first.Add(-lookupMargin).UTC().Format(time.RFC3339))
		if len(f.requests) == 0 || !strings.Contains(f.requests[0], from) {
			t.Errorf("it asked %q, want %s", f.requests, from)
		}
	})
}
