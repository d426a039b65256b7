package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/gpu-mode/kbgen/schema"
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
	err = s.db.Each(ctx, s.db.Read, func(rows *sql.Rows) error {
		var r Report
		var body []byte
		if err := rows.Scan(&r.RunID, &r.GPU, &body); err != nil {
			return err
		}
		if r.Raw, err = unpack(body); err == nil {
			r.Result, err = schema.DecodeResult(r.Raw)
		}
		reports = append(reports, r)
		return err
	}, `SELECT r.run_id, p.gpu, r.body FROM own.report r JOIN own.planned_run p ON p.run_id = r.run_id WHERE r.submission_id = $1 AND NOT p.secret ORDER BY r.created_at, r.run_id`, submission)
	if err != nil {
		return nil, wrap(fmt.Sprintf("reading the reports of submission %d", submission), err)
	}
	return reports, nil
}
