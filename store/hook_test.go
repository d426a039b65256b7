package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// A checked submission is accepted with its code and planned runs.
func checked(t *testing.T, s *Store, user, mode string) int64 {
	t.Helper()
	in := submission("sort", "H100", user)
	in.Check, in.Mode = true, mode
	out, err := s.Accept(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return out.ID
}

// deliveries claims all that are due, by id.
func deliveries(t *testing.T, s *Store) map[int64]HookDelivery {
	t.Helper()
	claimed, err := s.ClaimHookDeliveries(t.Context(), 10, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	found := map[int64]HookDelivery{}
	for _, d := range claimed {
		found[d.Submission] = d
	}
	return found
}

// A submission that is checked runs once it is accepted, and its result is delivered.
func TestACheckedSubmissionWaitsForTheDecision(t *testing.T) {
	bothShared(t, func(t *testing.T, s, other *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		id := checked(t, s, "7", schema.ModeLeaderboard)
		if claimed, err := s.Claim(ctx, "x", 10, nil, time.Minute); err != nil || len(claimed) != 0 {
			t.Fatalf("Claim of runs that wait for a decision = %+v, %v", claimed, err)
		}
		if line, err := s.Line(ctx); err != nil || len(line) != 0 {
			t.Errorf("Line = %+v, %v; want none", line, err)
		}
		first := deliveries(t, s)[id]
		if first.Event != EventAccepted || first.Tries != 1 || !strings.HasSuffix(first.ID, "-accepted") {
			t.Fatalf("the delivery is %+v", first)
		}
		if again := deliveries(t, other); len(again) != 0 {
			t.Errorf("another instance gets %+v while the lease holds", again)
		}
		if err := s.RetryHookDelivery(ctx, first, 0, "got status 500"); err != nil {
			t.Fatal(err)
		}
		if waits, err := s.HookWaits(ctx); err != nil || len(waits) != 1 || waits[0].Error != "got status 500" || waits[0].Board != "sort" || waits[0].Done || waits[0].Held {
			t.Errorf("HookWaits = %+v, %v", waits, err)
		}
		second := deliveries(t, other)[id]
		if second.ID != first.ID || second.Tries != 2 || !second.Since.Equal(first.Since) {
			t.Errorf("the second try is %+v, want the id of %+v", second, first)
		}
		if err := s.HoldSubmission(ctx, first); err != nil { // which has lost its lease
			t.Fatal(err)
		}
		if waits, err := s.HookWaits(ctx); err != nil || len(waits) != 1 || waits[0].Held {
			t.Errorf("after a late answer HookWaits = %+v, %v; want none held", waits, err)
		}
		if err := s.HoldSubmission(ctx, second); err != nil {
			t.Fatal(err)
		}
		if due := deliveries(t, s); len(due) != 0 {
			t.Errorf("a held submission is delivered: %+v", due)
		}
		ended := testBoard("sort")
		ended.Deadline = time.Now()
		save(t, s, ended)
		if err := other.Decide(ctx, id, true, ""); err != nil {
			t.Fatal(err)
		}
		refusal(t, s.Decide(ctx, id, false, "late"), Finished, "does not wait")
		if err := s.RetryHookDelivery(ctx, second, time.Hour, "late"); err != nil {
			t.Fatal(err)
		}
		if due := deliveries(t, s); len(due) != 0 {
			t.Errorf("an accepted submission is delivered: %+v", due)
		}
		evaluate(t, s, func(PlannedRun) *schema.Result { return result(true, 5) })
		if p, err := s.Poll(ctx, id); err != nil || len(p.Verdicts) != 1 || !p.Verdicts[0].Ranks {
			t.Errorf("a submission that came before the board ended has verdicts %+v, %v", p.Verdicts, err)
		}
		done := deliveries(t, s)[id]
		if done.Event != EventDone || done.Tries != 1 || done.ID == first.ID {
			t.Errorf("after the result the delivery is %+v", done)
		}
		if err := s.EndHookDelivery(ctx, done); err != nil {
			t.Fatal(err)
		}
		if n := count(t, s, "own.hook"); n != 0 {
			t.Errorf("%d rows in own.hook at the end", n)
		}
	})
}

func TestARejectedSubmissionRunsNothing(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		id := checked(t, s, "7", schema.ModeLeaderboard)
		if err := s.Decide(ctx, id, false, "it imports \x1b[31msocket\n"+strings.Repeat("x", 5000)); err != nil {
			t.Fatal(err)
		}
		p, err := s.Poll(ctx, id)
		if err != nil || !p.Done || p.Job.Status != StatusFailed || p.Progress() != schema.OutcomeRejected || len(p.Open) != 0 {
			t.Errorf("Poll = %+v, %v", p, err)
		}
		if why := p.Job.Error; !strings.HasPrefix(why, "rejected by the organizers: it imports ") || strings.ContainsAny(why, "\x1b\n") || len([]rune(why)) > maxError+1 {
			t.Errorf("the reason has %d runes: %.100q", len([]rune(why)), why)
		}
		if claimed, err := s.Claim(ctx, "x", 10, nil, time.Minute); err != nil || len(claimed) != 0 {
			t.Errorf("Claim = %+v, %v", claimed, err)
		}
		if faults, err := s.Check(ctx); err != nil || len(faults) != 0 {
			t.Errorf("Check = %v, %v", faults, err)
		}
		if d := deliveries(t, s)[id]; d.Event != EventDone {
			t.Errorf("the delivery is %+v", d)
		}
	})
}

// A submission that is cancelled, marked or deleted while it waits is not decided about.
func TestACheckedSubmissionEndsWhileItWaits(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		cancelled, hacked, deleted := checked(t, s, "7", schema.ModeTest), checked(t, s, "8", schema.ModeTest), checked(t, s, "9", schema.ModeTest)
		asked := deliveries(t, s)
		if len(asked) != 3 {
			t.Fatalf("due are %+v", asked)
		}
		if builds, err := s.CancelSubmission(ctx, cancelled, "cancelled by its submitter"); err != nil || len(builds) != 0 {
			t.Errorf("CancelSubmission = %+v, %v; want no builds", builds, err)
		}
		if err := s.MarkHacked(ctx, hacked, "it slept"); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(ctx, deleted); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[int64]string{cancelled: schema.OutcomeCanceled, hacked: StatusHacked} {
			refusal(t, s.Decide(ctx, id, true, ""), Finished, "does not wait")
			if err := s.RetryHookDelivery(ctx, asked[id], 0, ""); err != nil {
				t.Fatal(err)
			}
			if p, err := s.Poll(ctx, id); err != nil || !p.Done || p.Progress() != want {
				t.Errorf("submission %d: %s, %v; want %s", id, p.Progress(), err, want)
			}
		}
		if err := s.Decide(ctx, deleted, true, ""); !errors.Is(err, ErrNotFound) {
			t.Errorf("Decide about a deleted submission: %v", err)
		}
		for id, d := range deliveries(t, s) {
			if d.Event != EventDone || id == deleted {
				t.Errorf("the delivery is %+v", d)
			}
		}
		if n := count(t, s, "own.hook"); n != 2 {
			t.Errorf("%d rows in own.hook, want 2", n)
		}
	})
}

// Without a check nothing is kept for a hook, and a board reuses results; with one, the
// check comes first.
func TestOnlyACheckedSubmissionIsKeptForTheHook(t *testing.T) {
	s := migrated(t, sqliteURL(t))
	ctx := context.Background()
	board := testBoard("sort")
	board.Reuse = true
	save(t, s, board)
	in := submission("sort", "H100", "7")
	in.Mode = schema.ModeTest
	if _, err := s.Accept(ctx, in); err != nil {
		t.Fatal(err)
	}
	claimed, err := s.Claim(ctx, "x", 1, nil, time.Minute)
	if err != nil || len(claimed) != 1 {
		t.Fatal(claimed, err)
	}
	if err := s.Record(ctx, claimed[0], result(true, 5), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if n := count(t, s, "own.hook"); n != 0 {
		t.Errorf("%d rows in own.hook", n)
	}
	if p, err := s.Poll(ctx, checked(t, s, "7", schema.ModeTest)); err != nil || p.Done || len(p.Open) != 1 || p.Open[0].State != StateHeld {
		t.Errorf("a checked submission with a known text is %+v, %v; want it to wait", p, err)
	}
}
