package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-mode/kbgen/store"
)

// One read serves all that ask for a log; a running one is read again after a while, one
// that is over is not.
func TestLogsAreCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logs
		var reads atomic.Int32
		get := func(run store.PlannedRun, want string, n int32) {
			t.Helper()
			got, err := l.get(t.Context(), run, func(context.Context, store.PlannedRun) (string, error) {
				time.Sleep(time.Millisecond)
				return fmt.Sprint("read ", reads.Add(1)), nil
			})
			if err != nil || got != want || reads.Load() != n {
				t.Errorf("got %q, %v after %d reads, want %q after %d", got, err, reads.Load(), want, n)
			}
		}
		running := store.PlannedRun{RunID: "a", State: store.StateRunning, Changed: time.Now()}
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() { get(running, "read 1", 1) })
		}
		all.Wait()
		time.Sleep(freshLog)
		get(running, "read 2", 2)
		done := store.PlannedRun{RunID: "a", State: store.StateFinished, Changed: time.Now()}
		time.Sleep(freshLog)
		get(done, "read 3", 3) // its end may be missing
		time.Sleep(2 * settled)
		get(done, "read 4", 4)
		time.Sleep(24 * time.Hour)
		get(done, "read 4", 4)
	})
}

func TestLogsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logs
		run := store.PlannedRun{State: store.StateFinished}
		large := strings.Repeat("x", maxLogBytes/4+1)
		for i := range 2 * maxLogs {
			run.RunID = fmt.Sprint(i)
			size := 1
			if i%2 == 1 {
				size = len(large)
			}
			if _, err := l.get(t.Context(), run, func(context.Context, store.PlannedRun) (string, error) { return large[:size], nil }); err != nil {
				t.Fatal(err)
			}
			if l.bytes > maxLogBytes || l.recent.Len() > maxLogs || len(l.byRun) != l.recent.Len() {
				t.Fatalf("%d bytes of %d logs are cached", l.bytes, l.recent.Len())
			}
			time.Sleep(logInterval)
		}
	})
}

// So many logs are read that evaluations have most of Buildkite's requests. Errors are
// cached, too.
func TestLogsHaveARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logs
		reads := 0
		ask := func(id string) error {
			_, err := l.get(t.Context(), store.PlannedRun{RunID: id}, func(context.Context, store.PlannedRun) (string, error) {
				reads++
				return "", store.ErrNotFound
			})
			return err
		}
		for range 10 {
			if err := ask("same"); !errors.Is(err, store.ErrNotFound) {
				t.Fatal(err)
			}
		}
		if reads != 1 {
			t.Errorf("an error was read %d times", reads)
		}
		var refused *store.Refusal
		for i := range 2 * logBurst {
			err := ask(fmt.Sprint(i))
			if refusal := errors.As(err, &refused); refusal != (i >= logBurst-1) {
				t.Errorf("log %d: %v", i, err)
			}
		}
		if refused == nil || refused.RetryAfter < time.Second {
			t.Fatalf("refused with %+v", refused)
		}
		time.Sleep(refused.RetryAfter)
		if err := ask("later"); errors.As(err, &refused) {
			t.Errorf("after the time that it said: %v", err)
		}
	})
}
