package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
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
	Board      string
	GPU, Mode  string
	Secret     bool

	State       string
	BuildNumber int64 // 0: not known
	BuildID     string

	Fence int64 // rises with every claim
	Until time.Time
}

// Claim takes at most n runs that have not finished and that nobody holds, those
// of the highest priority and then the oldest first, for as long as hold.
func (s *Store) Claim(ctx context.Context, owner string, n int, hold time.Duration) (claimed []PlannedRun, err error) {
	err = s.change(ctx, "claiming planned runs", func(tx *sql.Tx) error {
		claimed = nil
		now, err := s.clock(ctx, tx)
		if err != nil {
			return err
		}
		err = s.each(ctx, tx, func(rows *sql.Rows) error {
			var p PlannedRun
			err := rows.Scan(&p.RunID, &p.Submission, &p.GPU, &p.Mode, &p.Secret, &p.State, &p.BuildNumber, &p.BuildID, &p.Fence)
			claimed = append(claimed, p)
			return err
		}, `SELECT run_id, submission_id, gpu, mode, secret, state, build_number, build_id, fence FROM own.planned_run
			WHERE state <> 'finished' AND free_at <= $1 ORDER BY priority, created_at, run_id LIMIT $2 {skip locked}`, stamp{now}, n)
		if err != nil {
			return err
		}
		for i := range claimed {
			p := &claimed[i]
			p.Fence++
			p.Until = now.Add(hold)
			if _, err := s.exec(ctx, tx, `UPDATE own.planned_run SET fence = $2, lease_owner = $3, free_at = $4 WHERE run_id = $1`, p.RunID, p.Fence, owner, stamp{p.Until}); err != nil {
				return err
			}
			err := s.row(ctx, tx, `SELECT l.name FROM lb.submission s JOIN lb.leaderboard l ON l.id = s.leaderboard_id WHERE s.id = $1`, p.Submission).Scan(&p.Board)
			if err != nil {
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

// Creating says that a build is about to be made for the run, and that its
// submission is being worked on. It is committed before the request is sent.
//
// Errors of this and the following methods: [ErrLeaseLost].
func (s *Store) Creating(ctx context.Context, p PlannedRun) error {
	return s.change(ctx, "marking a run as creating", func(tx *sql.Tx) error {
		if err := s.held(ctx, tx, p, `state = 'creating'`); err != nil {
			return err
		}
		_, err := s.exec(ctx, tx, `UPDATE lb.submission_job_status SET status = $2, last_heartbeat = $3 WHERE submission_id = $1 AND status IN ('initial', 'pending')`,
			p.Submission, StatusRunning, stamp{s.now()})
		return err
	})
}

// Built keeps the build that was made or found for the run.
func (s *Store) Built(ctx context.Context, p PlannedRun, number int64, id string) error {
	return s.change(ctx, "keeping a run's build", func(tx *sql.Tx) error {
		return s.held(ctx, tx, p, `state = 'running', build_number = $4, build_id = $5`, number, id)
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
		if err := s.held(ctx, tx, p, `free_at = $4`, stamp{now.Add(hold)}); err != nil {
			return err
		}
		_, err = s.exec(ctx, tx, `UPDATE lb.submission_job_status SET last_heartbeat = $2 WHERE submission_id = $1 AND status IN ('pending', 'running')`, p.Submission, stamp{now})
		return err
	})
}

// held changes a planned run if the lease still holds. The fence is what counts,
// not the clock: as long as nobody else has claimed the run, its holder may end
// what it began.
func (s *Store) held(ctx context.Context, tx *sql.Tx, p PlannedRun, set string, args ...any) error {
	n, err := s.exec(ctx, tx, `UPDATE own.planned_run SET changed_at = $3, `+set+` WHERE run_id = $1 AND fence = $2 AND state <> 'finished'`,
		append([]any{p.RunID, p.Fence, stamp{s.now()}}, args...)...)
	if err == nil && n == 0 {
		err = ErrLeaseLost
	}
	return err
}
