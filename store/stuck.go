package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/gpu-mode/kbgen/store/database"
)

// A Stuck run has not finished for long. Without a run's id it is a submission that
// is not done though nothing of it is planned: nobody will end it.
type Stuck struct {
	RunID      string
	Submission int64
	Board      string
	Deadline   time.Time // of the board
	GPU, Mode  string
	Secret     bool

	State       string
	BuildNumber int64 // 0: not known
	LeaseOwner  string
	Until       time.Time // nobody else takes the run before; in the past: its owner is gone
	Created     time.Time // it was planned, or came
	Changed     time.Time // of its state, or of its lease
}

// Stuck lists what is older than age and has not finished, the oldest first.
func (s *Store) Stuck(ctx context.Context, age time.Duration) (list []Stuck, err error) {
	err = s.snapshot(ctx, "looking for what is stuck", func(tx *sql.Tx) error {
		list = nil
		before := database.Stamp{Time: s.now().Add(-age)}
		return s.db.Each(ctx, tx, func(rows *sql.Rows) error {
			var x Stuck
			var deadline, until, created, changed database.Stamp
			err := rows.Scan(&x.RunID, &x.Submission, &x.Board, &deadline, &x.GPU, &x.Mode, &x.Secret, &x.State, &x.BuildNumber, &x.LeaseOwner, &until, &created, &changed)
			x.Deadline, x.Until, x.Created, x.Changed = deadline.Time, until.Time, created.Time, changed.Time
			list = append(list, x)
			return err
		}, `SELECT p.run_id, s.id, l.name, l.deadline, p.gpu, p.mode, p.secret, p.state, p.build_number, p.lease_owner, p.free_at, p.created_at, p.changed_at
			FROM own.planned_run p JOIN lb.submission s ON s.id = p.submission_id JOIN lb.leaderboard l ON l.id = s.leaderboard_id
			WHERE p.state <> 'finished' AND p.created_at < $1
			UNION ALL
			SELECT '', s.id, l.name, l.deadline, coalesce(a.gpu, ''), coalesce(a.mode, s.mode_category, ''), false, '', 0, '', s.submission_time, s.submission_time, coalesce(j.last_heartbeat, s.submission_time)
			FROM lb.submission s JOIN lb.leaderboard l ON l.id = s.leaderboard_id LEFT JOIN own.accepted a ON a.submission_id = s.id LEFT JOIN lb.submission_job_status j ON j.submission_id = s.id
			WHERE NOT coalesce(s.done, false) AND s.submission_time < $1 AND NOT EXISTS (SELECT 1 FROM own.planned_run p WHERE p.submission_id = s.id AND p.state <> 'finished')
			ORDER BY 12, 1, 2`, before)
	})
	return list, err
}
