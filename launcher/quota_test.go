package launcher

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-mode/kbgen/launcher/pace"
)

// headers are those of an answer.
func headers(limit, remaining, reset int) http.Header {
	h := http.Header{}
	for name, v := range map[string]int{"Ratelimit-Limit": limit, "Ratelimit-Remaining": remaining, "Ratelimit-Reset": reset} {
		h.Set(name, strconv.Itoa(v))
	}
	return h
}

// Whatever the windows of the server, none holds more than its limit; and what
// may be spent is spent evenly.
func TestQuotaSpendsEvenly(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{pace.DefaultLimit, 50, 4000} {
		synctest.Test(t, func(t *testing.T) {
			q := newQuota(time.Now)
			if limit != pace.DefaultLimit {
				q.bucket.Spend(q.now())
				q.answered(headers(limit, limit-1, 60))
			}
			start := time.Now()
			var at []time.Duration
			for time.Since(start) < 5*time.Minute {
				if err := q.admit(t.Context(), useCreate); err != nil {
					t.Fatal(err)
				}
				at = append(at, time.Since(start))
				q.answered(nil)
			}
			most, least := 0, limit
			for i, from := range at {
				if from > 4*time.Minute {
					break
				}
				n, _ := slices.BinarySearch(at[i:], from+time.Minute)
				most, least = max(most, n), min(least, n)
			}
			if most > limit || least < limit*2/3 {
				t.Errorf("limit %d: got %d to %d requests in a minute, want up to the limit and at least two thirds of it", limit, least, most)
			}
			for i := limit / 2; i+1 < len(at); i++ {
				if gap := at[i+1] - at[i]; gap > 2*pace.Window/time.Duration(limit) {
					t.Errorf("limit %d: a gap of %s, want requests spread over the minute", limit, gap)
					break
				}
			}
		})
	}
}

// A lone submission never waits.
func TestFewRequestsDoNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(time.Now)
		start := time.Now()
		for range 5 {
			if err := q.admit(t.Context(), usePoll); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("five requests waited %s", waited)
		}
	})
}

func TestCreatesGoBeforeFetchesBeforePolls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(time.Now)
		for q.bucket.Wait(time.Now()) == 0 {
			q.bucket.Spend(time.Now())
		}
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		for i, u := range []use{usePoll, useDownload, useCreate, usePoll, useCreate, useArtifacts, useCreate} {
			wg.Go(func() {
				if q.admit(t.Context(), u) == nil {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, strconv.Itoa(i))
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if want := []string{"2", "4", "6", "5", "1", "0", "3"}; !slices.Equal(order, want) {
			t.Errorf("order of admission: got %v, want %v", order, want)
		}
	})
}

// A flood of creates leaves polls a share, or nobody would see what it made.
func TestPollsAreNotStarved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(time.Now)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2000 {
			wg.Go(func() { _ = q.admit(ctx, useCreate) }) // ends with ctx
		}
		synctest.Wait()
		start := time.Now()
		for range 10 {
			if err := q.admit(t.Context(), usePoll); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("ten polls took %s beside 2000 creates, want less than a minute", took)
		}
		stop()
		wg.Wait()
		if len(q.waiting) != 0 {
			t.Errorf("%d requests wait on after their context ended", len(q.waiting))
		}
	})
}

// Processes that know nothing of each other keep to one limit by its headers.
func TestProcessesShareALimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit, processes = 200, 4
		var mu sync.Mutex
		count, rejected := 0, 0
		var perMinute []int
		window := time.Now()
		send := func(q *quota) {
			mu.Lock()
			defer mu.Unlock()
			for time.Since(window) >= time.Minute {
				perMinute = append(perMinute, count)
				window, count = window.Add(time.Minute), 0
			}
			if count++; count > limit {
				rejected++
			}
			q.answered(headers(limit, limit-count, int((time.Minute - time.Since(window) + time.Second - 1).Seconds())))
		}
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		defer stop()
		sent := make([]int, processes)
		var wg sync.WaitGroup
		for i := range processes {
			q := newQuota(time.Now)
			wg.Go(func() {
				for q.admit(ctx, useCreate) == nil {
					send(q)
					sent[i]++
				}
			})
		}
		wg.Wait()
		t.Logf("sent %v, per minute %v, rejected %d", sent, perMinute, rejected)
		if rejected > 0 {
			t.Errorf("%d requests of %v were over the limit", rejected, sent)
		}
		for _, n := range perMinute[1:] {
			if n < limit*8/10 {
				t.Errorf("%d requests in a minute, want at least 80 %% of %d", n, limit)
			}
		}
		if slices.Min(sent) < slices.Max(sent)/4 {
			t.Errorf("sent %v, want a share for each", sent)
		}
	})
}

func TestNothingIsSentWhenOthersUsedAllUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(time.Now)
		q.bucket.Spend(q.now())
		q.answered(headers(200, 0, 20))
		start := time.Now()
		if err := q.admit(t.Context(), useCreate); err != nil || time.Since(start) != 20*time.Second {
			t.Errorf("admitted after %s, %v, want 20 s", time.Since(start), err)
		}
	})
}

func TestCancellingDoesNotWaitForTheQuota(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.builds = []*fakeBuild{{number: 1, state: "running"}}
	c := f.client()
	for c.quota.bucket.Wait(time.Now()) == 0 {
		c.quota.bucket.Spend(time.Now())
	}
	c.pause = func(context.Context, time.Duration) error { return errors.New("waited") }
	if err := c.Cancel(t.Context(), 1); err != nil || f.builds[0].state != "canceled" {
		t.Errorf("Cancel with the quota used up: got %v, build %s", err, f.builds[0].state)
	}
}
