package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/schema"
)

func TestStats(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		fill(t, s)
		old := submission("other", "H100", "1")
		old.Mode, old.Time = schema.ModeTest, time.Now().Add(-2*time.Hour)
		if _, err := s.Accept(ctx, old); err != nil {
			t.Fatal(err)
		}
		if err := s.MarkHacked(ctx, 1, "it slept"); err != nil {
			t.Fatal(err)
		}
		want := Stats{Users: 5, Submissions: 13, Runs: 1, Hour: 12, Day: 13, Boards: []BoardStats{
			{Board: "other", Users: 1, Submissions: 1, Statuses: map[string]int{StatusPending: 1}, Modes: map[string]int{schema.ModeTest: 1}, Day: 1, Open: 1},
			{Board: "sort", Users: 5, Submissions: 12, Statuses: map[string]int{StatusSucceeded: 8, StatusFailed: 3, StatusHacked: 1}, Modes: map[string]int{schema.ModeLeaderboard: 12}, Hour: 12, Day: 12},
		}}
		got, err := s.Stats(ctx)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("Stats: %v (-want +got):\n%s", err, diff)
		}
	})
}

func TestStuck(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		now := time.Now().Add(-time.Minute)
		s.now = func() time.Time { return now }
		save(t, s, testBoard("sort"))
		for range 3 {
			now = now.Add(time.Second)
			in := submission("sort", "H100", "7")
			in.Mode, in.Time = schema.ModeTest, now
			if _, err := s.Accept(ctx, in); err != nil {
				t.Fatal(err)
			}
		}
		claimed, err := s.Claim(ctx, "host/7", 1, nil, time.Minute)
		if err != nil || len(claimed) != 1 {
			t.Fatalf("Claim = %v, %v", claimed, err)
		}
		if err := s.Creating(ctx, claimed[0]); err != nil {
			t.Fatal(err)
		}
		if err := s.Built(ctx, claimed[0], 41, "uuid"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.db.Exec(ctx, s.db.Write, `DELETE FROM own.planned_run WHERE submission_id = 3`); err != nil { // as Kernelbot leaves them
			t.Fatal(err)
		}
		if list, err := s.Stuck(ctx, time.Hour); err != nil || len(list) != 0 {
			t.Errorf("Stuck at once = %v, %v", list, err)
		}
		now = now.Add(2 * time.Hour)
		list, err := s.Stuck(ctx, time.Hour)
		if err != nil || len(list) != 3 {
			t.Fatalf("Stuck = %+v, %v; want 3", list, err)
		}
		got := map[int64]string{}
		for _, x := range list {
			got[x.Submission] = fmt.Sprint(x.RunID != "", x.State, " ", x.BuildNumber, x.LeaseOwner, x.Until.Before(now), x.Board, x.GPU, x.Mode)
			if x.Deadline.IsZero() || x.Created.IsZero() || x.Changed.Before(x.Created.Add(-time.Second)) {
				t.Errorf("one that is stuck is %+v", x)
			}
		}
		want := map[int64]string{1: "truerunning 41host/7truesortH100test", 2: "trueplanned 0truesortH100test", 3: "false 0truesortH100test"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Stuck (-want +got):\n%s", diff)
		}
	})
}

func TestLastDay(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
		s.now = func() time.Time { return now }
		save(t, s, testBoard("sort"))
		for i, wait := range []time.Duration{time.Hour, 10 * time.Second, 20 * time.Second, 30 * time.Second} { // the first is too old below
			in := submission("sort", "H100", "7")
			in.Mode, in.Time = schema.ModeTest, now
			if _, err := s.Accept(ctx, in); err != nil {
				t.Fatal(err)
			}
			now = now.Add(wait)
			evaluate(t, s, func(PlannedRun) *schema.Result {
				if i == 3 {
					return &schema.Result{Outcome: schema.NewOutcome(schema.OutcomeMachine, "")}
				}
				return result(true, 9)
			})
			now = now.Add(20 * time.Minute)
			if i == 0 {
				now = now.Add(24 * time.Hour)
			}
		}
		days, err := s.LastDay(ctx)
		day := days["H100"]
		if err != nil || len(days) != 1 || day == nil {
			t.Fatalf("LastDay = %v, %v, want H100", days, err)
		}
		want := Day{Runs: 3, Wait: 20 * time.Second, Wait95: 30 * time.Second, Faults: map[string]int{schema.FaultMachine: 1}, Hours: []HourWait{
			{time.Date(2026, 5, 2, 13, 0, 0, 0, time.UTC), 20 * time.Second}, {time.Date(2026, 5, 2, 14, 0, 0, 0, time.UTC), 30 * time.Second}}}
		if diff := cmp.Diff(want, *day); diff != "" {
			t.Errorf("LastDay (-want +got):\n%s", diff)
		}
	})
}
