package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store/database"
)

// reuseTime is how old a result may be that stands for a new evaluation: machines
// and runners change.
const reuseTime = 24 * time.Hour

// taskDigest names a board's task as it is now, with what judges it.
func (s *Store) taskDigest(ctx context.Context, tx *sql.Tx, board int64) (string, error) {
	var text, harness string
	err := s.db.Row(ctx, tx, `SELECT CAST(l.task AS text), coalesce(b.task_harness, '') FROM lb.leaderboard l LEFT JOIN own.board b ON b.leaderboard_id = l.id WHERE l.id = $1`, board).Scan(&text, &harness)
	sum := sha256.Sum256([]byte(harness + "\x00" + text))
	return hex.EncodeToString(sum[:]), err
}

// reuse gives a submission in mode test, which nobody ranks by, the result that the
// same text has on the same GPU type of the same board, if the board wants that and
// the task was the same when that one came, when its result came, and now. It
// returns the id of the run that stands for the one that is saved, "" for none.
func (s *Store) reuse(ctx context.Context, tx *sql.Tx, in *Submission, to, board, code int64, digest string) (runID string, err error) {
	if in.Mode != schema.ModeTest || in.Fresh || len(in.Runs) != 1 || in.Runs[0].Secret {
		return "", nil
	}
	var from int64
	var old string
	err = s.db.Row(ctx, tx, `SELECT s.id, p.run_id FROM lb.submission s JOIN own.board b ON b.leaderboard_id = s.leaderboard_id JOIN own.accepted a ON a.submission_id = s.id
		JOIN lb.submission_job_status j ON j.submission_id = s.id JOIN own.planned_run p ON p.submission_id = s.id JOIN own.report r ON r.run_id = p.run_id
		WHERE b.reuse AND s.leaderboard_id = $1 AND s.code_id = $2 AND a.gpu = $3 AND a.mode = 'test' AND a.task = $4 AND r.task = $4 AND s.submission_time > $5
			AND s.done AND coalesce(s.status, '') <> 'hacked' AND j.status = 'succeeded' AND p.state = 'finished' AND p.outcome = '' AND p.again = '' AND NOT p.secret
		ORDER BY s.id DESC LIMIT 1`, board, code, in.GPU, digest, database.Stamp{Time: s.now().Add(-reuseTime)}).Scan(&from, &old)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	runID, now := in.Runs[0].ID, database.Stamp{Time: s.now()}
	// Without the times at which it began and finished: nothing ran.
	if _, err := s.db.Exec(ctx, tx, `INSERT INTO own.planned_run (run_id, submission_id, gpu, mode, secret, priority, state, build_number, build_id, free_at, created_at, changed_at)
		SELECT $1, $2, gpu, mode, secret, priority, state, build_number, build_id, $4, $4, $4 FROM own.planned_run WHERE run_id = $3`, runID, to, old, now); err != nil {
		return "", err
	}
	if _, err := s.db.Exec(ctx, tx, `INSERT INTO own.report (run_id, submission_id, body, task, created_at) SELECT $1, $2, body, task, $4 FROM own.report WHERE run_id = $3`, runID, to, old, now); err != nil {
		return "", err
	}
	if err := s.copyRuns(ctx, tx, from, to, in.GPU); err != nil {
		return "", err
	}
	return runID, s.finish(ctx, tx, to)
}

// copyRuns copies the public rows that a submission has on a GPU type.
func (s *Store) copyRuns(ctx context.Context, tx *sql.Tx, from, to int64, gpu string) error {
	var ids []int64
	err := s.db.Each(ctx, tx, func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	}, `SELECT id FROM lb.runs WHERE submission_id = $1 AND runner = $2 AND NOT secret ORDER BY id`, from, gpu)
	for _, id := range ids {
		var made int64
		if err == nil {
			err = s.db.Row(ctx, tx, `INSERT INTO lb.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed, compilation, meta, result, system_info)
				SELECT $1, start_time, end_time, mode, secret, runner, score, passed, compilation, meta, result, system_info FROM lb.runs WHERE id = $2 RETURNING id`, to, id).Scan(&made)
		}
		if err == nil {
			_, err = s.db.Exec(ctx, tx, `INSERT INTO own.run_evidence (run_id, harness, self_checked, sandbox, ambiguous, low, high)
				SELECT $1, harness, self_checked, sandbox, ambiguous, low, high FROM own.run_evidence WHERE run_id = $2`, made, id)
		}
	}
	return err
}
