// Package listing reads the documents that an operator lists: submissions,
// and rankings. Its types are what kbserve prints with --json.
package listing

import (
	"context"
	"time"

	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// A Submission is one line of a list.
type Submission struct {
	ID       int64      `json:"id"`
	Board    string     `json:"board"`
	FileName string     `json:"file_name"`
	GPU      string     `json:"gpu_type"` // "" when Kernelbot accepted it, and mode, too
	Mode     string     `json:"mode"`
	UserID   string     `json:"user_id"`
	UserName string     `json:"user_name"`
	Time     time.Time  `json:"submission_time"`
	Done     bool       `json:"done"`
	Hacked   bool       `json:"hacked"`
	Status   string     `json:"status"`
	Error    string     `json:"error"`
	Verdicts []Decision `json:"verdicts"`
}

// A Decision says whether a submission ranks on a GPU type.
type Decision struct {
	GPU    string   `json:"gpu_type"`
	Ranks  bool     `json:"ranks"`
	Reason string   `json:"reason"` // "" when it ranks
	Score  *float64 `json:"score"`  // seconds
}

func decisions(all []ranking.Decision) []Decision {
	list := []Decision{}
	for _, v := range all {
		list = append(list, Decision{v.GPU, v.Ranks, v.Reason, v.Score})
	}
	return list
}

// Details are one submission with its runs.
type Details struct {
	Submission
	Runs []Run     `json:"runs"`
	Open []OpenRun `json:"open_runs"`
	Code *string   `json:"code,omitempty"` // with --code
}

// A Run is one run that has finished.
type Run struct {
	GPU    string    `json:"gpu_type"`
	Mode   string    `json:"mode"`
	Secret bool      `json:"secret"`
	Passed bool      `json:"passed"`
	Score  *float64  `json:"score"` // seconds
	Start  time.Time `json:"start_time"`
	End    time.Time `json:"end_time"`
}

// An OpenRun is one that has not.
type OpenRun struct {
	RunID       string `json:"run_id"`
	GPU         string `json:"gpu_type"`
	Mode        string `json:"mode"`
	Secret      bool   `json:"secret"`
	State       string `json:"state"`
	BuildNumber int64  `json:"build_number"` // 0: not known
}

// Show reads one submission.
func Show(ctx context.Context, s *store.Store, id int64) (*Details, error) {
	p, err := s.Poll(ctx, id)
	if err != nil {
		return nil, err
	}
	u, err := s.User(ctx, p.UserID)
	if err != nil {
		return nil, err
	}
	x := &Details{Runs: []Run{}, Open: []OpenRun{}, Submission: Submission{ID: p.ID, Board: p.Board, FileName: p.FileName, Mode: p.Mode, UserID: p.UserID, UserName: u.Name,
		Time: p.Time, Done: p.Done, Hacked: p.Hacked, Status: p.Job.Status, Error: p.Job.Error, Verdicts: decisions(p.Verdicts)}, Code: &p.Code}
	for _, r := range p.Runs {
		x.Runs = append(x.Runs, Run{r.Runner, r.Mode, r.Secret, r.Passed, r.Score, r.Start, r.End})
		x.GPU = r.Runner
	}
	for _, r := range p.Open {
		x.Open = append(x.Open, OpenRun{r.RunID, r.GPU, r.Mode, r.Secret, r.State, r.BuildNumber})
		x.GPU = r.GPU
	}
	return x, nil
}

// A Ranking is the ranking on one GPU type.
type Ranking struct {
	GPU     string   `json:"gpu_type"`
	Total   int      `json:"total"`   // who ranks, listed here or not
	Entries []Ranked `json:"entries"` // in order
}

// A Ranked is one line of a ranking.
type Ranked struct {
	Rank       int       `json:"rank"`
	Tied       bool      `json:"tied"`
	Score      float64   `json:"score"` // seconds
	Submission int64     `json:"submission_id"`
	FileName   string    `json:"file_name"`
	Time       time.Time `json:"submission_time"`
	UserID     string    `json:"user_id"`
	UserName   string    `json:"user_name"`
}

// Rankings reads those of one GPU type, "" for all that the board has.
func Rankings(ctx context.Context, s *store.Store, board, gpu string, limit int) ([]Ranking, error) {
	b, err := s.Board(ctx, board)
	if err != nil {
		return nil, err
	}
	gpus := b.GPUs
	if gpu != "" {
		gpus = []string{gpu}
	}
	all := []Ranking{}
	for _, gpu := range gpus {
		entries, total, err := s.Page(ctx, board, gpu, limit, 0)
		if err != nil {
			return nil, err
		}
		r := Ranking{GPU: gpu, Total: total, Entries: []Ranked{}}
		for _, e := range entries {
			r.Entries = append(r.Entries, Ranked{e.Rank, e.Tied, e.Score, e.SubmissionID, e.FileName, e.Time, e.UserID, e.User})
		}
		all = append(all, r)
	}
	return all, nil
}

// Submissions lists submissions, the newest first.
func Submissions(ctx context.Context, s *store.Store, q store.Query) ([]Submission, error) {
	found, err := s.Submissions(ctx, q)
	list := []Submission{}
	for _, l := range found {
		list = append(list, Submission{l.ID, l.Board, l.FileName, l.GPU, l.Mode, l.UserID, l.User, l.Time, l.Done, l.Hacked, l.Job.Status, l.Job.Error, decisions(l.Verdicts)})
	}
	return list, err
}
