package store

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/store/database"
)

// A Step is one improvement of a best score.
type Step struct {
	Time         time.Time // of the submission
	Score        float64   // seconds
	UserID, User string
	SubmissionID int64
}

// History returns how the best score of a board on a GPU type came down, the oldest
// step first. What does not rank (any more) is no part of it.
//
// Errors: [ErrNotFound] for a board that does not exist.
func (s *Store) History(ctx context.Context, board, gpu string) ([]Step, error) {
	steps, err := latest(ctx, s, &s.histories, board, gpu, func(ctx context.Context, on database.Querier, of boardGPU) ([]Step, error) {
		return s.steps(ctx, on, of, "")
	})
	return slices.Clone(steps), wrap("reading the history of a board", err)
}

// UserHistory is [Store.History] of one user's own submissions.
func (s *Store) UserHistory(ctx context.Context, board, gpu, userID string) (steps []Step, err error) {
	if userID == "" {
		return nil, nil
	}
	err = s.snapshot(ctx, "reading a user's history", func(tx *sql.Tx) error {
		id, _, err := s.version(ctx, tx, board)
		if err != nil {
			return err
		}
		steps, err = s.steps(ctx, tx, boardGPU{id, gpu}, userID)
		return err
	})
	return steps, err
}

func (s *Store) steps(ctx context.Context, on database.Querier, of boardGPU, userID string) (steps []Step, err error) {
	who, args := "", []any{of.board, of.gpu}
	if userID != "" {
		who, args = " AND v.user_id = $3", append(args, userID)
	}
	err = s.db.Each(ctx, on, func(rows *sql.Rows) error {
		var step Step
		var at database.Stamp
		err := rows.Scan(&at, &step.Score, &step.UserID, &step.User, &step.SubmissionID)
		step.Time = at.Time
		steps = append(steps, step)
		return err
	}, `SELECT b.submission_time, b.score, b.user_id, coalesce(u.user_name, ''), b.submission_id FROM (
			SELECT s.submission_time, v.score, v.user_id, v.submission_id,
				min(v.score) OVER (ORDER BY s.submission_time, s.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS best
			FROM own.verdict v JOIN lb.submission s ON s.id = v.submission_id WHERE v.ranks AND v.leaderboard_id = $1 AND v.gpu = $2`+who+`) b
		JOIN lb.user_info u ON u.id = b.user_id WHERE b.best IS NULL OR b.score < b.best ORDER BY b.submission_time, b.submission_id`, args...)
	return steps, err
}

// Count returns how many users rank on a board's GPU type.
//
// Errors: [ErrNotFound] for a board that does not exist.
func (s *Store) Count(ctx context.Context, board, gpu string) (count int, err error) {
	err = s.db.Row(ctx, s.db.Read, `SELECT (SELECT count(*) FROM own.standing t WHERE t.leaderboard_id = l.id AND t.gpu = $2) FROM lb.leaderboard l WHERE l.name = $1`, board, gpu).Scan(&count)
	return count, wrap("counting who ranks", err)
}
