package store

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store/database"
	"github.com/gpu-mode/kbgen/store/queue"
)

// No more is under way on a GPU type than there is room for, over all claimers.
func TestClaimKeepsToTheRoom(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		for i := range 8 {
			in := submission("sort", []string{"H100", "B200"}[i%2], fmt.Sprint(i+1))
			in.Mode = schema.ModeTest
			if _, err := s.Accept(ctx, in); err != nil {
				t.Fatal(err)
			}
		}
		claim := func(n int, room map[string]int) []PlannedRun {
			t.Helper()
			claimed, err := s.Claim(ctx, "x", n, room, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			return claimed
		}
		first := claim(10, map[string]int{"H100": 3})
		if len(first) != 3 || first[0].GPU != "H100" {
			t.Fatalf("claimed %d of %s, want 3 of H100", len(first), first[0].GPU)
		}
		if more := claim(10, map[string]int{"H100": 3}); len(more) != 0 {
			t.Errorf("claimed %d more, want none: 3 are held", len(more))
		}
		if err := s.Creating(ctx, first[0]); err != nil {
			t.Fatal(err)
		}
		if more := claim(10, map[string]int{"H100": 3, "B200": 1}); len(more) != 1 || more[0].GPU != "B200" {
			t.Errorf("claimed %+v, want one of B200", more)
		}
		if err := s.Record(ctx, first[0], result(true, 5), []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if more := claim(10, map[string]int{"H100": 3}); len(more) != 1 {
			t.Errorf("claimed %d after one has finished, want 1", len(more))
		}
		// What somebody had begun is taken again without room.
		if err := s.Creating(ctx, first[1]); err != nil {
			t.Fatal(err)
		}
		if err := s.Renew(ctx, first[1], 0); err != nil {
			t.Fatal(err)
		}
		if again := claim(10, map[string]int{}); len(again) != 1 || again[0].RunID != first[1].RunID || again[0].State != StateCreating || again[0].Started.IsZero() {
			t.Errorf("claimed %+v, want the run that was begun", again)
		}
		line, err := s.Line(ctx)
		if err != nil || len(line) != 7 || line[0].State == StatePlanned || line[6].State != StatePlanned {
			t.Errorf("Line has %d, %v; want 7, what was begun first", len(line), err)
		}
		if d, err := s.Typical(ctx, "H100", schema.ModeTest); err != nil || d <= 0 {
			t.Errorf("Typical = %v, %v", d, err)
		}
		if raw := reportOf(t, s, first[0].RunID); string(raw) != "{}" {
			t.Errorf("the kept result is %q", raw)
		}
	})
}

// Deleting submissions changes nothing in the order: the runs of them that a user began
// still count, until they are an hour old.
func TestDeletingKeepsThePlaceInTheQueue(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		now := time.Now()
		s.now = func() time.Time { return now }
		save(t, s, testBoard("sort"))
		names := map[string]string{"7": "G", "8": "H"}
		accept := func(user string, n int) (ids []int64) {
			for i := range n {
				in := submission("sort", "H100", user)
				in.Mode, in.Code = schema.ModeTest, fmt.Appendf(in.Code, "%d", i)
				now = now.Add(time.Millisecond)
				out, err := s.Accept(ctx, in)
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, out.ID)
			}
			return ids
		}
		order := func() (order string) {
			t.Helper()
			line, err := s.Line(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range line {
				order += names[p.UserID]
			}
			return order
		}
		old := accept("7", 12)
		accept("8", 9)
		evaluate(t, s, func(PlannedRun) *schema.Result { return result(true, 5) })
		for _, wait := range []struct {
			user string
			n    int
		}{{"8", 3}, {"7", 2}, {"8", 2}, {"7", 4}} {
			accept(wait.user, wait.n)
		}
		const want = "HHHGGHHGGGG"
		if got := order(); got != want {
			t.Errorf("the order is %s, want %s", got, want)
		}
		for _, id := range old {
			if err := s.Delete(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		if got := order(); got != want {
			t.Errorf("after G deleted 12 submissions the order is %s, want %s", got, want)
		}
		if _, err := s.db.Exec(ctx, s.db.Write, `UPDATE own.begun_run SET begun_at = $1`, database.Stamp(now.Add(-queue.ShareWindow-time.Second))); err != nil {
			t.Fatal(err)
		}
		if got, want := order(), "HHHGGHGGHGG"; got != want {
			t.Errorf("an hour later the order is %s, want %s", got, want)
		}
		if _, err := s.Claim(ctx, "test", 1, nil, time.Minute); err != nil {
			t.Fatal(err)
		}
		if n := count(t, s, "own.begun_run"); n != 0 {
			t.Errorf("%d runs are kept that began more than an hour ago", n)
		}
	})
}

func reportOf(t *testing.T, s *Store, runID string) []byte {
	t.Helper()
	var body []byte
	if err := s.db.Row(context.Background(), s.db.Read, `SELECT body FROM own.report WHERE run_id = $1`, runID).Scan(&body); err != nil {
		t.Fatal(err)
	}
	raw, err := unpack(body)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// What is cancelled has finished, its holder's lease is gone, and its status says
// why.
func TestCancelSubmission(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		out, err := s.Accept(ctx, submission("sort", "H100", "7"))
		if err != nil {
			t.Fatal(err)
		}
		signals := s.Signals(t.Context())
		claimed, err := s.Claim(ctx, "x", 1, nil, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Creating(ctx, claimed[0]); err != nil {
			t.Fatal(err)
		}
		builds, err := s.CancelSubmission(ctx, out.ID, "cancelled by its owner")
		if err != nil || len(builds) != 1 || builds[0].RunID != claimed[0].RunID {
			t.Errorf("CancelSubmission = %+v, %v; want the run that was begun", builds, err)
		}
		if p, err := s.Poll(ctx, out.ID); err != nil || !p.Done || p.Job.Status != StatusFailed || p.Job.Error != "cancelled by its owner" || len(p.Open) != 0 {
			t.Errorf("Poll = %+v, %v", p, err)
		}
		if err := s.Record(ctx, claimed[0], result(true, 5), nil); err == nil {
			t.Error("a result was recorded for a run that was cancelled")
		}
		_, err = s.CancelSubmission(ctx, out.ID, "again")
		refusal(t, err, Finished, "has finished")
		if s.db.Kind == database.SQLite { // PostgreSQL's listener may have connected too late
			if got := <-signals; got != submissionSignal(out.ID) {
				t.Errorf("the first signal is %+v", got)
			}
		}
	})
}

// Signals reach every instance, after the commit.
func TestSignals(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		signals := s.Signals(t.Context())
		want := Signal{Kind: SignalHint, ID: "run-1"}
		deadline := time.After(5 * time.Minute)
		for {
			if err := s.Signal(context.Background(), want); err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-signals:
				if got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
				return
			case <-deadline:
				t.Fatal("no signal came")
			case <-time.After(10 * time.Millisecond): // the listener may not have connected yet
			}
		}
	})
}

// A transaction whose context ends is undone while its function still works. It takes
// no signal from the next one, and gives it none.
func TestSignalsOfATransactionThatIsUndone(t *testing.T) {
	s := migrated(t, sqliteURL(t))
	signals := s.Signals(t.Context())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	take, undone := make(chan struct{}), make(chan struct{})
	next := make(chan error, 1)
	err := s.change(ctx, "the first", func(first *tx) {
		first.tell(Signal{Kind: SignalHint, ID: "first"})
		stop()
		go func() {
			next <- s.change(t.Context(), "the next", func(later *tx) {
				later.tell(Signal{Kind: SignalHint, ID: "next"})
				close(take)
				<-undone
			})
		}()
		<-take
		first.tell(Signal{Kind: SignalHint, ID: "late"})
	})
	close(undone)
	if err == nil {
		t.Error("a transaction whose context had ended was committed")
	}
	if err := <-next; err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(t.Context(), Signal{Kind: SignalHint, ID: "end"}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for len(got) == 0 || got[len(got)-1] != "end" {
		got = append(got, (<-signals).ID)
	}
	if want := []string{"next", "end"}; !slices.Equal(got, want) {
		t.Errorf("got the signals %q, want %q", got, want)
	}
}
