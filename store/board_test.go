package store

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

func TestSaveBoards(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		b := testBoard("sort")
		saved := func(opts SaveOptions, boards ...Board) string {
			t.Helper()
			changes, err := s.SaveBoards(ctx, boards, opts)
			if err != nil {
				t.Fatal(err)
			}
			return changes[0].What + " " + strings.Join(changes[0].Parts, ",")
		}
		if got := saved(SaveOptions{DryRun: true}, b); got != "created " || count(t, s, "lb.leaderboard") != 0 {
			t.Errorf("a dry run says %q and leaves %d boards", got, count(t, s, "lb.leaderboard"))
		}
		for _, want := range []string{"created ", "unchanged "} {
			if got := saved(SaveOptions{}, b); got != want {
				t.Errorf("SaveBoards says %q, want %q", got, want)
			}
		}
		var kept string
		if err := s.row(ctx, s.read, `SELECT CAST(task AS text) FROM lb.leaderboard`).Scan(&kept); err != nil {
			t.Fatal(err)
		}
		var task map[string]any
		if err := json.Unmarshal([]byte(kept), &task); err != nil {
			t.Fatal(err)
		}
		keys := []string{"lang", "files", "config", "libraries", "tests", "test_timeout", "benchmarks", "benchmark_timeout", "ranked_timeout", "ranking_by", "seed", "multi_gpu"}
		for _, k := range keys {
			if _, ok := task[k]; !ok {
				t.Errorf("the task lacks %s", k)
			}
		}
		if len(task) != len(keys) || task["test_timeout"] != 180.0 || task["seed"] != nil || task["files"].(map[string]any)["submission.py"] != "@SUBMISSION@" {
			t.Errorf("the task is kept as %s", kept)
		}
		if _, err := s.SaveBoards(ctx, []Board{b}, SaveOptions{New: true}); err == nil {
			t.Error("a board that exists can be made")
		}
		if _, err := s.Accept(ctx, submission("sort", "H100", "7")); err != nil {
			t.Fatal(err)
		}
		evaluate(t, s, func(PlannedRun) *schema.Result { return selfChecked(result(true, 9)) })
		b.Deadline = b.Deadline.Add(time.Hour)
		b.Task.Tests = nil
		if got := saved(SaveOptions{}, b); got != "changed tests,deadline" {
			t.Errorf("SaveBoards says %q", got)
		}
		b.Task.Files[1].Text = "print(2)\n"
		if _, err := s.SaveBoards(ctx, []Board{testBoard("new"), b}, SaveOptions{}); err == nil || !strings.Contains(err.Error(), "files would change") {
			t.Errorf("a changed harness: %v", err)
		}
		if n := count(t, s, "lb.leaderboard"); n != 1 {
			t.Errorf("%d boards after a refusal, want 1", n)
		}
		b.Policy = &Policy{Harness: schema.HarnessIsolated}
		if got := saved(SaveOptions{Force: true}, b); got != "changed files,policy" {
			t.Errorf("SaveBoards says %q", got)
		}
		if page, _, err := s.Page(ctx, "sort", "H100", 0, 0); err != nil || len(page) != 0 {
			t.Errorf("a stricter policy leaves %v, %v", page, err)
		}
		b.Policy = &Policy{}
		saved(SaveOptions{}, b)
		if page, _, err := s.Page(ctx, "sort", "H100", 0, 0); err != nil || len(page) != 1 {
			t.Errorf("without the policy: %v, %v", page, err)
		}
		if faults, err := s.Check(ctx); err != nil || len(faults) > 0 {
			t.Errorf("Check says %q, %v", faults, err)
		}

		boards, err := s.Boards(ctx)
		if err != nil || len(boards) != 1 || !slices.Equal(boards[0].GPUs, []string{"B200", "H100"}) || boards[0].Submissions != 1 || boards[0].Ranked != 1 || boards[0].Visibility != Public {
			t.Errorf("Boards = %+v, %v", boards, err)
		}
		now := time.Now().Truncate(time.Second).UTC()
		if err := s.CloseBoard(ctx, "sort", now); err != nil {
			t.Fatal(err)
		}
		if err := s.CloseBoard(ctx, "sort", now.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if boards, err = s.Boards(ctx); err != nil || !boards[0].Deadline.Equal(now) {
			t.Errorf("the deadline is %v, want %v (%v)", boards[0].Deadline, now, err)
		}
		if _, err := s.DeleteBoard(ctx, "sort", false); err == nil || !strings.Contains(err.Error(), "it has submissions: 1") {
			t.Errorf("DeleteBoard: %v", err)
		}
		if n, err := s.DeleteBoard(ctx, "sort", true); err != nil || n != 1 {
			t.Errorf("DeleteBoard = %d, %v", n, err)
		}
		for _, table := range []string{"lb.leaderboard", "lb.gpu_type", "lb.templates", "lb.submission", "lb.runs", "own.board", "own.standing", "own.verdict", "own.planned_run"} {
			if n := count(t, s, table); n != 0 {
				t.Errorf("%d rows in %s", n, table)
			}
		}
		if _, err := s.DeleteBoard(ctx, "sort", true); !errors.Is(err, ErrNotFound) {
			t.Errorf("a second DeleteBoard: %v", err)
		}
	})
}

func TestBoardsThatAreRefused(t *testing.T) {
	for _, edit := range []func(*Board){
		func(b *Board) { b.Name = "Sort" }, func(b *Board) { b.Name = "a/b" }, func(b *Board) { b.Name = "" },
		func(b *Board) { b.Deadline = time.Time{} }, func(b *Board) { b.GPUs = nil }, func(b *Board) { b.GPUs = []string{"A", "A"} },
		func(b *Board) { b.GPUs = []string{"A/B"} }, func(b *Board) { b.Visibility = "secret" }, func(b *Board) { b.Task = nil },
		func(b *Board) { b.Description = "\x00" }, func(b *Board) { b.Policy = &Policy{Harness: "legacy"} }, func(b *Board) { b.Policy = &Policy{Sandbox: "x"} },
		func(b *Board) { b.Limits = []Limit{{Category: "profile", PerHour: 1}} }, func(b *Board) { b.Limits = []Limit{{Category: "test", PerHour: -1}} },
		func(b *Board) { b.Limits = []Limit{{Category: "test", GPU: "T4", PerHour: 1}} },
	} {
		b := testBoard("sort")
		edit(&b)
		if err := b.check(); err == nil {
			t.Errorf("%+v is taken", b)
		}
	}
}
