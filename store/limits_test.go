package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

func TestLimits(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"))
		set := func(board string, limits []Limit) error {
			_, err := s.SetBoard(ctx, board, func(b *Board) error { b.Limits = append([]Limit{}, limits...); return nil }, SetOptions{})
			return err
		}
		for _, want := range [][]Limit{
			{{Category: schema.ModeTest, PerHour: 0}, {GPU: "H100", Category: schema.ModeLeaderboard, PerHour: 1}, {GPU: "H100", Category: schema.ModeTest, PerHour: 2}},
			{{Category: schema.ModeLeaderboard, PerHour: 3}},
			nil,
		} {
			if err := set("sort", want); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Limits(ctx, "sort"); err != nil || !slices.Equal(got, want) {
				t.Errorf("Limits = %v, %v; want %v", got, err, want)
			}
		}
		if err := set("sort", []Limit{{Category: schema.ModeTest, PerHour: 0}}); err != nil {
			t.Fatal(err)
		}
		in := submission("sort", "H100", "7")
		in.Mode = schema.ModeTest
		_, err := s.Accept(ctx, in)
		refusal(t, err, OverLimit, "limit reached: board sort takes no test submissions")
		for _, wrong := range [][]Limit{
			{{Category: "profile", PerHour: 1}}, {{Category: schema.ModeTest, PerHour: -1}}, {{Category: schema.ModeTest, PerHour: 1e6 + 1}},
			{{GPU: "T4", Category: schema.ModeTest}}, {{Category: schema.ModeTest, PerHour: 1}, {Category: schema.ModeTest, PerHour: 1}},
		} {
			refusal(t, set("sort", wrong), Invalid, "limit "+wrong[0].String())
		}
		if got, err := s.Limits(ctx, "sort"); err != nil || len(got) != 1 {
			t.Errorf("refused limits left %v, %v", got, err)
		}
		if err := set("none", nil); !errors.Is(err, ErrNotFound) {
			t.Errorf("limits of no board: %v, want ErrNotFound", err)
		}
		if _, err := s.Limits(ctx, "none"); !errors.Is(err, ErrNotFound) {
			t.Errorf("Limits of no board: %v, want ErrNotFound", err)
		}
		if l := (Limit{GPU: "H100", Category: "test", PerHour: 5}); l.String() != "test@H100=5" {
			t.Errorf("String = %s", l)
		}
	})
}

// The GPU types of a closed board are for those who may see it.
func TestRefusalTellsNoGPUTypes(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		b := testBoard("sort")
		b.Visibility = Closed
		save(t, s, b)
		_, err := s.Accept(context.Background(), submission("sort", "T4", "7"))
		refusal(t, err, NotInvited, "is closed")
	})
}

// On a board without limits too, a user has a bounded number of unfinished runs on a GPU type.
func TestUnfinishedRunsAreBounded(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		save(t, s, testBoard("sort"), testBoard("other"))
		accept := func(board, gpu, mode string) error {
			in := submission(board, gpu, "7")
			in.Mode = mode
			_, err := s.Accept(ctx, in)
			return err
		}
		var wait sync.WaitGroup
		var accepted atomic.Int32
		for i := range 30 {
			wait.Go(func() {
				if accept([]string{"sort", "other"}[i%2], "H100", schema.ModeTest) == nil {
					accepted.Add(1)
				}
			})
		}
		wait.Wait()
		if accepted.Load() != maxUnfinished {
			t.Errorf("%d of 30 were accepted at once, want %d", accepted.Load(), maxUnfinished)
		}
		err := accept("other", "H100", schema.ModeTest)
		refusal(t, err, OverLimit, "20 of at most 20 runs of yours on H100")
		if refused, _ := errors.AsType[*Refusal](err); refused == nil || refused.RetryAfter <= 0 {
			t.Errorf("a refusal without a time to try again: %v", err)
		}
		if err := accept("sort", "B200", schema.ModeTest); err != nil {
			t.Errorf("on another GPU type: %v", err)
		}
		admins := submission("sort", "H100", "7")
		admins.NoLimits = true
		if _, err := s.Accept(ctx, admins); err != nil {
			t.Errorf("by an admin: %v", err)
		}
		evaluate(t, s, func(PlannedRun) *schema.Result { return result(true, 5) })
		for i := range maxUnfinished / 2 {
			if err := accept("sort", "H100", schema.ModeLeaderboard); err != nil {
				t.Errorf("ranked submission %d after all have finished: %v", i, err)
			}
		}
		refusal(t, accept("sort", "H100", schema.ModeLeaderboard), OverLimit, "have not finished")
	})
}
