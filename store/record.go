package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store/database"
	"github.com/gpu-mode/kbgen/store/ranking"
	"github.com/gpu-mode/kbgen/verdict"
)

// Statuses of a submission's job, as Kernelbot and its clients know them.
const (
	StatusPending   = "pending"
	StatusRunning   = "running"
	StatusSucceeded = "succeeded" // the machinery worked
	StatusFailed    = "failed"
	StatusTimedOut  = "timed_out"
	StatusHacked    = "hacked"
)

const (
	maxOutput = 256 << 10 // runes kept of what a run printed, each stream
	maxColumn = 16 << 20  // bytes of one JSON column
	maxError  = 1000      // runes of a job's error
)

// Record stores the result of a planned run and ends it: its rows, evidence,
// verdicts and standings, and with the last run of the submission its status and
// done, in one transaction. A result that says the evaluation itself did not work
// has no rows and is [Store.Fail].
//
// raw is result.json as it came, nil for none. Of a public run it is kept whole.
//
// Errors: [ErrLeaseLost], also when the run has a result already; [*TooLargeError];
// [ErrNotFound] when the submission is gone.
func (s *Store) Record(ctx context.Context, p PlannedRun, r *schema.Result, raw []byte) error {
	if !r.Success {
		return s.Fail(ctx, p, StatusFailed, r.Error)
	}
	return s.end(ctx, p, "recording a result", "", func(tx *sql.Tx) error {
		if err := s.replace(ctx, tx, p); err != nil {
			return err
		}
		if err := s.insertRuns(ctx, tx, p.Submission, p.GPU, p.Secret, r); err != nil || p.Secret || raw == nil {
			return err
		}
		var board int64
		if err := s.db.Row(ctx, tx, `SELECT leaderboard_id FROM lb.submission WHERE id = $1`, p.Submission).Scan(&board); err != nil {
			return err
		}
		digest, err := s.taskDigest(ctx, tx, board)
		if err != nil {
			return err
		}
		_, err = s.db.Exec(ctx, tx, `INSERT INTO own.report (run_id, submission_id, body, task, created_at) VALUES ($1, $2, $3, $4, $5)`,
			p.RunID, p.Submission, pack(raw), digest, database.Stamp{Time: s.now()})
		return err
	})
}

// Fail ends a planned run that has no result: status is failed or timed_out, and
// why is for the submitter.
func (s *Store) Fail(ctx context.Context, p PlannedRun, status, why string) error {
	if status != StatusFailed && status != StatusTimedOut {
		return fmt.Errorf("ending a planned run: status: got %q, want failed or timed_out", status)
	}
	why = text.Line(why, maxError)
	if why == "" {
		why = "the evaluation did not work"
	}
	if p.Secret {
		why = "the secret evaluation did not work" // its words may tell cases
	}
	return s.end(ctx, p, "ending a planned run", status, func(tx *sql.Tx) error {
		_, err := s.db.Exec(ctx, tx, `UPDATE lb.submission_job_status SET error = coalesce(error, $2) WHERE submission_id = $1
			AND EXISTS (SELECT 1 FROM own.planned_run WHERE run_id = $3 AND again = '')`, p.Submission, why+" ("+p.GPU+")", p.RunID)
		return err
	})
}

// end finishes a planned run around what is stored of it.
func (s *Store) end(ctx context.Context, p PlannedRun, what, outcome string, keep func(tx *sql.Tx) error) error {
	return s.change(ctx, what, func(tx *sql.Tx) error {
		if err := s.lockOwner(ctx, tx, p.Submission); err != nil {
			return err
		}
		if err := s.held(ctx, tx, p, `state = 'finished', outcome = $3, changed_at = $4, finished_at = $4`, outcome, database.Stamp{Time: s.now()}); err != nil {
			return err
		}
		if err := keep(tx); err != nil {
			return err
		}
		if err := s.judge(ctx, tx, p.Submission); err != nil {
			return err
		}
		return s.finish(ctx, tx, p.Submission)
	})
}

// lockOwner locks the user whose submission it is.
//
// Errors: sql.ErrNoRows when the submission is gone.
func (s *Store) lockOwner(ctx context.Context, tx *sql.Tx, submission int64) error {
	var user string
	if err := s.db.Row(ctx, tx, `SELECT user_id FROM lb.submission WHERE id = $1`, submission).Scan(&user); err != nil {
		return err
	}
	if _, err := s.lockUser(ctx, tx, user); err != nil {
		return err
	}
	// Whoever held the lock may have deleted it.
	return s.db.Row(ctx, tx, `SELECT user_id FROM lb.submission WHERE id = $1`, submission).Scan(&user)
}

// finish marks the submission as done when none of its planned runs is open.
func (s *Store) finish(ctx context.Context, tx *sql.Tx, submission int64) error {
	if err := s.tell(ctx, tx, submissionSignal(submission), Signal{Kind: SignalPlanned}); err != nil {
		return err
	}
	var open, failed, late int
	// Further evaluations do not fail a submission by not working, and make up for
	// first ones that did not.
	err := s.db.Row(ctx, tx, `SELECT count(CASE WHEN state <> 'finished' THEN 1 END), count(CASE WHEN counts AND outcome = 'failed' THEN 1 END), count(CASE WHEN counts AND outcome = 'timed_out' THEN 1 END)
		FROM (SELECT p.state, p.outcome, p.again = '' AND NOT EXISTS (SELECT 1 FROM own.planned_run q WHERE q.submission_id = p.submission_id AND q.gpu = p.gpu AND q.secret = p.secret
			AND q.again <> '' AND q.state = 'finished' AND q.outcome = '') AS counts FROM own.planned_run p WHERE p.submission_id = $1) r`, submission).Scan(&open, &failed, &late)
	if err != nil || open > 0 {
		return err
	}
	status := StatusSucceeded
	if failed > 0 {
		status = StatusFailed
	} else if late > 0 {
		status = StatusTimedOut
	}
	var why sql.NullString
	if status == StatusSucceeded {
		verdicts, err := s.verdicts(ctx, tx, submission)
		if err != nil {
			return err
		}
		for _, v := range verdicts {
			if !v.Ranks && v.Reason != "after the deadline" {
				status, why = StatusFailed, sql.NullString{Valid: true, String: v.Reason + " on " + v.GPU + ": the submission does not rank"}
			}
		}
	}
	// A submission that was marked as hacked stays so.
	_, err = s.db.Exec(ctx, tx, `UPDATE lb.submission_job_status SET status = $2, error = CASE WHEN $5 THEN NULL ELSE coalesce(error, $3) END, last_heartbeat = $4 WHERE submission_id = $1 AND coalesce(status, '') <> 'hacked'`,
		submission, status, why, database.Stamp{Time: s.now()}, status == StatusSucceeded)
	if err == nil {
		_, err = s.db.Exec(ctx, tx, `UPDATE lb.submission SET done = true WHERE id = $1`, submission)
	}
	return err
}

// Verify adds the runs of a further evaluation to a submission that has finished:
// a late look at a secret run, say. What ranks changes with it.
//
// Errors: [ErrNotFound].
func (s *Store) Verify(ctx context.Context, submission int64, gpu string, secret bool, r *schema.Result) error {
	return s.change(ctx, "adding runs to a submission", func(tx *sql.Tx) error {
		if err := s.lockOwner(ctx, tx, submission); err != nil {
			return err
		}
		if err := s.insertRuns(ctx, tx, submission, gpu, secret, r); err != nil {
			return err
		}
		return s.judge(ctx, tx, submission)
	})
}

// insertRuns writes one row for each run, as Kernelbot does, and its evidence.
func (s *Store) insertRuns(ctx context.Context, tx *sql.Tx, submission int64, gpu string, secret bool, r *schema.Result) error {
	var rankingBy string
	statement := `SELECT coalesce(json_extract(l.task, '$.ranking_by'), '') FROM lb.submission s JOIN lb.leaderboard l ON l.id = s.leaderboard_id WHERE s.id = $1`
	if s.db.Kind == database.Postgres {
		statement = `SELECT coalesce(l.task->>'ranking_by', '') FROM lb.submission s JOIN lb.leaderboard l ON l.id = s.leaderboard_id WHERE s.id = $1`
	}
	if err := s.db.Row(ctx, tx, statement, submission).Scan(&rankingBy); err != nil {
		return err
	}
	system, err := column(map[string]any{"gpu": clean(r.System.GPU), "device_count": r.System.DeviceCount, "cpu": clean(r.System.CPU),
		"runtime": clean(r.System.Runtime), "platform": clean(r.System.Platform), "torch": clean(r.System.Torch), "hostname": clean(r.System.Hostname)})
	if err != nil {
		return err
	}
	for _, run := range r.Runs {
		compilation, meta, report, err := columns(run)
		if err != nil {
			return err
		}
		passed, figure := run.Run != nil && run.Run.Passed, sql.NullString{}
		judging := judgingOf(r)
		if run.Name == schema.ModeLeaderboard {
			if v, err := verdict.RunScore(run.Run, rankingBy); err == nil {
				figure = sql.NullString{Valid: true, String: strconv.FormatFloat(v, 'g', -1, 64)}
				if low, high, ok := verdict.Interval(run.Run, r.Measurements, rankingBy); ok {
					judging.Low, judging.High = &low, &high
				}
			}
		}
		var id int64
		err = s.db.Row(ctx, tx, `INSERT INTO lb.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed, compilation, meta, result, system_info)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING id`,
			submission, database.Stamp{Time: run.Start}, database.Stamp{Time: run.End}, text.Line(run.Name, 40), secret, gpu, figure, passed, compilation, meta, report, system).Scan(&id)
		if err != nil {
			return err
		}
		_, err = s.db.Exec(ctx, tx, `INSERT INTO own.run_evidence (run_id, harness, self_checked, sandbox, ambiguous, low, high) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			id, judging.Harness, judging.SelfChecked, judging.Sandbox, judging.Ambiguous, judging.Low, judging.High)
		if err != nil {
			return err
		}
	}
	return nil
}

func judgingOf(r *schema.Result) ranking.Judging {
	j := ranking.Judging{SelfChecked: r.SelfChecked, Ambiguous: len(r.Ambiguous) > 0}
	if r.Harness != nil {
		j.Harness = text.Line(r.Harness.Name, 40)
	}
	if r.Sandbox != nil {
		j.Sandbox = text.Line(r.Sandbox.Level, 40)
	}
	return j
}

// columns are a run's compilation, meta and result as Kernelbot keeps them. A
// program that was not compiled has neither printed nor reported anything.
func columns(run schema.Run) (compilation, meta, report sql.NullString, err error) {
	if c := run.Compilation; c != nil {
		if compilation, err = column(map[string]any{"nvcc_found": c.NvccFound, "nvcc_version": clean(c.NvccVersion), "success": c.Success,
			"command": clean(c.Command), "stdout": clean(c.Stdout), "stderr": clean(c.Stderr), "exit_code": c.ExitCode}); err != nil {
			return
		}
	}
	r := run.Run
	if r == nil {
		r = &schema.RunResult{}
		if run.Compilation != nil {
			r.ExitCode = run.Compilation.ExitCode
		}
	}
	if meta, err = column(map[string]any{"stdout": clean(r.Stdout), "stderr": clean(r.Stderr), "success": r.Success,
		"exit_code": r.ExitCode, "command": clean(r.Command), "duration": r.Duration}); err != nil {
		return
	}
	entries := map[string]string{}
	for _, e := range r.Result {
		entries[clean(e.Key)] = clean(e.Value)
	}
	report, err = column(entries)
	return
}

// A TooLargeError is a result with more text than is kept, in bytes of JSON.
type TooLargeError struct{ Got, Want int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("its result is too large: got %d bytes in one run, want at most %d", e.Got, e.Want)
}

func clean(s string) string { return text.Storable(text.Shorten(s, maxOutput)) }

func column(v any) (sql.NullString, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return sql.NullString{}, fmt.Errorf("a run's column as JSON: %w", err)
	}
	if len(data) > maxColumn {
		return sql.NullString{}, &TooLargeError{Got: len(data), Want: maxColumn}
	}
	return sql.NullString{Valid: true, String: string(data)}, nil
}
