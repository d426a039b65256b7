package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store/database"
)

// SetLimits puts these limits in the place of all that a board has.
//
// Errors: [ErrNotFound]; [*Refusal] with Invalid or UnknownGPU.
func (s *Store) SetLimits(ctx context.Context, board string, limits []Limit) error {
	return s.change(ctx, "setting the limits of board "+text.Quote(board), func(tx *sql.Tx) error {
		var id int64
		if err := s.db.Row(ctx, tx, `SELECT id FROM lb.leaderboard WHERE name = $1`, board).Scan(&id); err != nil {
			return err
		}
		gpus, err := s.gpus(ctx, tx, id)
		if err != nil {
			return err
		}
		for i, l := range limits {
			if why := l.fault(gpus); why != "" {
				return &Refusal{Why: Invalid, Text: fmt.Sprintf("limit %s: %s", l, why)}
			}
			if slices.ContainsFunc(limits[:i], func(o Limit) bool { return o.GPU == l.GPU && o.Category == l.Category }) {
				return &Refusal{Why: Invalid, Text: fmt.Sprintf("limit %s: it is there twice", l)}
			}
		}
		if err := s.saveLimits(ctx, tx, id, limits); err != nil {
			return err
		}
		return s.tell(ctx, tx, Signal{Kind: SignalBoard, ID: board})
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

func (s *Store) saveLimits(ctx context.Context, tx *sql.Tx, board int64, limits []Limit) error {
	for _, statement := range []string{`DELETE FROM lb.rate_limit WHERE leaderboard_id = $1`, `DELETE FROM own.gpu_limit WHERE leaderboard_id = $1`} {
		if _, err := s.db.Exec(ctx, tx, statement, board); err != nil {
			return err
		}
	}
	for _, l := range limits {
		var err error
		if l.GPU == "" {
			_, err = s.db.Exec(ctx, tx, `INSERT INTO lb.rate_limit (leaderboard_id, mode_category, max_submissions_per_hour) VALUES ($1, $2, $3)`, board, l.Category, l.PerHour)
		} else {
			_, err = s.db.Exec(ctx, tx, `INSERT INTO own.gpu_limit (leaderboard_id, gpu, mode_category, per_hour) VALUES ($1, $2, $3, $4)`, board, l.GPU, l.Category, l.PerHour)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Limits returns the limits of a board: those of all GPU types together first.
//
// Errors: [ErrNotFound].
func (s *Store) Limits(ctx context.Context, board string) (limits []Limit, err error) {
	err = s.snapshot(ctx, "reading the limits of board "+text.Quote(board), func(tx *sql.Tx) error {
		var id int64
		if err := s.db.Row(ctx, tx, `SELECT id FROM lb.leaderboard WHERE name = $1`, board).Scan(&id); err != nil {
			return err
		}
		limits, err = s.readLimits(ctx, tx, id)
		return err
	})
	return limits, err
}

func (s *Store) readLimits(ctx context.Context, on database.Querier, board int64) (limits []Limit, err error) {
	err = s.db.Each(ctx, on, func(rows *sql.Rows) error {
		var l Limit
		err := rows.Scan(&l.GPU, &l.Category, &l.PerHour)
		limits = append(limits, l)
		return err
	}, `SELECT '' AS gpu, mode_category, max_submissions_per_hour FROM lb.rate_limit WHERE leaderboard_id = $1
		UNION ALL SELECT gpu, mode_category, per_hour FROM own.gpu_limit WHERE leaderboard_id = $1 ORDER BY 1, 2`, board)
	return limits, err
}
