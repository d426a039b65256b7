package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/parquet-go/parquet-go"

	"github.com/gpu-mode/kbgen/internal/testenv"
)

// What a Parquet file has is what the JSON lines have.
func TestSlowParquet(t *testing.T) {
	testenv.NeedSlow(t)
	both(t, func(t *testing.T, s *Store) {
		ctx := context.Background()
		fill(t, s)
		const copies = 1100 // of a submission, more than a row group
		err := s.change(ctx, "copying", func(t *tx) {
			t.exec(`WITH RECURSIVE copy(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copy WHERE n < $1)
				INSERT INTO lb.submission (leaderboard_id, file_name, user_id, code_id, submission_time)
				SELECT leaderboard_id, file_name, user_id, code_id, submission_time FROM lb.submission, copy WHERE id = 1`, copies)
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range []bool{false, true} {
			var lines, file bytes.Buffer
			if n, err := s.Export(ctx, &lines, "sort", code); err != nil || n != 12+copies {
				t.Fatalf("Export = %d, %v", n, err)
			}
			if n, err := s.ExportParquet(ctx, &file, "sort", code); err != nil || n != 12+copies {
				t.Fatalf("ExportParquet = %d, %v", n, err)
			}
			r := parquet.NewGenericReader[exported](bytes.NewReader(file.Bytes()))
			defer r.Close()
			rows := make([]exported, 13+copies)
			if n, err := r.Read(rows); n != 12+copies || err != nil && !errors.Is(err, io.EOF) {
				t.Fatalf("the file has %d rows, %v", n, err)
			}
			dec := json.NewDecoder(&lines)
			for i := range 12 + copies {
				var want exported
				if err := dec.Decode(&want); err != nil {
					t.Fatal(err)
				}
				if (want.Code != nil) != code || i < 12 && (len(want.Runs) == 0 || len(want.Verdicts) == 0) {
					t.Fatalf("line %d is %+v", i, want)
				}
				if diff := cmp.Diff(want, rows[i], cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("row %d (-line +row):\n%s", i, diff)
				}
			}
			f, err := parquet.OpenFile(bytes.NewReader(file.Bytes()), int64(file.Len()))
			if err != nil || len(f.RowGroups()) != 2 {
				t.Errorf("the file has %d row groups, %v; want 2", len(f.RowGroups()), err)
			}
		}
		if _, err := s.ExportParquet(ctx, io.Discard, "none", false); !errors.Is(err, ErrNotFound) {
			t.Errorf("ExportParquet of no board: %v, want ErrNotFound", err)
		}
	})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (d *document) UnmarshalJSON(raw []byte) error {
	*d = document(raw)
	return nil
}
