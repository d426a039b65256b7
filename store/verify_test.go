package store

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// A further evaluation counts beside the first: a secret run that fails later takes
// the submission out of the ranking.
func TestPlanAddsAnEvaluation(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		a, err := s.Accept(ctx, submission("sort", "H100", "7"))
		if err != nil {
			t.Fatal(err)
		}
		var refused *Refusal
		if err := s.Plan(ctx, a.ID, "", 100); !errors.As(err, &refused) {
			t.Errorf("Plan of a submission that has not finished: %v", err)
		}
		evaluate(t, s, func(PlannedRun) *schema.Result { return result(true, 1000) })
		if err := s.Plan(ctx, a.ID, "", 100); err != nil {
			t.Fatal(err)
		}
		if err := s.Plan(ctx, a.ID, "", 100); !errors.As(err, &refused) {
			t.Errorf("Plan while another evaluation waits: %v", err)
		}
		if _, n, err := s.Page(ctx, "sort", "H100", 0, 0); n != 1 || err != nil {
			t.Errorf("while it waits, %d rank (%v), want 1", n, err)
		}
		evaluate(t, s, func(p PlannedRun) *schema.Result { return result(!p.Secret, 500) })
		p, err := s.Poll(ctx, a.ID)
		if err != nil {
			t.Fatal(err)
		}
		if v := p.Verdicts[0]; v.Ranks || v.Reason != "secret run failed" || p.Job.Status != StatusFailed || len(p.Runs) != 10 {
			t.Errorf("after a secret run that failed: %+v, job %+v, %d runs, want 10", v, p.Job, len(p.Runs))
		}
		runs, err := s.PlannedRuns(ctx, a.ID)
		if err != nil || len(runs) != 4 || runs[0].Secret || !runs[3].Secret || runs[0].Board != "sort" || runs[0].BuildNumber != 7 {
			t.Errorf("PlannedRuns = %+v, %v, want two public ones, then two secret ones", runs, err)
		}
		if err := s.Plan(ctx, 99, "", 0); !errors.Is(err, ErrNotFound) {
			t.Errorf("Plan of a submission that does not exist: %v", err)
		}
	})
}

// The machine's trouble with a further evaluation is none of the submission's, and
// one that works makes up for a first one that did not.
func TestPlanMakesUpForTrouble(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		a, err := s.Accept(ctx, submission("sort", "H100", "7"))
		if err != nil {
			t.Fatal(err)
		}
		trouble := func(PlannedRun) *schema.Result { return &schema.Result{Error: "the machine burns"} }
		fine := func(PlannedRun) *schema.Result { return result(true, 1000) }
		for _, step := range []struct {
			of     func(PlannedRun) *schema.Result
			status string
			why    string
			ranked int
		}{
			{trouble, StatusFailed, "the secret evaluation did not work (H100)", 0},
			{fine, StatusSucceeded, "", 1},
			{trouble, StatusSucceeded, "", 1},
		} {
			evaluate(t, s, step.of)
			p, err := s.Poll(ctx, a.ID)
			if err != nil {
				t.Fatal(err)
			}
			_, n, err := s.Page(ctx, "sort", "H100", 0, 0)
			if err != nil || p.Job.Status != step.status || (p.Job.Error == "") != (step.why == "") || n != step.ranked || !p.Done {
				t.Errorf("job %+v, %d ranked, %v, want %s, %d", p.Job, n, err, step.status, step.ranked)
			}
			if err := s.Plan(ctx, a.ID, "", 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.CancelSubmission(ctx, a.ID, "cancelled"); err != nil {
			t.Fatal(err)
		}
		if p, err := s.Poll(ctx, a.ID); err != nil || p.Job.Status != StatusSucceeded || p.Job.Error != "" {
			t.Errorf("after cancelling a further evaluation: %+v, %v", p.Job, err)
		}
	})
}

// After a board is judged again, the new results count alone; until then the old
// ones do.
func TestRejudgeReplacesResults(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"), testBoard("other"))
		speed := map[string]float64{"7": 1000, "8": 2000}
		for _, in := range []Submission{submission("sort", "H100", "7"), submission("sort", "H100", "8"), submission("other", "H100", "7")} {
			if _, err := s.Accept(ctx, in); err != nil {
				t.Fatal(err)
			}
		}
		byUser := func(p PlannedRun) *schema.Result { return result(true, speed[p.UserID]) }
		evaluate(t, s, byUser)
		if _, err := s.RejudgeReport(ctx, "sort"); !errors.Is(err, ErrNotFound) {
			t.Errorf("RejudgeReport of a board that was never rejudged: %v", err)
		}
		by := Author{"boss", "the test was wrong"}
		for _, dry := range []bool{true, false} {
			if got, err := s.Rejudge(ctx, "sort", Rejudging{Priority: 100, DryRun: dry, By: by}); got.Submissions != 2 || got.Runs != 4 || err != nil {
				t.Fatalf("Rejudge (dry run: %v) = %+v, %v, want 2 submissions with 4 runs", dry, got, err)
			}
		}
		if got, err := s.Rejudge(ctx, "sort", Rejudging{Priority: 100}); got.Submissions != 0 || err != nil {
			t.Errorf("Rejudge once more = %+v, %v, want none", got, err)
		}
		if r, err := s.RejudgeReport(ctx, "sort"); err != nil || r.Runs != 4 || r.OpenRuns != 4 || len(r.Movements) != 0 || r.Author != "boss" || r.Reason != "the test was wrong" {
			t.Errorf("meanwhile RejudgeReport = %+v, %v", r, err)
		}
		if list, _, err := s.Page(ctx, "sort", "H100", 0, 0); err != nil || len(list) != 2 || list[0].UserID != "7" {
			t.Errorf("meanwhile the ranking is %+v, %v", list, err)
		}
		speed["7"] = 5000
		evaluate(t, s, byUser)
		list, _, err := s.Page(ctx, "sort", "H100", 0, 0)
		if err != nil || len(list) != 2 || list[0].UserID != "8" || list[1].Score != 5e-6 {
			t.Errorf("after it the ranking is %+v, %v, want 8 before 7 with 5 µs", list, err)
		}
		if faults, err := s.Check(ctx); len(faults) > 0 || err != nil {
			t.Errorf("Check: %q, %v", faults, err)
		}
		r, err := s.RejudgeReport(ctx, "sort")
		if err != nil || r.OpenRuns != 0 || len(r.Movements) != 2 || r.Movements[0].UserID != "7" || r.Movements[0].OldRank != 1 || r.Movements[0].Rank != 2 || *r.Movements[0].Score != 5e-6 {
			t.Errorf("RejudgeReport = %+v, %v, want that 7 fell from 1 to 2", r, err)
		}
		if _, err := s.Rejudge(ctx, "none", Rejudging{}); !errors.Is(err, ErrNotFound) {
			t.Errorf("Rejudge of no board: %v", err)
		}
	})
}

func TestRejudgeSelects(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		begin := time.Now().Add(-time.Hour)
		for i, gpu := range []string{"H100", "B200", "H100", "H100", "H100"} {
			in := submission("sort", gpu, strconv.Itoa(7+i%2))
			in.Time, in.Code = begin.Add(time.Duration(i)*time.Minute), []byte(strconv.Itoa(i))
			if i == 3 {
				in.Mode = schema.ModeTest
			}
			if _, err := s.Accept(ctx, in); err != nil {
				t.Fatal(err)
			}
		}
		evaluate(t, s, func(p PlannedRun) *schema.Result {
			r := result(p.Submission != 3, 1000) // 3 is wrong
			if p.Mode == schema.ModeTest {
				r.Runs = r.Runs[:1]
			}
			return r
		})
		if err := s.MarkHacked(ctx, 5, "it slept"); err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			which       Rejudging
			submissions int
			runs        int
		}{
			"what ranks": {Rejudging{}, 2, 4}, "all": {Rejudging{All: true}, 4, 7}, "a GPU type": {Rejudging{GPU: "B200"}, 1, 2},
			"a user": {Rejudging{All: true, UserID: "8"}, 2, 3}, "failed ones": {Rejudging{Status: StatusFailed}, 1, 2}, "another board's status": {Rejudging{Status: StatusTimedOut}, 0, 0},
			"since": {Rejudging{All: true, Since: begin.Add(2 * time.Minute)}, 2, 3}, "until": {Rejudging{All: true, Until: begin.Add(2 * time.Minute)}, 2, 4},
		} {
			c.which.DryRun = true
			if got, err := s.Rejudge(ctx, "sort", c.which); err != nil || got.Submissions != c.submissions || got.Runs != c.runs {
				t.Errorf("%s: Rejudge = %+v, %v, want %d submissions and %d runs", name, got, err, c.submissions, c.runs)
			}
		}
		_, err := s.Rejudge(ctx, "sort", Rejudging{Status: "good"})
		refusal(t, err, Invalid, "succeeded, failed or timed_out")
		if _, err := s.Rejudge(ctx, "sort", Rejudging{Status: StatusFailed}); err != nil {
			t.Fatal(err)
		}
		evaluate(t, s, func(p PlannedRun) *schema.Result { return result(true, 10) }) // after the test was mended
		if list, _, err := s.Page(ctx, "sort", "H100", 0, 0); err != nil || len(list) != 1 || list[0].SubmissionID != 3 {
			t.Errorf("the ranking is %+v, %v, want submission 3 to lead", list, err)
		}
	})
}

func TestUnmarkHacked(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		var ids []int64
		for range 2 {
			a, err := s.Accept(ctx, submission("sort", "H100", "7"))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, a.ID)
		}
		refusal(t, s.UnmarkHacked(ctx, ids[0]), Invalid, "is not marked")
		if _, err := s.CancelSubmission(ctx, ids[1], "marked as hacked"); err != nil {
			t.Fatal(err)
		}
		evaluate(t, s, func(PlannedRun) *schema.Result { return result(true, 9) })
		for i, want := range []string{StatusSucceeded, StatusFailed} {
			for _, act := range []func() error{
				func() error { return s.MarkHacked(ctx, ids[i], "by mistake") },
				func() error { return s.UnmarkHacked(ctx, ids[i]) },
			} {
				if err := act(); err != nil {
					t.Fatal(err)
				}
			}
			p, err := s.Poll(ctx, ids[i])
			if err != nil || p.Hacked || !p.Done || p.Job.Status != want || strings.Contains(p.Job.Error, "mistake") || want == StatusFailed && !strings.Contains(p.Job.Error, "cancelled") {
				t.Errorf("submission %d is %+v, %v, want it %s", ids[i], p.Listed, err, want)
			}
		}
		if list, _, err := s.Page(ctx, "sort", "H100", 0, 0); err != nil || len(list) != 1 {
			t.Errorf("the ranking is %+v, %v, want the first submission", list, err)
		}
		if faults, err := s.Check(ctx); len(faults) > 0 || err != nil {
			t.Errorf("Check: %q, %v", faults, err)
		}
	})
}

func TestTarget(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		a, err := s.Accept(ctx, submission("sort", "B200", "7"))
		if err != nil {
			t.Fatal(err)
		}
		evaluate(t, s, func(PlannedRun) *schema.Result { return result(true, 1000) })
		for _, known := range []bool{true, false} {
			if gpu, mode, err := s.Target(ctx, a.ID); gpu != "B200" || mode != schema.ModeLeaderboard || err != nil {
				t.Errorf("Target (accepted by us: %t) = %q, %q, %v", known, gpu, mode, err)
			}
			if _, err := s.db.Exec(ctx, s.db.Write, `DELETE FROM own.accepted`); err != nil { // as Kernelbot leaves it
				t.Fatal(err)
			}
		}
		if _, _, err := s.Target(ctx, 99); !errors.Is(err, ErrNotFound) {
			t.Errorf("Target of no submission: %v", err)
		}
	})
}
