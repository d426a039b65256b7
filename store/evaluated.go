package store

import (
	"context"
	"time"
)

// An Evaluated is one submission to a board on one GPU type, and how long its public
// run took there.
type Evaluated struct {
	Submission int64
	UserID     string
	GPU        string
	Ranked     bool // it was evaluated in mode leaderboard
	Time       time.Time
	Took       time.Duration
}

// Evaluated lists what was evaluated on a board, the oldest first, from the rows that
// Kernelbot's own programs write, too.
//
// Errors: [ErrNotFound] for a board that does not exist.
func (s *Store) Evaluated(ctx context.Context, board string) (all []Evaluated, err error) {
	err = s.snapshot(ctx, "reading what was evaluated", func(t *tx) {
		all = nil
		t.named(board)
		var e Evaluated
		var start, end time.Time
		t.each(dest{&e.Submission, &e.UserID, &e.GPU, &e.Ranked, &e.Time, &start, &end}, func() {
			e.Took = max(end.Sub(start), 0)
			if n := len(all); n > 0 && all[n-1].Submission == e.Submission && all[n-1].GPU == e.GPU {
				all[n-1].Took += e.Took // its runs are one after the other
				all[n-1].Ranked = all[n-1].Ranked || e.Ranked
				return
			}
			all = append(all, e)
		}, `SELECT s.id, s.user_id, r.runner, r.mode = 'leaderboard', s.submission_time, r.start_time, r.end_time
			FROM lb.runs r JOIN lb.submission s ON s.id = r.submission_id JOIN lb.leaderboard l ON l.id = s.leaderboard_id
			WHERE l.name = $1 AND NOT r.secret AND r.end_time IS NOT NULL ORDER BY s.submission_time, s.id, r.runner, r.start_time`, board)
	})
	return all, err
}
