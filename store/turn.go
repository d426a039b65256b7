package store

import (
	"context"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/store/queue"
)

// inTurn returns runs that wait in the order in which they are to start.
func inTurn(waiting []PlannedRun, begun map[queue.Share]int) []PlannedRun {
	return queue.Order(waiting, func(p PlannedRun) queue.Run {
		return queue.Run{Share: queue.Share{User: p.UserID, GPU: p.GPU}, ID: p.RunID, Priority: p.Priority, Created: p.Created}
	}, begun)
}

const plannedColumns = `p.run_id, p.submission_id, s.user_id, l.name, p.gpu, p.mode, p.secret, p.priority, p.state, p.build_number, p.build_id, p.fence, p.created_at, p.changed_at, p.started_at`

const plannedFrom = ` FROM own.planned_run p JOIN lb.submission s ON s.id = p.submission_id JOIN lb.leaderboard l ON l.id = s.leaderboard_id `

func (p *PlannedRun) columns() to {
	return to{&p.RunID, &p.Submission, &p.UserID, &p.Board, &p.GPU, &p.Mode, &p.Secret, &p.Priority, &p.State, &p.BuildNumber, &p.BuildID, &p.Fence, &p.Created, &p.Changed, &p.Started}
}

// Line lists everything that has not finished: what was begun, the oldest first,
// and then what waits, in the order in which it goes on its GPU type.
func (s *Store) Line(ctx context.Context) (line []PlannedRun, err error) {
	err = s.snapshot(ctx, "reading the line", func(t *tx) {
		var waiting []PlannedRun
		line = nil
		var p PlannedRun
		t.each(p.columns(), func() {
			if p.State == StatePlanned {
				waiting = append(waiting, p)
			} else {
				line = append(line, p)
			}
		}, `SELECT `+plannedColumns+plannedFrom+`WHERE p.state <> 'finished' ORDER BY p.started_at, p.run_id`)
		line = append(line, inTurn(waiting, t.begun(s.now()))...)
	})
	return line, err
}

// begun counts the runs that each user began on each GPU type within the last hour.
func (t *tx) begun(now time.Time) map[queue.Share]int {
	begun := map[queue.Share]int{}
	var target queue.Share
	var n int
	t.each(to{&target.User, &target.GPU, &n}, func() { begun[target] = n }, `SELECT s.user_id, p.gpu, count(*) FROM own.planned_run p JOIN lb.submission s ON s.id = p.submission_id WHERE p.started_at > $1 GROUP BY 1, 2`, now.Add(-queue.ShareWindow))
	return begun
}

// Typical returns how long runs on a GPU type in a mode took lately, from their
// beginning to their result, in the middle of the last 50; 0 when there were none.
func (s *Store) Typical(ctx context.Context, gpu, mode string) (time.Duration, error) {
	var took []time.Duration
	err := s.read(ctx, "reading how long runs took", func(t *tx) {
		var began, ended time.Time
		t.each(to{&began, &ended}, func() { took = append(took, ended.Sub(began)) }, `SELECT started_at, finished_at FROM own.planned_run WHERE gpu = $1 AND mode = $2 AND finished_at IS NOT NULL AND started_at IS NOT NULL ORDER BY finished_at DESC LIMIT 50`, gpu, mode)
	})
	if err != nil || len(took) == 0 {
		return 0, err
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

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
	err = s.snapshot(ctx, "looking for what is stuck", func(t *tx) {
		list = nil
		var x Stuck
		t.each(to{&x.RunID, &x.Submission, &x.Board, &x.Deadline, &x.GPU, &x.Mode, &x.Secret, &x.State, &x.BuildNumber, &x.LeaseOwner, &x.Until, &x.Created, &x.Changed}, func() { list = append(list, x) }, `SELECT p.run_id, s.id, l.name, l.deadline, p.gpu, p.mode, p.secret, p.state, p.build_number, p.lease_owner, p.free_at, p.created_at, p.changed_at
			FROM own.planned_run p JOIN lb.submission s ON s.id = p.submission_id JOIN lb.leaderboard l ON l.id = s.leaderboard_id
			WHERE p.state <> 'finished' AND p.created_at < $1
			UNION ALL
			SELECT '', s.id, l.name, l.deadline, coalesce(a.gpu, ''), coalesce(a.mode, s.mode_category, ''), false, '', 0, '', s.submission_time, s.submission_time, coalesce(j.last_heartbeat, s.submission_time)
			FROM lb.submission s JOIN lb.leaderboard l ON l.id = s.leaderboard_id LEFT JOIN own.accepted a ON a.submission_id = s.id LEFT JOIN lb.submission_job_status j ON j.submission_id = s.id
			WHERE NOT coalesce(s.done, false) AND s.submission_time < $1 AND NOT EXISTS (SELECT 1 FROM own.planned_run p WHERE p.submission_id = s.id AND p.state <> 'finished')
			ORDER BY 12, 1, 2`, s.now().Add(-age))
	})
	return list, err
}
