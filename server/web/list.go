package web

import (
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/verdict/view"
)

// A listed submission is one line of somebody's own list.
type listed struct {
	ID        int64
	Path      string
	Board     string
	BoardPath string
	File      string
	GPU, Mode string
	User      string // "" on a page that is about one user
	UserPath  string
	When      view.Moment
	State     view.State
	Score     string
	Reason    string // why it does not rank, or failed
	Finished  bool
}

func newListed(all []store.Listed, r *request) []listed {
	out := make([]listed, len(all))
	for i := range all {
		l := &all[i]
		out[i] = listed{
			ID: l.ID, Path: submissionPath(l.ID), Board: name(l.Board), BoardPath: boardPath(l.Board, l.GPU), File: name(l.FileName),
			GPU: text.Line(l.GPU, maxName), Mode: view.Mode(l.Mode),
			When: newMoment(l.Time, r.now), State: listedState(l), Finished: l.Done,
		}
		for _, v := range l.Verdicts {
			if v.Score != nil {
				out[i].Score = format.Microseconds(*v.Score)
			}
			if v.Reason != "" && l.Done {
				out[i].Reason = view.Sentence(v.Reason)
			}
		}
		if out[i].Reason == "" {
			out[i].Reason = view.Sentence(l.Job.Error)
		}
	}
	return out
}
