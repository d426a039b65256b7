package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/pgtest"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/store/database"
)

// server is the PostgreSQL of this package's tests.
var server pgtest.Shared

func TestMain(m *testing.M) {
	status := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

func sqliteURL(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "kb.db") }

func postgresURL(t testing.TB) string { t.Helper(); return server.URL(t) }

// both runs a test on each kind of store, which is migrated and empty.
func both(t *testing.T, test func(t *testing.T, s *Store)) {
	for _, kind := range []struct {
		name string
		url  func(testing.TB) string
	}{{"SQLite", migratedSQLite}, {"PostgreSQL", migratedPostgres}} {
		t.Run(kind.name, func(t *testing.T) { test(t, opened(t, kind.url(t))) })
	}
}

// bothShared is both with two instances on one database.
func bothShared(t *testing.T, test func(t *testing.T, s, other *Store)) {
	for _, kind := range []struct {
		name string
		url  func(testing.TB) string
	}{{"SQLite", migratedSQLite}, {"PostgreSQL", migratedPostgres}} {
		t.Run(kind.name, func(t *testing.T) {
			url := kind.url(t)
			s := opened(t, url)
			other, err := Open(context.Background(), url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { other.Close() })
			test(t, s, other)
		})
	}
}

func migrated(t testing.TB, url string) *Store {
	t.Helper()
	if err := migrate(url); err != nil {
		t.Fatal(err)
	}
	return opened(t, url)
}

func migrate(url string) error {
	_, _, err := database.Migrate(context.Background(), url)
	return err
}

func migratedSQLite(t testing.TB) string { t.Helper(); return server.SQLite(t, migrate) }

func migratedPostgres(t testing.TB) string { t.Helper(); return server.Clone(t, migrate) }

func opened(t testing.TB, url string) *Store {
	t.Helper()
	s, err := Open(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func testTask() *task.Task {
	return &task.Task{
		Lang: schema.LangPython, Config: task.Config{Main: "eval.py"}, RankingBy: schema.RankGeom, Description: "sort",
		Files:      []task.File{{Name: "submission.py", Submission: true}, {Name: "eval.py", Text: "print(1)\n"}},
		Tests:      []schema.Case{{{Name: "n", Value: schema.IntValue(3)}}},
		Benchmarks: []schema.Case{{{Name: "n", Value: schema.IntValue(9)}}},
		Templates:  []task.Template{{Language: "Python", Text: "pass\n"}},
	}
}

func testBoard(name string) Board {
	return Board{Name: name, Deadline: time.Now().Add(24 * time.Hour), Description: "a board", GPUs: []string{"H100", "B200"}, Task: testTask()}
}

func save(t testing.TB, s *Store, boards ...Board) {
	t.Helper()
	if _, err := s.SaveBoards(context.Background(), boards, SaveOptions{}); err != nil {
		t.Fatal(err)
	}
}

func submission(board, gpu, user string) Submission {
	return Submission{Board: board, GPU: gpu, Mode: schema.ModeLeaderboard, UserID: user, UserName: "user " + user, FileName: "submission.py",
		Code: []byte("def custom_kernel(x): return x # " + user), Time: time.Now()}
}

// result is what kbrun says of a ranked evaluation; ns is the mean of its one
// benchmark.
func result(passed bool, ns float64) *schema.Result {
	run := func(name string) schema.Run {
		r := &schema.RunResult{Success: true, Passed: passed, Command: "python3 eval.py", Duration: 0.5}
		r.Result = schema.Report{{Key: "benchmark-count", Value: "1"}, {Key: "benchmark.0.mean", Value: schema.FloatRepr(ns)}, {Key: "check", Value: map[bool]string{true: "pass", false: "fail"}[passed]}}
		now := time.Now()
		return schema.Run{Name: name, EvalResult: schema.EvalResult{Start: now.Add(-time.Second), End: now, Run: r}}
	}
	r := &schema.Result{Success: true, System: schema.SystemInfo{GPU: "NVIDIA H100", DeviceCount: 1}}
	r.Harness = &schema.HarnessReport{Name: schema.HarnessIsolated}
	r.Runs = schema.Runs{run(schema.ModeTest)}
	if passed {
		r.Runs = append(r.Runs, run(schema.ModeBenchmark), run(schema.ModeLeaderboard))
	}
	return r
}

func selfChecked(r *schema.Result) *schema.Result {
	r.Harness, r.SelfChecked = &schema.HarnessReport{Name: schema.HarnessLegacy}, true
	return r
}

// evaluate claims every planned run there is and records results.
func evaluate(t testing.TB, s *Store, of func(PlannedRun) *schema.Result) {
	t.Helper()
	ctx := context.Background()
	for {
		claimed, err := s.Claim(ctx, "test", 10, nil, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if len(claimed) == 0 {
			return
		}
		for _, p := range claimed {
			if err := s.Creating(ctx, p); err != nil {
				t.Fatal(err)
			}
			if err := s.Built(ctx, p, 7, "build"); err != nil {
				t.Fatal(err)
			}
			if err := s.Record(ctx, p, of(p), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// verify adds runs to a submission that has finished, as a late evaluation does.
func (s *Store) verify(ctx context.Context, submission int64, gpu string, secret bool, r *schema.Result) error {
	return s.change(ctx, "adding runs to a submission", func(t *tx) {
		t.lockOwner(submission)
		t.insertRuns(submission, gpu, secret, r)
		t.judge(submission)
	})
}
