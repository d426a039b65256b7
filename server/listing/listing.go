// Package listing reads the documents that an operator lists: submissions,
// and rankings. Its types are what kbserve prints with --json.
package listing

import (
	"context"
	"slices"

	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// Details are one submission with its runs.
type Details struct {
	store.Listed
	Runs []store.PolledRun  `json:"runs"`
	Open []store.PlannedRun `json:"open_runs"`
	None []store.PlannedRun `json:"runs_without_result"` // with the outcome of secret ones, which submitters do not see
	Code *string            `json:"code,omitempty"`      // with --code
}

// Show reads one submission.
func Show(ctx context.Context, s *store.Store, id int64) (*Details, error) {
	p, err := s.Poll(ctx, id)
	if err != nil {
		return nil, err
	}
	x := &Details{Listed: p.Listed, Runs: full(p.Runs), Open: full(p.Open), Code: &p.Code}
	x.Verdicts = full(p.Verdicts)
	planned, err := s.PlannedRuns(ctx, id)
	if err != nil {
		return nil, err
	}
	x.None = full(slices.DeleteFunc(planned, func(r store.PlannedRun) bool { return !r.NoResult }))
	for _, r := range p.Runs {
		x.GPU = r.Runner
	}
	for _, r := range p.Open {
		x.GPU = r.GPU
	}
	return x, nil
}

// full is a list that JSON writes as a list, empty or not.
func full[T any](list []T) []T { return append([]T{}, list...) }

// A Ranking is the ranking on one GPU type.
type Ranking struct {
	GPU     string          `json:"gpu_type"`
	Total   int             `json:"total"`   // who ranks, listed here or not
	Entries []ranking.Entry `json:"entries"` // in order
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
		all = append(all, Ranking{gpu, total, full(entries)})
	}
	return all, nil
}

// Submissions lists submissions, the newest first.
func Submissions(ctx context.Context, s *store.Store, q store.Query) ([]store.Listed, error) {
	list, err := s.Submissions(ctx, q)
	for i := range list {
		list[i].Verdicts = full(list[i].Verdicts)
	}
	return list, err
}
