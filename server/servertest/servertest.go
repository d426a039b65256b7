// Package servertest is what tests of the server's packages share: stores with
// boards, results, and a queue that evaluates nothing by itself.
package servertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/pgtest"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/database"
)

// Stores are the kinds of store, for a test that runs on each.
var Stores = map[string]func(testing.TB) *store.Store{"SQLite": SQLite, "PostgreSQL": Postgres}

// SQLite opens an empty store.
func SQLite(t testing.TB) *store.Store {
	t.Helper()
	return open(t, server.SQLite(t, migrate))
}

func migrate(url string) error {
	_, _, err := database.Migrate(context.Background(), url)
	return err
}

var server pgtest.Shared

// Postgres opens an empty store, and skips the test where there is no PostgreSQL.
// The package's TestMain calls [Main].
func Postgres(t testing.TB) *store.Store {
	t.Helper()
	return open(t, server.Clone(t, migrate))
}

// Main runs a package's tests, and ends what they share: a TestMain is no more.
func Main(m *testing.M) {
	status := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

func open(t testing.TB, url string) *store.Store {
	t.Helper()
	s, err := store.Open(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Board is a public board on H100 and B200 whose deadline is tomorrow.
func Board(name string) store.Board {
	return store.Board{Name: name, Deadline: time.Now().Add(24 * time.Hour), Description: "a board", GPUs: []string{"H100", "B200"}, Task: &task.Task{
		Lang: schema.LangPython, Config: task.Config{Main: "eval.py"}, RankingBy: schema.RankGeom, Description: "sort",
		Files:      []task.File{{Name: "submission.py", Submission: true}, {Name: "eval.py", Text: "print(1)\n"}},
		Tests:      []schema.Case{{{Name: "n", Value: schema.IntValue(3)}}},
		Benchmarks: []schema.Case{{{Name: "n", Value: schema.IntValue(9)}}},
		Templates:  []task.Template{{Language: "Python", Text: "pass\n"}},
	}}
}

// Save creates or changes boards.
func Save(t testing.TB, s *store.Store, boards ...store.Board) {
	t.Helper()
	if _, err := s.SaveBoards(context.Background(), boards, store.SaveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
}

// Result is what kbrun says of an evaluation in a mode: with mean nanoseconds of
// its one benchmark when it passed.
func Result(mode string, passed bool, mean float64) *schema.Result {
	run := func(name string) schema.Run {
		r := &schema.RunResult{Success: true, Passed: passed, Command: "python3 eval.py", Stdout: "printed by the submission\n", Duration: 0.5}
		check := map[bool]string{true: "pass", false: "fail"}[passed]
		if name == schema.ModeTest {
			r.Result = schema.Report{{Key: "test-count", Value: "1"}, {Key: "test.0.spec", Value: "n: 3"}, {Key: "test.0.status", Value: check}, {Key: "check", Value: check}}
		} else {
			r.Result = schema.Report{{Key: "benchmark-count", Value: "1"}, {Key: "benchmark.0.spec", Value: "n: 9"}, {Key: "benchmark.0.mean", Value: schema.FloatRepr(mean)}, {Key: "check", Value: check}}
		}
		now := time.Now()
		return schema.Run{Name: name, EvalResult: schema.EvalResult{Start: now.Add(-time.Second), End: now, Run: r}}
	}
	r := &schema.Result{Success: true, System: schema.SystemInfo{GPU: "NVIDIA H100", DeviceCount: 1}}
	r.Harness = &schema.HarnessReport{Name: schema.HarnessIsolated}
	r.Outcome = schema.NewOutcome(schema.OutcomePassed, "")
	r.Runs = schema.Runs{run(schema.ModeTest)}
	if passed && mode != schema.ModeTest {
		r.Runs = append(r.Runs, run(schema.ModeBenchmark))
	}
	if passed && mode == schema.ModeLeaderboard {
		r.Runs = append(r.Runs, run(schema.ModeLeaderboard))
	}
	return r
}

// Evaluate takes every planned run there is and records what of says about it; nil
// is a run that passed in 1000 ns. What somebody cancels or deletes meanwhile it
// leaves alone.
func Evaluate(t testing.TB, s *store.Store, of func(store.PlannedRun) *schema.Result) {
	t.Helper()
	if of == nil {
		of = func(p store.PlannedRun) *schema.Result { return Result(p.Mode, true, 1000) }
	}
	ctx := context.Background()
	for {
		claimed, err := s.Claim(ctx, "test", 10, nil, time.Minute)
		if err != nil {
			t.Error(err)
			return
		}
		if len(claimed) == 0 {
			return
		}
		for _, p := range claimed {
			r := of(p)
			r.RunID = p.RunID
			raw, err := r.Encode()
			if err == nil {
				err = s.Creating(ctx, p)
			}
			if err == nil {
				err = s.Built(ctx, p, 7, "build")
			}
			if err == nil {
				err = s.Record(ctx, p, r, raw)
			}
			if err != nil && !errors.Is(err, store.ErrLeaseLost) && !errors.Is(err, store.ErrNotFound) {
				t.Error(err)
				return
			}
		}
	}
}

// A Queue runs nothing and remembers what it was asked to do.
type Queue struct {
	mu      sync.Mutex
	Woken   int
	Dropped []store.PlannedRun
	Lines   []backend.GPUStatus
	Waits   map[int64]backend.Wait
	OnWake  func() // nil: nothing
}

var _ backend.Queue = (*Queue)(nil)

func (q *Queue) Wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.Woken++
	if q.OnWake != nil {
		q.OnWake()
	}
}

func (q *Queue) Drop(runs []store.PlannedRun) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.Dropped = append(q.Dropped, runs...)
}

func (q *Queue) Status(context.Context) ([]backend.GPUStatus, error) { return q.Lines, nil }

func (q *Queue) Wait(_ context.Context, id int64) (backend.Wait, bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w, found := q.Waits[id]
	return w, found, nil
}

func (q *Queue) Log(_ context.Context, run store.PlannedRun) (string, error) {
	return fmt.Sprintf("log of build %d\n", run.BuildNumber), nil
}
