package store

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// reuseTime is how old a result may be that stands for a new evaluation: machines
// and runners change.
const reuseTime = 24 * time.Hour

// taskDigest names a board's task as it is now, with what judges it.
func (t *tx) taskDigest(board int64) string {
	var text, harness string
	t.get(to{&text, &harness}, `SELECT CAST(l.task AS text), coalesce(b.task_harness, '') FROM lb.leaderboard l LEFT JOIN own.board b ON b.leaderboard_id = l.id WHERE l.id = $1`, board)
	sum := sha256.Sum256([]byte(harness + "\x00" + text))
	return hex.EncodeToString(sum[:])
}

// reuse gives a submission in mode test, which nobody ranks by, the result that the
// same text has on the same GPU type of the same board, if the board wants that and
// the task was the same when that one came, when its result came, and now. It
// returns the id of the run that stands for the one that is saved, "" for none.
func (t *tx) reuse(in *Submission, id, board, code int64, digest string) (runID string) {
	if in.Mode != schema.ModeTest || in.Fresh || len(in.Runs) != 1 || in.Runs[0].Secret {
		return ""
	}
	var from int64
	var old string
	if !t.find(to{&from, &old}, `SELECT s.id, p.run_id FROM lb.submission s JOIN own.board b ON b.leaderboard_id = s.leaderboard_id JOIN own.accepted a ON a.submission_id = s.id
		JOIN lb.submission_job_status j ON j.submission_id = s.id JOIN own.planned_run p ON p.submission_id = s.id JOIN own.report r ON r.run_id = p.run_id
		WHERE b.reuse AND s.leaderboard_id = $1 AND s.code_id = $2 AND a.gpu = $3 AND a.mode = 'test' AND a.task = $4 AND r.task = $4 AND s.submission_time > $5
			AND s.done AND coalesce(s.status, '') <> 'hacked' AND j.status = 'succeeded' AND p.state = 'finished' AND p.outcome = '' AND p.again = '' AND NOT p.secret
		ORDER BY s.id DESC LIMIT 1`, board, code, in.GPU, digest, t.now().Add(-reuseTime)) {
		return ""
	}
	runID, now := in.Runs[0].ID, t.now()
	// Without the times at which it began and finished: nothing ran.
	t.exec(`INSERT INTO own.planned_run (run_id, submission_id, gpu, mode, secret, priority, state, build_number, build_id, free_at, created_at, changed_at)
		SELECT $1, $2, gpu, mode, secret, priority, state, build_number, build_id, $4, $4, $4 FROM own.planned_run WHERE run_id = $3`, runID, id, old, now)
	t.exec(`INSERT INTO own.report (run_id, submission_id, body, task, created_at) SELECT $1, $2, body, task, $4 FROM own.report WHERE run_id = $3`, runID, id, old, now)
	t.copyRuns(from, id, in.GPU)
	t.finish(id)
	return runID
}

// copyRuns copies the public rows that a submission has on a GPU type.
func (t *tx) copyRuns(from, target int64, gpu string) {
	for _, id := range values[int64](t, `SELECT id FROM lb.runs WHERE submission_id = $1 AND runner = $2 AND NOT secret ORDER BY id`, from, gpu) {
		var made int64
		t.get(to{&made}, `INSERT INTO lb.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed, compilation, meta, result, system_info)
			SELECT $1, start_time, end_time, mode, secret, runner, score, passed, compilation, meta, result, system_info FROM lb.runs WHERE id = $2 RETURNING id`, target, id)
		t.exec(`INSERT INTO own.run_evidence (run_id, harness, self_checked, sandbox, ambiguous, low, high)
			SELECT $1, harness, self_checked, sandbox, ambiguous, low, high FROM own.run_evidence WHERE run_id = $2`, made, id)
	}
}
