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
)

// parquetGroup is how many submissions are one row group: what is held in memory
// at a time.
const parquetGroup = 1000

// parquetRow is [exported] in Parquet. JSON columns are text.
type parquetRow struct {
	ID       int64            `parquet:"submission_id"`
	Board    string           `parquet:"leaderboard_name,dict"`
	UserID   string           `parquet:"user_id,dict"`
	FileName string           `parquet:"file_name,dict"`
	Time     time.Time        `parquet:"submission_time,timestamp(microsecond)"`
	Mode     string           `parquet:"mode,dict"`
	Done     bool             `parquet:"done"`
	Hacked   bool             `parquet:"hacked"`
	Status   string           `parquet:"status,dict"`
	Error    string           `parquet:"error"`
	Code     *string          `parquet:"code,optional"`
	Runs     []parquetRun     `parquet:"runs,list"`
	Verdicts []parquetVerdict `parquet:"verdicts,list"`
}

type parquetRun struct {
	Start       time.Time `parquet:"start_time,timestamp(microsecond)"`
	End         time.Time `parquet:"end_time,timestamp(microsecond)"`
	Mode        string    `parquet:"mode,dict"`
	Secret      bool      `parquet:"secret"`
	Runner      string    `parquet:"runner,dict"`
	Passed      bool      `parquet:"passed"`
	Score       *float64  `parquet:"score,optional"` // seconds; null in secret runs
	Compilation *string   `parquet:"compilation,optional"`
	Meta        *string   `parquet:"meta,optional"`
	Result      *string   `parquet:"result,optional"`
	System      *string   `parquet:"system_info,optional"`
}

type parquetVerdict struct {
	GPU    string   `parquet:"gpu_type,dict"`
	Ranks  bool     `parquet:"ranks"`
	Reason string   `parquet:"reason"`
	Score  *float64 `parquet:"score,optional"`
}

// ExportParquet is [Store.Export] as one Parquet file, compressed with Zstandard.
func (s *Store) ExportParquet(ctx context.Context, w io.Writer, board string, code bool) (count int, err error) {
	out := parquet.NewGenericWriter[parquetRow](w, parquet.Compression(&zstd.Codec{}), parquet.MaxRowsPerRowGroup(parquetGroup))
	count, err = s.export(ctx, board, code, func(e *exported) error {
		_, err := out.Write([]parquetRow{e.parquet()})
		return err
	})
	return count, errors.Join(err, out.Close())
}

func (e *exported) parquet() parquetRow {
	row := parquetRow{ID: e.ID, Board: e.Board, UserID: e.UserID, FileName: e.FileName, Time: e.Time, Mode: e.Mode, Done: e.Done, Hacked: e.Hacked, Status: e.Status, Error: e.Error, Code: e.Code}
	for _, r := range e.Runs {
		row.Runs = append(row.Runs, parquetRun{r.Start, r.End, r.Mode, r.Secret, r.Runner, r.Passed, r.Score, jsonText(r.Compilation), jsonText(r.Meta), jsonText(r.Result), jsonText(r.System)})
	}
	for _, v := range e.Verdicts {
		row.Verdicts = append(row.Verdicts, parquetVerdict(v))
	}
	return row
}

func jsonText(raw json.RawMessage) *string {
	if raw == nil {
		return nil
	}
	var b bytes.Buffer
	json.Compact(&b, raw) // the database holds JSON; what is none stays empty
	text := b.String()
	return &text
}
