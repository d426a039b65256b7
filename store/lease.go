package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/gpu-mode/kbgen/store/database"
	"github.com/gpu-mode/kbgen/store/queue"
)

// States of a planned run, in their order. From creating on there may be a build
// at Buildkite, so that whoever takes such a run looks for it before making one.
const (
	StatePlanned  = "planned"
	StateCreating = "creating"
	StateRunning  = "running" // its build's number is known
	StateFinished = "finished"
)

// ErrLeaseLost says that a planned run belongs to somebody else by now, or has
// finished: whoever gets it must leave the run alone.
var ErrLeaseLost = errors.New("the lease of this planned run is lost")

// A PlannedRun is one evaluation that was promised to a submitter, held by a
// lease: until Until nobody else gets it.
type PlannedRun struct {
	RunID      string
	Submission int64
	UserID     string
	Board      string
	GPU, Mode  string
	Secret     bool
	Priority   int // smaller goes first, see [queue.PriorityBulk]

	State       string
	BuildNumber int64 // 0: not known
	BuildID     string

	Created time.Time // it was planned
	Changed time.Time // it came into its state, or its lease changed hands
	Started time.Time // somebody began to make its build; zero: nobody has

	Fence int64 // rises with every claim
	Until time.Time
}

// Claim takes at most n runs that nobody holds, for as long as hold: first those
// that somebody had begun, then those that wait, in their order (see [Store.Line]).
// Of those on a GPU type, no more are taken than room says may be under way there
// at once; nil is no bound, and a GPU type that room does not name gets none.
func (s *Store) Claim(ctx context.Context, owner string, n int, room map[string]int, hold time.Duration) (claimed []PlannedRun, err error) {
	err = s.change(ctx, "claiming planned runs", func(tx *sql.Tx) error {
		claimed = nil
		if s.db.Kind == database.Postgres { // two that count what is under way would both take the last place
			if _, err := s.db.Exec(ctx, tx, `SELECT pg_advisory_xact_lock($1)`, claimLock); err != nil {
				return err
			}
		}
		now, err := s.clock(ctx, tx)
		if err != nil {
			return err
		}
		err = s.db.Each(ctx, tx, func(rows *sql.Rows) error {
			var p PlannedRun
			err := p.scan(rows)
			claimed = append(claimed, p)
			return err
		}, `SELECT `+plannedColumns+plannedFrom+`WHERE p.state IN ('creating', 'running') AND p.free_at <= $1 ORDER BY p.started_at, p.run_id LIMIT $2`, database.Stamp{Time: now}, n)
		if err != nil {
			return err
		}
		if len(claimed) < n {
			more, err := s.next(ctx, tx, n-len(claimed), room, now)
			if err != nil {
				return err
			}
			claimed = append(claimed, more...)
		}
		for i := range claimed {
			p := &claimed[i]
			p.Fence++
			p.Until = now.Add(hold)
			if _, err := s.db.Exec(ctx, tx, `UPDATE own.planned_run SET fence = $2, lease_owner = $3, free_at = $4, changed_at = $5 WHERE run_id = $1`, p.RunID, p.Fence, owner, database.Stamp{Time: p.Until}, database.Stamp{Time: s.now()}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return claimed, nil
}

const claimLock = 0x6b62736572766501 // of those who claim, among PostgreSQL's advisory locks

// next chooses among the runs that wait.
func (s *Store) next(ctx context.Context, tx *sql.Tx, n int, room map[string]int, now time.Time) (chosen []PlannedRun, err error) {
	left := maps.Clone(room)
	err = s.db.Each(ctx, tx, func(rows *sql.Rows) error {
		var gpu string
		var under int
		err := rows.Scan(&gpu, &under)
		if left != nil {
			left[gpu] -= under
		}
		return err
	}, `SELECT gpu, count(*) FROM own.planned_run WHERE state IN ('creating', 'running') OR state = 'planned' AND free_at > $1 GROUP BY gpu`, database.Stamp{Time: now})
	if err != nil {
		return nil, err
	}
	waiting, err := s.waiting(ctx, tx, n, left, now)
	if err != nil || len(waiting) == 0 {
		return nil, err
	}
	begun, err := s.begun(ctx, tx, now)
	if err != nil {
		return nil, err
	}
	for _, p := range inTurn(waiting, begun) {
		if len(chosen) == n {
			break
		}
		if room != nil {
			if left[p.GPU] <= 0 {
				continue
			}
			left[p.GPU]--
		}
		chosen = append(chosen, p)
	}
	return chosen, nil
}

// waiting reads the runs that wait on GPU types with places left, nil being all. Of one
// user's runs on a GPU type in a band, the first n are enough: a long line is not read
// as a whole.
func (s *Store) waiting(ctx context.Context, tx *sql.Tx, n int, left map[string]int, now time.Time) (waiting []PlannedRun, err error) {
	args, only := []any{database.Stamp{Time: now}, n, queue.PriorityBulk}, ""
	for gpu, places := range left {
		if places > 0 {
			args = append(args, gpu)
			only += fmt.Sprintf(", $%d", len(args))
		}
	}
	if left != nil && only == "" {
		return nil, nil
	} else if only != "" {
		only = " AND w.gpu IN (" + only[2:] + ")"
	}
	err = s.db.Each(ctx, tx, func(rows *sql.Rows) error {
		var p PlannedRun
		err := p.scan(rows)
		waiting = append(waiting, p)
		return err
	}, `SELECT `+plannedColumns+plannedFrom+`JOIN (
			SELECT w.run_id, row_number() OVER (PARTITION BY o.user_id, w.gpu, CASE WHEN w.priority < 0 THEN 0 WHEN w.priority < $3 THEN 1 ELSE 2 END ORDER BY w.priority, w.created_at, w.run_id) AS place
			FROM own.planned_run w JOIN lb.submission o ON o.id = w.submission_id WHERE w.state = 'planned' AND w.free_at <= $1`+only+`
		) f ON f.run_id = p.run_id WHERE f.place <= $2`, args...)
	return waiting, err
}

// Creating says that a build is about to be made for the run, and that its
// submission is being worked on. It is committed before the request is sent.
//
// Errors of this and the following methods: [ErrLeaseLost].
func (s *Store) Creating(ctx context.Context, p PlannedRun) error {
	return s.change(ctx, "marking a run as creating", func(tx *sql.Tx) error {
		if err := s.held(ctx, tx, p, `state = 'creating', changed_at = $3, started_at = coalesce(started_at, $3)`, database.Stamp{Time: s.now()}); err != nil {
			return err
		}
		_, err := s.db.Exec(ctx, tx, `UPDATE lb.submission_job_status SET status = $2, last_heartbeat = $3 WHERE submission_id = $1 AND status IN ('initial', 'pending')`,
			p.Submission, StatusRunning, database.Stamp{Time: s.now()})
		if err != nil {
			return err
		}
		return s.tell(ctx, tx, submissionSignal(p.Submission))
	})
}

// Built keeps the build that was made or found for the run.
func (s *Store) Built(ctx context.Context, p PlannedRun, number int64, id string) error {
	return s.change(ctx, "keeping a run's build", func(tx *sql.Tx) error {
		if err := s.held(ctx, tx, p, `state = 'running', changed_at = $3, build_number = $4, build_id = $5`, database.Stamp{Time: s.now()}, number, id); err != nil {
			return err
		}
		return s.tell(ctx, tx, submissionSignal(p.Submission))
	})
}

// Renew holds the run for as long as hold from now; hold 0 gives it back, and a
// negative one is an error. Its submission's heartbeat is now.
func (s *Store) Renew(ctx context.Context, p PlannedRun, hold time.Duration) error {
	if hold < 0 {
		return fmt.Errorf("renewing a lease: got %v, want 0 or more", hold)
	}
	return s.change(ctx, "renewing a lease", func(tx *sql.Tx) error {
		now, err := s.clock(ctx, tx)
		if err != nil {
			return err
		}
		if err := s.held(ctx, tx, p, `free_at = $3`, database.Stamp{Time: now.Add(hold)}); err != nil {
			return err
		}
		_, err = s.db.Exec(ctx, tx, `UPDATE lb.submission_job_status SET last_heartbeat = $2 WHERE submission_id = $1 AND status IN ('pending', 'running')`, p.Submission, database.Stamp{Time: now})
		if err != nil || hold > 0 {
			return err
		}
		return s.tell(ctx, tx, Signal{Kind: SignalPlanned})
	})
}

// held changes a planned run if the lease still holds; args are $3 and on. The fence is what counts,
// not the clock: as long as nobody else has claimed the run, its holder may end
// what it began.
func (s *Store) held(ctx context.Context, tx *sql.Tx, p PlannedRun, set string, args ...any) error {
	n, err := s.db.Exec(ctx, tx, `UPDATE own.planned_run SET `+set+` WHERE run_id = $1 AND fence = $2 AND state <> 'finished'`,
		append([]any{p.RunID, p.Fence}, args...)...)
	if err == nil && n == 0 {
		err = ErrLeaseLost
	}
	return err
}
