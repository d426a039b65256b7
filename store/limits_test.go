package store

import (
	"context"
	"errors"
	"slices"
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
		refusal(t, err, Invalid, "board sort takes no test submissions")
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
