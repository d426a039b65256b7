package store

import (
	"context"
	"errors"
	"testing"

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
func TestPlanBoardReplacesResults(t *testing.T) {
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
		n, err := s.PlanBoard(ctx, "sort", 100)
		if n != 2 || err != nil {
			t.Fatalf("PlanBoard = %d, %v, want 2", n, err)
		}
		if n, err := s.PlanBoard(ctx, "sort", 100); n != 0 || err != nil {
			t.Errorf("PlanBoard once more = %d, %v, want 0", n, err)
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
		if _, err := s.PlanBoard(ctx, "none", 0); !errors.Is(err, ErrNotFound) {
			t.Errorf("PlanBoard of no board: %v", err)
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
