package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store/database"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// A Polled submission is what its owner may see of it, but for the scores of
// secret runs, which are for whoever decides about them.
type Polled struct {
	ID       int64
	BoardID  int64
	Board    string
	FileName string
	UserID   string
	Mode     string // "" when Kernelbot accepted it
	Time     time.Time
	Done     bool
	Hacked   bool
	Code     string
	Job      Job
	Runs     []PolledRun
	Open     []PlannedRun       // what has not finished; without lease
	Verdicts []ranking.Decision // of a ranked submission, by GPU type
}

// A Job is how far a submission is.
type Job struct {
	Status    string // "" when there is none
	Error     string
	Heartbeat time.Time
}

// A PolledRun is one row of runs.
type PolledRun struct {
	Start, End  time.Time
	Mode        string
	Secret      bool
	Runner      string
	Score       *float64
	Passed      bool
	Compilation json.RawMessage // these four are nil in a secret run
	Meta        json.RawMessage
	Result      json.RawMessage
	System      json.RawMessage
}

// Poll reads one submission.
//
// Errors: [ErrNotFound].
func (s *Store) Poll(ctx context.Context, id int64) (p *Polled, err error) {
	err = s.snapshot(ctx, fmt.Sprintf("reading submission %d", id), func(tx *sql.Tx) error {
		p, err = s.poll(ctx, tx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (s *Store) poll(ctx context.Context, tx *sql.Tx, id int64) (*Polled, error) {
	p := &Polled{ID: id}
	var at, heartbeat database.Stamp
	var code []byte
	err := s.db.Row(ctx, tx, `SELECT l.id, l.name, s.file_name, s.user_id, coalesce(a.mode, ''), s.submission_time, coalesce(s.done, false), s.status = 'hacked' OR coalesce(j.status, '') = 'hacked', c.code, coalesce(j.status, ''), coalesce(j.error, ''), j.last_heartbeat
		FROM lb.submission s JOIN lb.leaderboard l ON l.id = s.leaderboard_id JOIN lb.code_files c ON c.id = s.code_id
		LEFT JOIN own.accepted a ON a.submission_id = s.id LEFT JOIN lb.submission_job_status j ON j.submission_id = s.id WHERE s.id = $1`, id).
		Scan(&p.BoardID, &p.Board, &p.FileName, &p.UserID, &p.Mode, &at, &p.Done, &p.Hacked, &code, &p.Job.Status, &p.Job.Error, &heartbeat)
	if err != nil {
		return nil, err
	}
	p.Time, p.Job.Heartbeat, p.Code = at.Time, heartbeat.Time, string(code)
	if err := s.pollRuns(ctx, tx, p); err != nil {
		return nil, err
	}
	if p.Verdicts, err = s.verdicts(ctx, tx, id); err != nil {
		return nil, err
	}
	return p, s.pollOpen(ctx, tx, p)
}

func (s *Store) pollRuns(ctx context.Context, tx *sql.Tx, p *Polled) error {
	return s.db.Each(ctx, tx, func(rows *sql.Rows) error {
		var r PolledRun
		var start, end database.Stamp
		err := rows.Scan(&start, &end, &r.Mode, &r.Secret, &r.Runner, &r.Score, &r.Passed, (*[]byte)(&r.Compilation), (*[]byte)(&r.Meta), (*[]byte)(&r.Result), (*[]byte)(&r.System))
		r.Start, r.End = start.Time, end.Time
		if r.Secret {
			r.Compilation, r.Meta, r.Result, r.System = nil, nil, nil, nil
		}
		p.Runs = append(p.Runs, r)
		return err
	}, `SELECT start_time, end_time, mode, secret, runner, CAST(score AS double precision), passed, CAST(compilation AS text), CAST(meta AS text), CAST(result AS text), CAST(system_info AS text)
		FROM lb.runs WHERE submission_id = $1 ORDER BY secret, id`, p.ID)
}

func (s *Store) pollOpen(ctx context.Context, tx *sql.Tx, p *Polled) error {
	return s.db.Each(ctx, tx, func(rows *sql.Rows) error {
		var o PlannedRun
		err := o.scan(rows)
		p.Open = append(p.Open, o)
		return err
	}, `SELECT `+plannedColumns+plannedFrom+`WHERE p.submission_id = $1 AND p.state <> 'finished' ORDER BY p.priority, p.created_at, p.run_id`, p.ID)
}

// Delete removes a submission with its runs; its code stays, as others may have
// handed in the same. What its user ranks with is then the next best.
//
// Errors: [ErrNotFound].
func (s *Store) Delete(ctx context.Context, id int64) error {
	defer s.counts.forget()
	return s.change(ctx, fmt.Sprintf("deleting submission %d", id), func(tx *sql.Tx) error {
		if err := s.lockOwner(ctx, tx, id); err != nil {
			return err
		}
		affected, err := s.places(ctx, tx, id)
		if err != nil {
			return err
		}
		board, err := s.boardOf(ctx, tx, id)
		if err != nil {
			return err
		}
		for _, statement := range []string{`DELETE FROM lb.runs WHERE submission_id = $1`, `DELETE FROM lb.submission WHERE id = $1`} {
			if _, err := s.db.Exec(ctx, tx, statement, id); err != nil {
				return err
			}
		}
		if err := s.standings(ctx, tx, affected); err != nil {
			return err
		}
		return s.tell(ctx, tx, submissionSignal(id), Signal{Kind: SignalPlanned}, Signal{Kind: SignalBoard, ID: board})
	})
}

// MarkHacked takes a submission out of the ranking and keeps it, with the reason.
// Its planned runs are not evaluated any more.
//
// Errors: [ErrNotFound].
func (s *Store) MarkHacked(ctx context.Context, id int64, why string) error {
	return s.change(ctx, fmt.Sprintf("marking submission %d as hacked", id), func(tx *sql.Tx) error {
		if err := s.lockOwner(ctx, tx, id); err != nil {
			return err
		}
		now := database.Stamp{Time: s.now()}
		if _, err := s.db.Exec(ctx, tx, `UPDATE own.planned_run SET state = 'finished', changed_at = $2 WHERE submission_id = $1 AND state <> 'finished'`, id, now); err != nil {
			return err
		}
		if _, err := s.db.Exec(ctx, tx, `UPDATE lb.submission SET done = true, status = 'hacked' WHERE id = $1`, id); err != nil {
			return err
		}
		_, err := s.db.Exec(ctx, tx, `INSERT INTO lb.submission_job_status (submission_id, status, error, created_at) VALUES ($1, 'hacked', $2, $3)
			ON CONFLICT (submission_id) DO UPDATE SET status = 'hacked', error = excluded.error`, id, text.Line(why, maxError), now)
		if err != nil {
			return err
		}
		if err := s.judge(ctx, tx, id); err != nil {
			return err
		}
		board, err := s.boardOf(ctx, tx, id)
		if err != nil {
			return err
		}
		return s.tell(ctx, tx, submissionSignal(id), Signal{Kind: SignalPlanned}, Signal{Kind: SignalBoard, ID: board})
	})
}

// boardOf is the name of a submission's board.
func (s *Store) boardOf(ctx context.Context, on database.Querier, submission int64) (name string, err error) {
	err = s.db.Row(ctx, on, `SELECT l.name FROM lb.submission s JOIN lb.leaderboard l ON l.id = s.leaderboard_id WHERE s.id = $1`, submission).Scan(&name)
	return name, err
}

// CancelSubmission ends what of a submission has not finished: its status is
// failed, for the reason why. What it has results of stays. It returns the runs
// that may have builds, for whoever cancels those.
//
// Errors: [ErrNotFound]; [*Refusal] with Finished when nothing was open.
func (s *Store) CancelSubmission(ctx context.Context, id int64, why string) (builds []PlannedRun, err error) {
	err = s.change(ctx, fmt.Sprintf("cancelling submission %d", id), func(tx *sql.Tx) error {
		if err := s.lockOwner(ctx, tx, id); err != nil {
			return err
		}
		builds = nil
		open := 0
		err := s.db.Each(ctx, tx, func(rows *sql.Rows) error {
			var p PlannedRun
			err := p.scan(rows)
			if p.State != StatePlanned {
				builds = append(builds, p)
			}
			open++
			return err
		}, `SELECT `+plannedColumns+plannedFrom+`WHERE p.submission_id = $1 AND p.state <> 'finished'`, id)
		if err != nil {
			return err
		}
		if open == 0 {
			return &Refusal{Why: Finished, Text: fmt.Sprintf("submission %d has finished", id)}
		}
		now := database.Stamp{Time: s.now()}
		if _, err := s.db.Exec(ctx, tx, `UPDATE lb.submission_job_status SET error = coalesce(error, $2) WHERE submission_id = $1
			AND EXISTS (SELECT 1 FROM own.planned_run WHERE submission_id = $1 AND state <> 'finished' AND again = '')`, id, text.Line(why, maxError)); err != nil {
			return err
		}
		// The fence makes whoever works on them stop.
		if _, err := s.db.Exec(ctx, tx, `UPDATE own.planned_run SET state = 'finished', outcome = 'failed', fence = fence + 1, changed_at = $2 WHERE submission_id = $1 AND state <> 'finished'`, id, now); err != nil {
			return err
		}
		if err := s.judge(ctx, tx, id); err != nil {
			return err
		}
		return s.finish(ctx, tx, id)
	})
	return builds, err
}
