package store

import (
	"bytes"
	"compress/zlib"
	"context"
	"fmt"
	"io"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
)

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
		t.each(to{&r.RunID, &r.GPU, &body}, func() {
			if r.Raw, t.err = unpack(body); t.err == nil {
				r.Result, t.err = schema.DecodeResult(r.Raw)
			}
			reports = append(reports, r)
		}, `SELECT r.run_id, p.gpu, r.body FROM own.report r JOIN own.planned_run p ON p.run_id = r.run_id WHERE r.submission_id = $1 AND NOT p.secret ORDER BY r.created_at, r.run_id`, submission)
	})
	if err != nil {
		return nil, err
	}
	return reports, nil
}

// An Evaluation is what a planned run's payload is made of.
type Evaluation struct {
	Task     *task.Task
	File     schema.File // the submission, under its own name
	Seed     *int64      // of a secret run: the board's; nil: the task's own
	UserName string
}

// Evaluation reads what a planned run evaluates, as it is now: a task that was
// changed after a submission came counts in its new form.
//
// Errors: [ErrNotFound]; a task that cannot be read.
func (s *Store) Evaluation(ctx context.Context, p PlannedRun) (*Evaluation, error) {
	e := &Evaluation{}
	var column, harness string
	var seed int64
	var code []byte
	err := s.read(ctx, "reading what a run evaluates", func(t *tx) {
		t.get(to{&column, &harness, &seed, &e.File.Name, &code, &e.UserName}, `SELECT CAST(l.task AS text), coalesce(b.task_harness, ''), l.secret_seed, s.file_name, c.code, coalesce(u.user_name, '')
			FROM lb.submission s JOIN lb.leaderboard l ON l.id = s.leaderboard_id JOIN lb.code_files c ON c.id = s.code_id JOIN lb.user_info u ON u.id = s.user_id
			LEFT JOIN own.board b ON b.leaderboard_id = l.id WHERE s.id = $1`, p.Submission)
	})
	if err != nil {
		return nil, err
	}
	if e.Task, err = taskFrom(column, harness); err != nil {
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
