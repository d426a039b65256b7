package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store/database"
)

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
