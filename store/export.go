package store

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// exported is one line of [Store.Export].
type exported struct {
	ID       int64             `json:"submission_id"`
	Board    string            `json:"leaderboard_name"`
	UserID   string            `json:"user_id"`
	FileName string            `json:"file_name"`
	Time     time.Time         `json:"submission_time"`
	Mode     string            `json:"mode"`
	Done     bool              `json:"done"`
	Hacked   bool              `json:"hacked"`
	Status   string            `json:"status"`
	Error    string            `json:"error"`
	Code     *string           `json:"code,omitempty"`
	Runs     []exportedRun     `json:"runs"`
	Verdicts []exportedVerdict `json:"verdicts"`
}

type exportedRun struct {
	Start       time.Time       `json:"start_time"`
	End         time.Time       `json:"end_time"`
	Mode        string          `json:"mode"`
	Secret      bool            `json:"secret"`
	Runner      string          `json:"runner"`
	Passed      bool            `json:"passed"`
	Score       *float64        `json:"score"` // seconds; null in secret runs
	Compilation json.RawMessage `json:"compilation,omitempty"`
	Meta        json.RawMessage `json:"meta,omitempty"`
	Result      json.RawMessage `json:"result,omitempty"`
	System      json.RawMessage `json:"system_info,omitempty"`
}

type exportedVerdict struct {
	GPU    string   `json:"gpu_type"`
	Ranks  bool     `json:"ranks"`
	Reason string   `json:"reason"`
	Score  *float64 `json:"score"`
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
		Status: p.Job.Status, Error: p.Job.Error, Runs: []exportedRun{}, Verdicts: []exportedVerdict{}}
	if code {
		e.Code = &p.Code
	}
	for _, r := range p.Runs {
		x := exportedRun{Start: r.Start, End: r.End, Mode: r.Mode, Secret: r.Secret, Runner: r.Runner, Passed: r.Passed, Score: r.Score,
			Compilation: r.Compilation, Meta: r.Meta, Result: r.Result, System: r.System}
		if r.Secret {
			x.Score = nil
		}
		e.Runs = append(e.Runs, x)
	}
	for _, v := range p.Verdicts {
		e.Verdicts = append(e.Verdicts, exportedVerdict{v.GPU, v.Ranks, v.Reason, v.Score})
	}
	return e
}
