package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// SetLimits puts these limits in the place of all that a board has.
//
// Errors: [ErrNotFound]; [*Refusal] with Invalid or UnknownGPU.
func (s *Store) SetLimits(ctx context.Context, board string, limits []Limit) error {
	return s.change(ctx, "setting the limits of board "+text.Quote(board), func(t *tx) {
		id := t.named(board)
		gpus := t.gpus(id)
		for i, l := range limits {
			if why := l.fault(gpus); why != "" {
				t.refuse(Invalid, "limit %s: %s", l, why)
			}
			if slices.ContainsFunc(limits[:i], func(o Limit) bool { return o.GPU == l.GPU && o.Category == l.Category }) {
				t.refuse(Invalid, "limit %s: it is there twice", l)
			}
		}
		t.saveLimits(id, limits)
		t.tell(Signal{Kind: SignalBoard, ID: board})
	})
}

// String is the limit as `kbserve limits` takes it: test=6, or test@H100=6.
func (l Limit) String() string {
	if l.GPU != "" {
		return fmt.Sprintf("%s@%s=%d", text.Line(l.Category, 40), text.Line(l.GPU, 100), l.PerHour)
	}
	return fmt.Sprintf("%s=%d", text.Line(l.Category, 40), l.PerHour)
}

// fault says what is wrong with a limit of a board that has these GPU types, ""
// for nothing.
func (l Limit) fault(gpus []string) string {
	switch {
	case l.Category != schema.ModeTest && l.Category != schema.ModeLeaderboard:
		return fmt.Sprintf("want %s or %s", schema.ModeTest, schema.ModeLeaderboard)
	case l.PerHour < 0 || l.PerHour > 1e6:
		return "want 0 to 1000000 an hour"
	case l.GPU != "" && !slices.Contains(gpus, l.GPU):
		return "want a GPU type of the board"
	}
	return ""
}

func (t *tx) saveLimits(board int64, limits []Limit) {
	t.exec(`DELETE FROM lb.rate_limit WHERE leaderboard_id = $1`, board)
	t.exec(`DELETE FROM own.gpu_limit WHERE leaderboard_id = $1`, board)
	for _, l := range limits {
		if l.GPU == "" {
			t.exec(`INSERT INTO lb.rate_limit (leaderboard_id, mode_category, max_submissions_per_hour) VALUES ($1, $2, $3)`, board, l.Category, l.PerHour)
		} else {
			t.exec(`INSERT INTO own.gpu_limit (leaderboard_id, gpu, mode_category, per_hour) VALUES ($1, $2, $3, $4)`, board, l.GPU, l.Category, l.PerHour)
		}
	}
}

// Limits returns the limits of a board: those of all GPU types together first.
//
// Errors: [ErrNotFound].
func (s *Store) Limits(ctx context.Context, board string) (limits []Limit, err error) {
	err = s.snapshot(ctx, "reading the limits of board "+text.Quote(board), func(t *tx) {
		limits = t.readLimits(t.named(board))
	})
	return limits, err
}

func (t *tx) readLimits(board int64) (limits []Limit) {
	var l Limit
	t.each(to{&l.GPU, &l.Category, &l.PerHour}, func() { limits = append(limits, l) }, `SELECT '' AS gpu, mode_category, max_submissions_per_hour FROM lb.rate_limit WHERE leaderboard_id = $1
		UNION ALL SELECT gpu, mode_category, per_hour FROM own.gpu_limit WHERE leaderboard_id = $1 ORDER BY 1, 2`, board)
	return limits
}
