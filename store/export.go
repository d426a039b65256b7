package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/gpu-mode/kbgen/store/ranking"
)

// exported is one line of [Store.Export], or one row of [Store.ExportParquet].
type exported struct {
	ID       int64              `json:"submission_id" parquet:"submission_id"`
	Board    string             `json:"leaderboard_name" parquet:"leaderboard_name,dict"`
	UserID   string             `json:"user_id" parquet:"user_id,dict"`
	FileName string             `json:"file_name" parquet:"file_name,dict"`
	Time     time.Time          `json:"submission_time" parquet:"submission_time,timestamp(microsecond)"`
	Mode     string             `json:"mode" parquet:"mode,dict"`
	Done     bool               `json:"done" parquet:"done"`
	Hacked   bool               `json:"hacked" parquet:"hacked"`
	Status   string             `json:"status" parquet:"status,dict"`
	Error    string             `json:"error" parquet:"error"`
	Code     *string            `json:"code,omitempty" parquet:"code,optional"`
	Runs     []exportedRun      `json:"runs" parquet:"runs,list"`
	Verdicts []ranking.Decision `json:"verdicts" parquet:"verdicts,list"`
}

type exportedRun struct {
	Start       time.Time `json:"start_time" parquet:"start_time,timestamp(microsecond)"`
	End         time.Time `json:"end_time" parquet:"end_time,timestamp(microsecond)"`
	Mode        string    `json:"mode" parquet:"mode,dict"`
	Secret      bool      `json:"secret" parquet:"secret"`
	Runner      string    `json:"runner" parquet:"runner,dict"`
	Passed      bool      `json:"passed" parquet:"passed"`
	Score       *float64  `json:"score" parquet:"score,optional"` // seconds; null in secret runs
	Compilation *document `json:"compilation,omitempty" parquet:"compilation,optional"`
	Meta        *document `json:"meta,omitempty" parquet:"meta,optional"`
	Result      *document `json:"result,omitempty" parquet:"result,optional"`
	System      *document `json:"system_info,omitempty" parquet:"system_info,optional"`
}

// A document is a JSON column: a part of the line in JSON, text in Parquet.
type document string

func (d document) MarshalJSON() ([]byte, error) { return []byte(d), nil }

func newDocument(raw json.RawMessage) *document {
	if raw == nil {
		return nil
	}
	var b bytes.Buffer
	json.Compact(&b, raw) // the database holds JSON
	d := document(b.String())
	return &d
}

// Export writes one state of the database as JSON lines, a submission each, by id:
// of one board, or of all with "". It has no seed, no CLI id and nothing of a
// secret run but whether it passed; code only if asked for.
//
// Errors: [ErrNotFound] for a board that does not exist.
func (s *Store) Export(ctx context.Context, w io.Writer, board string, code bool) (count int, err error) {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	return s.export(ctx, board, code, func(e *exported) error { return out.Encode(e) })
}

// parquetGroup is how many submissions are one row group: what is held in memory
// at a time.
const parquetGroup = 1000

// ExportParquet is [Store.Export] as one Parquet file, compressed with Zstandard.
func (s *Store) ExportParquet(ctx context.Context, w io.Writer, board string, code bool) (count int, err error) {
	out := parquet.NewGenericWriter[exported](w, parquet.Compression(&zstd.Codec{}), parquet.MaxRowsPerRowGroup(parquetGroup))
	count, err = s.export(ctx, board, code, func(e *exported) error {
		_, err := out.Write([]exported{*e})
		return err
	})
	return count, errors.Join(err, out.Close())
}

// export calls write for each submission, on one state of the database.
func (s *Store) export(ctx context.Context, board string, code bool, write func(*exported) error) (count int, err error) {
	err = s.snapshot(ctx, "exporting", func(t *tx) {
		if board != "" {
			t.named(board)
		}
		for _, id := range values[int64](t, `SELECT s.id FROM lb.submission s JOIN lb.leaderboard l ON l.id = s.leaderboard_id WHERE $1 = '' OR l.name = $1 ORDER BY s.id`, board) {
			p := t.poll(id)
			if t.err == nil {
				e := line(p, code)
				t.err = write(&e)
			}
			if t.err != nil {
				return
			}
			count++
		}
	})
	return count, err
}

func line(p *Polled, code bool) exported {
	e := exported{ID: p.ID, Board: p.Board, UserID: p.UserID, FileName: p.FileName, Time: p.Time, Mode: p.Mode, Done: p.Done, Hacked: p.Hacked,
		Status: p.Job.Status, Error: p.Job.Error, Runs: []exportedRun{}, Verdicts: append([]ranking.Decision{}, p.Verdicts...)}
	if code {
		e.Code = &p.Code
	}
	for _, r := range p.Runs {
		x := exportedRun{Start: r.Start, End: r.End, Mode: r.Mode, Secret: r.Secret, Runner: r.Runner, Passed: r.Passed, Score: r.Score,
			Compilation: newDocument(r.Compilation), Meta: newDocument(r.Meta), Result: newDocument(r.Result), System: newDocument(r.System)}
		if r.Secret {
			x.Score = nil
		}
		e.Runs = append(e.Runs, x)
	}
	return e
}
