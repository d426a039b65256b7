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
	"github.com/gpu-mode/kbgen/store/ranking"
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
			return changes[0].What + " " + fields(changes[0], ",")
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
		if err := s.db.Row(ctx, s.db.Read, `SELECT CAST(task AS text) FROM lb.leaderboard`).Scan(&kept); err != nil {
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
		b.Policy = &ranking.Policy{Harness: schema.HarnessIsolated}
		if got := saved(SaveOptions{Force: true}, b); got != "changed files,harness" {
			t.Errorf("SaveBoards says %q", got)
		}
		if page, _, err := s.Page(ctx, "sort", "H100", 0, 0); err != nil || len(page) != 0 {
			t.Errorf("a stricter policy leaves %v, %v", page, err)
		}
		b.Policy = &ranking.Policy{}
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
		if _, err := s.SetBoard(ctx, "sort", func(b *Board) error { b.Deadline = now; return nil }, SetOptions{}); err != nil {
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

func fields(c Change, separator string) string {
	var names []string
	for _, e := range c.Parts {
		names = append(names, e.Field)
	}
	return strings.Join(names, separator)
}

// SaveBoards keeps what a competition file does not mention, such as who sees a board.
func TestSavedBoardStaysClosed(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		b := testBoard("sort")
		b.Visibility = Closed
		save(t, s, b)
		b.Visibility, b.Deadline = "", b.Deadline.Add(time.Hour)
		changes, err := s.SaveBoards(ctx, []Board{b}, SaveOptions{By: Author{"command line", "one hour more"}})
		if err != nil || fields(changes[0], " ") != "deadline" {
			t.Errorf("SaveBoards = %v, %v, want a new deadline alone", changes, err)
		}
		if got, err := s.Board(ctx, "sort"); err != nil || got.Visibility != Closed || !got.Deadline.Equal(b.Deadline.Truncate(time.Microsecond)) {
			t.Errorf("the board is %+v, %v, want it closed, with the new deadline", got, err)
		}
		if _, err := s.SaveBoards(ctx, []Board{{Name: "new", Deadline: b.Deadline, GPUs: b.GPUs}}, SaveOptions{}); err == nil || !strings.Contains(err.Error(), "task: want one") {
			t.Errorf("a new board without a task: %v", err)
		}
	})
}

func TestSetBoard(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		b := testBoard("sort")
		b.Task.Harness = schema.HarnessIsolated
		save(t, s, b)
		late := submission("sort", "H100", "7")
		late.AnyTime, late.Time = true, b.Deadline.Add(30*time.Minute)
		for _, in := range []Submission{late, submission("sort", "H100", "8")} {
			if _, err := s.Accept(ctx, in); err != nil {
				t.Fatal(err)
			}
		}
		evaluate(t, s, func(PlannedRun) *schema.Result { return result(true, 9) })
		ranked := func() int {
			page, _, err := s.Page(ctx, "sort", "H100", 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			return len(page)
		}
		set := func(opts SetOptions, edit func(b *Board)) string {
			t.Helper()
			c, err := s.SetBoard(ctx, "sort", func(b *Board) error { edit(b); return nil }, opts)
			if err != nil {
				t.Fatal(err)
			}
			return fields(c, " ")
		}
		later := func(b *Board) { b.Deadline = b.Deadline.Add(time.Hour) }
		if got := set(SetOptions{}, later); got != "deadline" || ranked() != 1 {
			t.Errorf("a later deadline changes %q, and %d rank, want the late one left out", got, ranked())
		}
		if got := set(SetOptions{JudgeLate: true, By: Author{"boss", "the queue was long"}}, later); got != "deadline late" || ranked() != 2 {
			t.Errorf("a later deadline for what is there changes %q, and %d rank, want 2", got, ranked())
		}
		earlier := func(b *Board) { b.Deadline = time.Now().Add(-24 * time.Hour) }
		if got := set(SetOptions{JudgeLate: true}, earlier); got != "deadline late" || ranked() != 0 {
			t.Errorf("an earlier deadline for what is there changes %q, and %d rank, want none", got, ranked())
		}
		if got := set(SetOptions{}, func(b *Board) {
			b.Visibility, b.ShowCode, b.Reuse, b.GPUs, b.Policy.Ties, b.Limits = Closed, CodeNever, true, []string{"H100"}, true, []Limit{{Category: schema.ModeTest, PerHour: 3}}
		}); got != "visibility gpus limits ties show_code reuse" {
			t.Errorf("SetBoard changes %q", got)
		}
		if got := set(SetOptions{}, func(*Board) {}); got != "" {
			t.Errorf("SetBoard without a change changes %q", got)
		}
		if got, err := s.Board(ctx, "sort"); err != nil || got.Visibility != Closed || !got.Reuse || !got.Policy.Ties || len(got.GPUs) != 1 || got.Task.Harness != schema.HarnessIsolated || len(got.Task.Templates) != 1 || got.Description != "a board" {
			t.Errorf("the board is %+v, %v", got, err)
		}
		history, err := s.BoardChanges(ctx, "sort")
		if err != nil || len(history) != 11 || history[0].String() != "reuse: false → true" || history[8].Author != (Author{"boss", "the queue was long"}) || history[8].Field != "late" {
			t.Errorf("BoardChanges = %+v, %v", history, err)
		}
		_, err = s.SetBoard(ctx, "sort", func(b *Board) error { b.GPUs, b.Visibility = nil, "secret"; return nil }, SetOptions{})
		refusal(t, err, Invalid, "GPU types: got none")
		if _, err := s.SetBoard(ctx, "none", func(*Board) error { return nil }, SetOptions{}); !errors.Is(err, ErrNotFound) {
			t.Errorf("SetBoard of no board: %v", err)
		}
		if after, err := s.BoardChanges(ctx, "sort"); err != nil || len(after) != len(history) {
			t.Errorf("a refused change is recorded: %+v, %v", after, err)
		}
		if faults, err := s.Check(ctx); err != nil || len(faults) > 0 {
			t.Errorf("Check says %q, %v", faults, err)
		}
	})
}

func TestBoardsThatAreRefused(t *testing.T) {
	for _, edit := range []func(*Board){
		func(b *Board) { b.Name = "Sort" }, func(b *Board) { b.Name = "a/b" }, func(b *Board) { b.Name = "" },
		func(b *Board) { b.Deadline = time.Time{} }, func(b *Board) { b.GPUs = nil }, func(b *Board) { b.GPUs = []string{"A", "A"} },
		func(b *Board) { b.GPUs = []string{"A/B"} }, func(b *Board) { b.Visibility = "secret" },
		func(b *Board) { b.Description = "\x00" }, func(b *Board) { b.Policy = &ranking.Policy{Harness: "legacy"} }, func(b *Board) { b.Policy = &ranking.Policy{Sandbox: "x"} },
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

func TestABoardIsReadAsItWasSaved(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		b := testBoard("sort")
		b.Visibility, b.ShowCode, b.Reuse = Closed, CodeNever, true
		b.Task.Harness, b.Task.MultiGPU = schema.HarnessIsolated, true
		b.Policy = &ranking.Policy{Harness: schema.HarnessIsolated, Ties: true}
		b.Limits = []Limit{{Category: schema.ModeTest, PerHour: 3}, {GPU: "B200", Category: schema.ModeLeaderboard, PerHour: 1}}
		save(t, s, b)
		read := func() *Board {
			t.Helper()
			got, err := s.Board(ctx, "sort")
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		got := read()
		if got.ID == 0 || got.Visibility != Closed || got.Description != "a board" || got.ShowCode != CodeNever || !got.Reuse || !slices.Equal(got.GPUs, []string{"B200", "H100"}) || !slices.Equal(got.Limits, b.Limits) || *got.Policy != *b.Policy {
			t.Errorf("Board = %+v, limits %v, policy %+v", got, got.Limits, got.Policy)
		}
		if x := got.Task; x.Harness != schema.HarnessIsolated || !x.MultiGPU || len(x.Files) != 2 || len(x.Templates) != 1 || x.Templates[0] != b.Task.Templates[0] || x.Description != "a board" {
			t.Errorf("its task is %+v", x)
		}
		b.ShowCode, b.Reuse, b.Policy, b.Limits = "", false, nil, nil // leave what is there
		if changes, err := s.SaveBoards(ctx, []Board{b}, SaveOptions{}); err != nil || changes[0].What != "unchanged" {
			t.Errorf("SaveBoards = %+v, %v; want it unchanged", changes, err)
		}
		if got := read(); got.ShowCode != CodeNever || !got.Reuse || !got.Policy.Ties || len(got.Limits) != 2 {
			t.Errorf("after saving it without settings, Board = %+v", got)
		}
		b.Task.Inputs, b.Task.Evidence = schema.InputsCold, schema.MinEvidence{Runs: 20, Width: 0.1}
		if changes, err := s.SaveBoards(ctx, []Board{b}, SaveOptions{}); err != nil || fields(changes[0], " ") != "task_extension" {
			t.Errorf("SaveBoards = %+v, %v", changes, err)
		}
		if got := read(); got.Task.Extension != b.Task.Extension {
			t.Errorf("its task asks for %+v, want %+v", got.Task.Extension, b.Task.Extension)
		}
		b.Task.Extension = schema.Extension{Harness: b.Task.Harness}
		b.ShowCode, b.Task.Harness, b.Limits, b.Policy = CodeAfter, "", []Limit{}, &ranking.Policy{Harness: schema.HarnessIsolated, Ties: true}
		changes, err := s.SaveBoards(ctx, []Board{b}, SaveOptions{})
		if err != nil || fields(changes[0], " ") != "limits show_code reuse task_extension" {
			t.Errorf("SaveBoards = %+v, %v", changes, err)
		}
		if got := read(); got.ShowCode != CodeAfter || got.Reuse || got.Task.Harness != "" || len(got.Limits) != 0 || !got.Policy.Ties {
			t.Errorf("after changing its settings, Board = %+v", got)
		}
		if _, err := s.Board(ctx, "none"); !errors.Is(err, ErrNotFound) {
			t.Errorf("Board(none): %v, want ErrNotFound", err)
		}
		save(t, s, testBoard("plain"))
		list, err := s.Boards(ctx)
		if err != nil || len(list) != 2 || list[0].Name != "plain" || list[0].ShowCode != CodeAfter || list[0].Reuse || *list[0].Policy != (ranking.Policy{}) || !list[1].Policy.Ties {
			t.Errorf("Boards = %+v, %v", list, err)
		}
	})
}

// Each change of a board is told to those who watch it, and none that was undone.
func TestBoardsAreWatched(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		b := testBoard("sort")
		expect := func(what string, do func() error, want ...Signal) {
			t.Helper()
			got := signalled(t, s, do)
			for _, w := range want {
				if !slices.Contains(got, w) {
					t.Errorf("%s: the signals are %v, want %v", what, got, w)
				}
			}
			if len(want) == 0 && len(got) > 0 {
				t.Errorf("%s: the signals are %v, want none", what, got)
			}
		}
		board := Signal{Kind: SignalBoard, ID: "sort"}
		saving := func(opts SaveOptions) func() error {
			return func() error {
				_, err := s.SaveBoards(ctx, []Board{b}, opts)
				return err
			}
		}
		expect("a dry run", saving(SaveOptions{DryRun: true}))
		expect("a new board", saving(SaveOptions{}), board)
		expect("the same again", saving(SaveOptions{}))
		expect("its end", func() error {
			_, err := s.SetBoard(ctx, "sort", func(b *Board) error { b.Deadline = time.Now().Add(time.Hour); return nil }, SetOptions{})
			return err
		}, board)
		for range 2 {
			if _, err := s.Accept(ctx, submission("sort", "H100", "7")); err != nil {
				t.Fatal(err)
			}
		}
		expect("a result", func() error {
			evaluate(t, s, func(PlannedRun) *schema.Result { return result(true, 9) })
			return nil
		}, board)
		expect("a mark", func() error { return s.MarkHacked(ctx, 1, "it slept") }, board, submissionSignal(1))
		expect("a new name", func() error {
			_, err := s.LogIn(ctx, "github", "7", "ann")
			return err
		}, board)
		expect("the same name", func() error {
			_, err := s.LogIn(ctx, "github", "7", "ann")
			return err
		})
		expect("deleting a submission", func() error { return s.Delete(ctx, 2) }, board, submissionSignal(2))
		expect("deleting it", func() error {
			_, err := s.DeleteBoard(ctx, "sort", true)
			return err
		}, board)
	})
}

// signalled returns the signals of what do changes.
func signalled(t *testing.T, s *Store, do func() error) (all []Signal) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	signals := s.Signals(ctx)
	mark := func(id string) Signal { return Signal{Kind: SignalHint, ID: id} }
	for ready := false; !ready; { // PostgreSQL's listener may not have connected yet
		if err := s.Signal(ctx, mark("ready")); err != nil {
			t.Fatal(err)
		}
		select {
		case got, open := <-signals:
			if !open {
				t.Fatal("no signal came within a minute")
			}
			ready = got == mark("ready")
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := do(); err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(ctx, mark("over")); err != nil {
		t.Fatal(err)
	}
	for got := range signals {
		switch got {
		case mark("over"):
			return all
		case mark("ready"):
		default:
			all = append(all, got)
		}
	}
	t.Fatal("no signal came within a minute")
	return nil
}
