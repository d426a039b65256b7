package store

import (
	"bytes"
	"cmp"
	"compress/zlib"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
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
		return s.Fail(ctx, p, StatusFailed, r.Outcome.Name, r.Error)
	}
	return s.end(ctx, p, "recording a result", "", r.Outcome.Name, func(t *tx) {
		// The results of a re-evaluation may take the place of those there are.
		t.exec(`DELETE FROM lb.runs WHERE submission_id = $1 AND runner = $2 AND secret = $3
			AND EXISTS (SELECT 1 FROM own.planned_run WHERE run_id = $4 AND again = $5)`, p.Submission, p.GPU, p.Secret, p.RunID, againInstead)
		t.insertRuns(p.Submission, p.GPU, p.Secret, r)
		if p.Secret || raw == nil {
			return
		}
		board := value[int64](t, `SELECT leaderboard_id FROM lb.submission WHERE id = $1`, p.Submission)
		t.exec(`INSERT INTO own.report (run_id, submission_id, body, task, created_at) VALUES ($1, $2, $3, $4, $5)`,
			p.RunID, p.Submission, pack(raw), t.taskDigest(board), s.now())
	})
}

// Fail ends a planned run that has no result: status is failed or timed_out, outcome
// is the name of one of [schema.Outcomes], and why is for the submitter.
func (s *Store) Fail(ctx context.Context, p PlannedRun, status, outcome, why string) error {
	if status != StatusFailed && status != StatusTimedOut {
		return fmt.Errorf("ending a planned run: status: got %q, want failed or timed_out", status)
	}
	why = text.Line(why, maxError)
	why = cmp.Or(why, "the evaluation did not work")
	if p.Secret {
		why = "the secret evaluation did not work" // its words may tell cases
	}
	return s.end(ctx, p, "ending a planned run", status, outcome, func(t *tx) {
		t.exec(`UPDATE lb.submission_job_status SET error = coalesce(error, $2) WHERE submission_id = $1
			AND EXISTS (SELECT 1 FROM own.planned_run WHERE run_id = $3 AND again = '')`, p.Submission, why+" ("+p.GPU+")", p.RunID)
	})
}

// end finishes a planned run around what is stored of it. status is "" if it has a
// result.
func (s *Store) end(ctx context.Context, p PlannedRun, what, status, outcome string, keep func(*tx)) error {
	return s.change(ctx, what, func(t *tx) {
		t.lockOwner(p.Submission)
		t.held(p, `state = 'finished', outcome = $3, changed_at = $4, finished_at = $4, result_outcome = $5`, status, s.now(), text.Line(outcome, 40))
		keep(t)
		t.judge(p.Submission)
		t.finish(p.Submission)
	})
}

// lockOwner locks the user whose submission it is.
//
// Errors: [ErrNotFound] when the submission is gone.
func (t *tx) lockOwner(submission int64) {
	const owner = `SELECT user_id FROM lb.submission WHERE id = $1`
	t.lockUser(value[string](t, owner, submission))
	value[string](t, owner, submission) // whoever held the lock may have deleted it
}

// finish marks the submission as done when none of its planned runs is open.
func (t *tx) finish(submission int64) {
	t.tell(submissionSignal(submission), Signal{Kind: SignalPlanned})
	var open, failed, late int
	// Further evaluations do not fail a submission by not working, and make up for
	// first ones that did not.
	t.get(dest{&open, &failed, &late}, `SELECT count(CASE WHEN state <> 'finished' THEN 1 END), count(CASE WHEN counts AND outcome = 'failed' THEN 1 END), count(CASE WHEN counts AND outcome = 'timed_out' THEN 1 END)
		FROM (SELECT p.state, p.outcome, p.again = '' AND NOT EXISTS (SELECT 1 FROM own.planned_run q WHERE q.submission_id = p.submission_id AND q.gpu = p.gpu AND q.secret = p.secret
			AND q.again <> '' AND q.state = 'finished' AND q.outcome = '') AS counts FROM own.planned_run p WHERE p.submission_id = $1) r`, submission)
	if open > 0 {
		return
	}
	status := StatusSucceeded
	if failed > 0 {
		status = StatusFailed
	} else if late > 0 {
		status = StatusTimedOut
	}
	var why *string
	if status == StatusSucceeded {
		for _, v := range t.verdicts(submission) {
			if !v.Ranks && v.Reason != "after the deadline" {
				words := v.Reason + " on " + v.GPU + ": the submission does not rank"
				status, why = StatusFailed, &words
			}
		}
	}
	// A submission that was marked as hacked stays so.
	t.exec(`UPDATE lb.submission_job_status SET status = $2, error = CASE WHEN $5 THEN NULL ELSE coalesce(error, $3) END, last_heartbeat = $4 WHERE submission_id = $1 AND coalesce(status, '') <> 'hacked'`,
		submission, status, why, t.now(), status == StatusSucceeded)
	t.exec(`UPDATE lb.submission SET done = true WHERE id = $1`, submission)
}

// insertRuns writes one row for each run, as Kernelbot does, and its evidence.
func (t *tx) insertRuns(submission int64, gpu string, secret bool, r *schema.Result) {
	statement := `SELECT coalesce(json_extract(l.task, '$.ranking_by'), '') FROM lb.submission s JOIN lb.leaderboard l ON l.id = s.leaderboard_id WHERE s.id = $1`
	if t.db.Kind == database.Postgres {
		statement = `SELECT coalesce(l.task->>'ranking_by', '') FROM lb.submission s JOIN lb.leaderboard l ON l.id = s.leaderboard_id WHERE s.id = $1`
	}
	rankingBy := value[string](t, statement, submission)
	system := t.column(map[string]any{"gpu": clean(r.System.GPU), "device_count": r.System.DeviceCount, "cpu": clean(r.System.CPU),
		"runtime": clean(r.System.Runtime), "platform": clean(r.System.Platform), "torch": clean(r.System.Torch), "hostname": clean(r.System.Hostname)})
	for _, run := range r.Runs {
		compilation, meta, report := t.columns(run)
		passed := run.Run != nil && run.Run.Passed
		var figure *string
		judging := judgingOf(r)
		if run.Name == schema.ModeLeaderboard {
			if v, err := verdict.RunScore(run.Run, rankingBy); err == nil {
				digits := strconv.FormatFloat(v, 'g', -1, 64)
				figure = &digits
				if low, high, ok := verdict.Interval(run.Run, r.Measurements, rankingBy); ok {
					judging.Low, judging.High = &low, &high
				}
			}
		}
		id := value[int64](t, `INSERT INTO lb.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed, compilation, meta, result, system_info)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING id`,
			submission, run.Start, run.End, text.Line(run.Name, 40), secret, gpu, figure, passed, compilation, meta, report, system)
		t.exec(`INSERT INTO own.run_evidence (run_id, harness, self_checked, sandbox, ambiguous, low, high, proved) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			id, judging.Harness, judging.SelfChecked, judging.Sandbox, judging.Ambiguous, judging.Low, judging.High, judging.Proved)
	}
}

func judgingOf(r *schema.Result) ranking.Judging {
	j := ranking.Judging{SelfChecked: r.SelfChecked, Ambiguous: len(r.Ambiguous) > 0}
	if r.Harness != nil {
		j.Harness, j.Proved = text.Line(r.Harness.Name, 40), r.Harness.Proof != nil
	}
	if r.Sandbox != nil {
		j.Sandbox = text.Line(r.Sandbox.Level, 40)
	}
	return j
}

// columns are a run's compilation, meta and result as Kernelbot keeps them. A
// program that was not compiled has neither printed nor reported anything.
func (t *tx) columns(run schema.Run) (compilation, meta, report *string) {
	if c := run.Compilation; c != nil {
		compilation = t.column(map[string]any{"nvcc_found": c.NvccFound, "nvcc_version": clean(c.NvccVersion), "success": c.Success,
			"command": clean(c.Command), "stdout": clean(c.Stdout), "stderr": clean(c.Stderr), "exit_code": c.ExitCode})
	}
	r := run.Run
	if r == nil {
		r = &schema.RunResult{}
		if run.Compilation != nil {
			r.ExitCode = run.Compilation.ExitCode
		}
	}
	meta = t.column(map[string]any{"stdout": clean(r.Stdout), "stderr": clean(r.Stderr), "success": r.Success,
		"exit_code": r.ExitCode, "command": clean(r.Command), "duration": r.Duration})
	entries := map[string]string{}
	for _, e := range r.Result {
		entries[clean(e.Key)] = clean(e.Value)
	}
	return compilation, meta, t.column(entries)
}

// A TooLargeError is a result with more text than is kept, in bytes of JSON.
type TooLargeError struct{ Got, Want int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("its result is too large: got %d bytes in one run, want at most %d", e.Got, e.Want)
}

func clean(s string) string { return text.Storable(text.Shorten(s, maxOutput)) }

// column is a value as a JSON column keeps it.
func (t *tx) column(v any) *string {
	data, err := json.Marshal(v)
	if err != nil {
		t.fail(fmt.Errorf("a run's column as JSON: %w", err))
	}
	if len(data) > maxColumn {
		t.fail(&TooLargeError{Got: len(data), Want: maxColumn})
	}
	text := string(data)
	return &text
}

// A Report is what a public run's evaluation reported.
type Report struct {
	RunID  string
	GPU    string
	Raw    []byte         // result.json as it came
	Result *schema.Result // Raw, read
}

// Reports returns the reports of a submission's public runs, the oldest first; none
// of rows that Kernelbot wrote.
func (s *Store) Reports(ctx context.Context, submission int64) (reports []Report, err error) {
	err = s.read(ctx, fmt.Sprintf("reading the reports of submission %d", submission), func(t *tx) {
		var r Report
		var body []byte
		t.each(dest{&r.RunID, &r.GPU, &body}, func() {
			if r.Raw, t.err = unpack(body); t.err == nil {
				r.Result, t.err = schema.DecodeResult(r.Raw)
			}
			reports = append(reports, r)
		}, `SELECT r.run_id, p.gpu, r.body FROM own.report r JOIN own.planned_run p ON p.run_id = r.run_id WHERE r.submission_id = $1 AND NOT p.secret ORDER BY r.created_at, r.run_id`, submission)
	})
	return reports, err
}

// An Evaluation is what a planned run's payload is made of.
type Evaluation struct {
	Task *task.Task
	File schema.File // the submission, under its own name
	Seed *int64      // of a secret run: the board's; nil: the task's own
}

// Evaluation reads what a planned run evaluates, as it is now: a task that was
// changed after a submission came counts in its new form.
//
// Errors: [ErrNotFound]; a task that cannot be read.
func (s *Store) Evaluation(ctx context.Context, p PlannedRun) (*Evaluation, error) {
	e := &Evaluation{}
	var column, extension string
	var seed int64
	var code []byte
	err := s.read(ctx, "reading what a run evaluates", func(t *tx) {
		t.get(dest{&column, &extension, &seed, &e.File.Name, &code}, `SELECT CAST(l.task AS text), `+extensionColumn+`, l.secret_seed, s.file_name, c.code
			FROM lb.submission s JOIN lb.leaderboard l ON l.id = s.leaderboard_id JOIN lb.code_files c ON c.id = s.code_id
			LEFT JOIN own.board b ON b.leaderboard_id = l.id WHERE s.id = $1`, p.Submission)
	})
	if err != nil {
		return nil, err
	}
	if e.Task, err = taskFrom(column, extension); err != nil {
		return nil, wrap("reading the task of board "+p.Board, err)
	}
	e.File.Text = string(code)
	if p.Secret {
		e.Seed = &seed
	}
	return e, nil
}

// GPUs lists the GPU types that any board has, by name.
func (s *Store) GPUs(ctx context.Context) (gpus []string, err error) {
	err = s.read(ctx, "listing GPU types", func(t *tx) {
		gpus = values[string](t, `SELECT DISTINCT gpu_type FROM lb.gpu_type ORDER BY gpu_type`)
	})
	return gpus, err
}

// pack compresses a document for a column.
func pack(raw []byte) []byte {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	w.Write(raw) // into memory, which does not fail
	w.Close()
	return b.Bytes()
}

// unpack is the reverse of pack.
func unpack(body []byte) ([]byte, error) {
	r, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("a kept document: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(r, schema.MaxResult+1))
	if err == nil && len(raw) > schema.MaxResult {
		err = fmt.Errorf("got more than %d bytes", schema.MaxResult)
	}
	if err != nil {
		return nil, fmt.Errorf("a kept document: %w", err)
	}
	return raw, nil
}
