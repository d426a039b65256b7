package store

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// A board that wants it takes the result of the same text in mode test; what differs
// in anything is evaluated.
func TestReuse(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		board := testBoard("sort")
		board.Reuse, board.ShowCode = true, CodeAfter
		plain := testBoard("plain")
		board.Deadline, plain.Deadline = time.Now().Add(72*time.Hour), time.Now().Add(72*time.Hour)
		save(t, s, board, plain)
		now := time.Now()
		s.now = func() time.Time { return now }
		test := func(change func(*Submission)) Submission {
			in := submission("sort", "H100", "7")
			in.Mode, in.Code, in.Time = schema.ModeTest, []byte("x = 1\n"), now
			if change != nil {
				change(&in)
			}
			return in
		}
		accept := func(in Submission) int64 {
			t.Helper()
			a, err := s.Accept(ctx, in)
			if err != nil || len(a.RunIDs) == 0 || a.JobStatusID == 0 {
				t.Fatalf("Accept = %+v, %v", a, err)
			}
			return a.ID
		}
		finish := func() {
			t.Helper()
			claimed, err := s.Claim(ctx, "test", 10, nil, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range claimed {
				r := result(false, 0)
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
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		first := accept(test(nil))
		if second := accept(test(nil)); func() bool { p, _ := s.Poll(ctx, second); return p.Done }() {
			t.Error("a result was taken before there is one")
		}
		finish()
		want, err := s.Poll(ctx, first)
		if err != nil {
			t.Fatal(err)
		}
		reused := accept(test(func(in *Submission) { in.UserID = "8" }))
		got, err := s.Poll(ctx, reused)
		if err != nil {
			t.Fatal(err)
		}
		if !got.Done || got.Job.Status != StatusSucceeded || len(got.Runs) != len(want.Runs) || len(got.Runs) != 1 || got.Runs[0].Passed || string(got.Runs[0].Meta) != string(want.Runs[0].Meta) || len(got.Open) != 0 {
			t.Errorf("the same text: %+v, want the result of\n%+v", got, want)
		}
		reports, err := s.Reports(ctx, reused)
		runs, err2 := s.PlannedRuns(ctx, reused)
		if err != nil || err2 != nil || len(reports) != 1 || len(runs) != 1 || runs[0].RunID != reports[0].RunID || runs[0].BuildNumber != 7 || runs[0].State != StateFinished {
			t.Errorf("its report: %+v, %v, its runs: %+v, %v", reports, err, runs, err2)
		}
		changed := board
		task := *board.Task
		task.Tests = append(slices.Clone(task.Tests), schema.Case{{Name: "n", Value: schema.IntValue(4)}})
		changed.Task = &task
		for _, c := range []struct {
			name string
			in   Submission
			task Board
		}{
			{"other text", test(func(in *Submission) { in.Code = []byte("x = 2\n") }), board},
			{"another GPU type", test(func(in *Submission) { in.GPU = "B200" }), board},
			{"another mode", test(func(in *Submission) { in.Mode = schema.ModeBenchmark }), board},
			{"a ranked mode", test(func(in *Submission) { in.Mode = schema.ModeLeaderboard }), board},
			{"somebody who wants a fresh one", test(func(in *Submission) { in.Fresh = true }), board},
			{"another task", test(nil), changed},
		} {
			save(t, s, c.task)
			if p, err := s.Poll(ctx, accept(c.in)); err != nil || p.Done || len(p.Open) == 0 {
				t.Errorf("%s: %+v, %v, want it to be evaluated", c.name, p, err)
			}
		}
		save(t, s, board)
		now = now.Add(reuseTime + time.Minute)
		if p, err := s.Poll(ctx, accept(test(nil))); err != nil || p.Done {
			t.Errorf("after a day: %+v, %v, want it to be evaluated", p, err)
		}
		for range 2 {
			if p, err := s.Poll(ctx, accept(test(func(in *Submission) { in.Board = "plain" }))); err != nil || p.Done {
				t.Errorf("on a board that does not want it: %+v, %v", p, err)
			}
			finish()
		}
		if faults, err := s.Check(ctx); len(faults) > 0 || err != nil {
			t.Errorf("Check: %q, %v", faults, err)
		}
	})
}
