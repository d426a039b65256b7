package store

import (
	"context"
	"database/sql"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
)

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
	err := s.db.Row(ctx, s.db.Read, `SELECT CAST(l.task AS text), coalesce(b.task_harness, ''), l.secret_seed, s.file_name, c.code, coalesce(u.user_name, '')
		FROM lb.submission s JOIN lb.leaderboard l ON l.id = s.leaderboard_id JOIN lb.code_files c ON c.id = s.code_id JOIN lb.user_info u ON u.id = s.user_id
		LEFT JOIN own.board b ON b.leaderboard_id = l.id WHERE s.id = $1`, p.Submission).
		Scan(&column, &harness, &seed, &e.File.Name, &code, &e.UserName)
	if err != nil {
		return nil, wrap("reading what a run evaluates", err)
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
	err = s.db.Each(ctx, s.db.Read, func(rows *sql.Rows) error {
		var gpu string
		err := rows.Scan(&gpu)
		gpus = append(gpus, gpu)
		return err
	}, `SELECT DISTINCT gpu_type FROM lb.gpu_type ORDER BY gpu_type`)
	return gpus, wrap("listing GPU types", err)
}
