package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// Several claimers at once get every run once.
func TestClaimGivesEachRunOnce(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		for i := range 30 {
			in := submission("sort", "H100", fmt.Sprint(i+1))
			in.Mode = schema.ModeTest
			if i == 29 {
				in.Priority = -1
			}
			if _, err := s.Accept(ctx, in); err != nil {
				t.Fatal(err)
			}
		}
		first, err := s.Claim(ctx, "a", 1, nil, time.Hour)
		if err != nil || len(first) != 1 || first[0].Submission != 30 || first[0].Board != "sort" || first[0].State != StatePlanned {
			t.Fatalf("Claim = %+v, %v; want the run of the highest priority", first, err)
		}
		var wait sync.WaitGroup
		var mu sync.Mutex
		got := map[string]int{}
		for i := range 6 {
			wait.Go(func() {
				for {
					claimed, err := s.Claim(ctx, fmt.Sprint(i), 3, nil, time.Hour)
					if err != nil {
						t.Error(err)
						return
					}
					if len(claimed) == 0 {
						return // others may still hold rows in their transaction
					}
					mu.Lock()
					for _, p := range claimed {
						got[p.RunID]++
					}
					mu.Unlock()
				}
			})
		}
		wait.Wait()
		for id, n := range got {
			if n != 1 {
				t.Errorf("run %s was claimed %d times", id, n)
			}
		}
		if len(got) != 29 {
			t.Errorf("%d runs were claimed, want 29", len(got))
		}
	})
}

// Who lost a lease changes nothing any more, and a result counts once.
func TestALostLeaseChangesNothing(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		in := submission("sort", "H100", "7")
		in.Mode = schema.ModeTest
		out, err := s.Accept(ctx, in)
		if err != nil || len(out.RunIDs) != 1 {
			t.Fatalf("Accept = %+v, %v", out, err)
		}
		claim := func() PlannedRun {
			t.Helper()
			claimed, err := s.Claim(ctx, "x", 1, nil, time.Hour)
			if err != nil || len(claimed) != 1 {
				t.Fatalf("Claim = %+v, %v", claimed, err)
			}
			return claimed[0]
		}
		old := claim()
		if err := s.Creating(ctx, old); err != nil {
			t.Fatal(err)
		}
		if more, err := s.Claim(ctx, "y", 1, nil, time.Hour); err != nil || len(more) != 0 {
			t.Fatalf("Claim of a held run = %+v, %v", more, err)
		}
		if err := s.Renew(ctx, old, 0); err != nil { // it gives up
			t.Fatal(err)
		}
		fresh := claim()
		if fresh.State != StateCreating || fresh.Fence <= old.Fence {
			t.Errorf("the run comes back as %+v, want it creating and with a higher fence than %d", fresh, old.Fence)
		}
		for name, err := range map[string]error{
			"Creating": s.Creating(ctx, old), "Built": s.Built(ctx, old, 3, "b"), "Renew": s.Renew(ctx, old, time.Hour),
			"Record": s.Record(ctx, old, result(true, 5), nil), "Fail": s.Fail(ctx, old, StatusFailed, schema.OutcomeMachine, "x"),
		} {
			if !errors.Is(err, ErrLeaseLost) {
				t.Errorf("%s with a lost lease: %v, want ErrLeaseLost", name, err)
			}
		}
		if err := s.Built(ctx, fresh, 41, "uuid"); err != nil {
			t.Fatal(err)
		}
		if p, err := s.Poll(ctx, out.ID); err != nil || p.Job.Status != StatusRunning || len(p.Open) != 1 || p.Open[0].BuildNumber != 41 || p.Open[0].BuildID != "uuid" || len(p.Runs) != 0 {
			t.Errorf("Poll while it runs = %+v, %v", p, err)
		}
		if err := s.Record(ctx, fresh, result(true, 5), nil); err != nil {
			t.Fatal(err)
		}
		if err := s.Record(ctx, fresh, result(true, 5), nil); !errors.Is(err, ErrLeaseLost) {
			t.Errorf("a second result: %v, want ErrLeaseLost", err)
		}
		if n := count(t, s, "lb.runs"); n != 3 {
			t.Errorf("%d rows in runs, want 3", n)
		}
		if err := s.Delete(ctx, out.ID); err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"lb.runs", "lb.submission", "lb.submission_job_status", "own.planned_run", "own.accepted", "own.verdict", "own.standing", "own.run_evidence"} {
			if n := count(t, s, table); n != 0 {
				t.Errorf("%d rows in %s after Delete", n, table)
			}
		}
		if err := s.Delete(ctx, out.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("a second Delete: %v, want ErrNotFound", err)
		}
	})
}

// A submission is done with its last run, with the status and the reason that
// belong to what happened.
func TestHowSubmissionsEnd(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		strict := testBoard("strict")
		strict.Policy = &ranking.Policy{Harness: schema.HarnessIsolated}
		save(t, s, testBoard("sort"), strict)
		for i, tt := range []struct {
			name, board, mode string
			public, secret    *schema.Result
			status, words     string
			rows              int
		}{
			{"right", "sort", schema.ModeLeaderboard, result(true, 5), result(true, 5), StatusSucceeded, "", 6},
			{"wrong", "sort", schema.ModeLeaderboard, result(false, 5), result(false, 5), StatusFailed, "public run failed on H100", 2},
			{"wrong in public", "sort", schema.ModeLeaderboard, result(false, 5), result(true, 5), StatusFailed, "public run failed on H100", 4},
			{"secret failed", "sort", schema.ModeLeaderboard, result(true, 5), result(false, 5), StatusFailed, "secret run failed on H100", 4},
			{"no evaluation", "sort", schema.ModeLeaderboard, &schema.Result{Error: "node lost"}, result(true, 5), StatusFailed, "node lost (H100)", 3},
			{"no secret evaluation", "sort", schema.ModeLeaderboard, result(true, 5), &schema.Result{Error: "case 81: seed 9"}, StatusFailed, "the secret evaluation did not work (H100)", 3},
			{"self-checked", "strict", schema.ModeLeaderboard, selfChecked(result(true, 5)), result(true, 5), StatusFailed, "self-checked harness not admitted here on H100", 6},
			{"a test", "sort", schema.ModeTest, result(false, 5), nil, StatusSucceeded, "", 1},
		} {
			in := submission(tt.board, "H100", fmt.Sprint(i+1))
			in.Mode = tt.mode
			out, err := s.Accept(ctx, in)
			if err != nil {
				t.Fatal(err)
			}
			evaluate(t, s, func(p PlannedRun) *schema.Result {
				if mid, err := s.Poll(ctx, out.ID); err != nil || mid.Done {
					t.Errorf("%s: done before its last run: %v", tt.name, err)
				}
				if p.Secret {
					return tt.secret
				}
				return tt.public
			})
			p, err := s.Poll(ctx, out.ID)
			if err != nil {
				t.Fatal(err)
			}
			if !p.Done || p.Job.Status != tt.status || !strings.HasPrefix(p.Job.Error, tt.words) || (tt.words == "") != (p.Job.Error == "") || len(p.Runs) != tt.rows || len(p.Open) != 0 {
				t.Errorf("%s: done %v, %s, %q, %d rows; want done, %s, %q, %d", tt.name, p.Done, p.Job.Status, p.Job.Error, len(p.Runs), tt.status, tt.words, tt.rows)
			}
			for _, r := range p.Runs {
				if r.Secret && (r.Result != nil || r.Meta != nil || r.System != nil) || !r.Secret && (len(r.Result) == 0 || r.Runner != "H100") {
					t.Errorf("%s: a run is shown as %+v", tt.name, r)
				}
			}
		}
	})
}

// A lease that is renewed is no change of the run: doctor names what stands still.
func TestRenewingIsNoChange(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		out, err := s.Accept(ctx, submission("sort", "H100", "7"))
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
		s.now = func() time.Time { return at }
		claimed, err := s.Claim(ctx, "a", 1, nil, time.Hour)
		if err == nil && len(claimed) > 0 {
			err = s.Creating(ctx, claimed[0])
		}
		if err != nil || len(claimed) == 0 {
			t.Fatal(claimed, err)
		}
		s.now = func() time.Time { return at.Add(time.Minute) }
		if err := s.Renew(ctx, claimed[0], time.Hour); err != nil {
			t.Fatal(err)
		}
		runs, err := s.PlannedRuns(ctx, out.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range runs {
			if p.RunID == claimed[0].RunID && !p.Changed.Equal(at) {
				t.Errorf("run %s changed at %v, want %v, when it was claimed", p.State, p.Changed, at)
			}
		}
	})
}

// A clock that is set back strands no run, whether it waits or its holder is gone.
func TestClockSetBack(t *testing.T) {
	s := migrated(t, sqliteURL(t)) // PostgreSQL's clock cannot be set by a test
	ctx := context.Background()
	now := time.Now()
	s.now = func() time.Time { return now }
	save(t, s, testBoard("sort"))
	for range 2 {
		in := submission("sort", "H100", "7")
		in.Mode = schema.ModeTest
		if _, err := s.Accept(ctx, in); err != nil {
			t.Fatal(err)
		}
	}
	if held, err := s.Claim(ctx, "a", 1, nil, time.Minute); err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	if n, err := s.FreeAfterClockJump(ctx, 10*time.Minute); n != 0 || err != nil {
		t.Errorf("before the jump %d runs were freed, %v", n, err)
	}
	now = now.Add(-time.Hour)
	if stranded, err := s.Claim(ctx, "b", 9, nil, time.Minute); err != nil || len(stranded) != 0 {
		t.Errorf("Claim after the jump = %v, %v", stranded, err)
	}
	if n, err := s.FreeAfterClockJump(ctx, 10*time.Minute); n != 2 || err != nil {
		t.Errorf("%d runs were freed, %v, want 2", n, err)
	}
	if claimed, err := s.Claim(ctx, "b", 9, nil, time.Minute); err != nil || len(claimed) != 2 {
		t.Errorf("Claim = %v, %v, want both", claimed, err)
	}
}
