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

// jobState says how far a submission is.
func jobState(status string, done, hacked, waiting bool) view.State {
	switch {
	case hacked || status == store.StatusHacked:
		return view.State{Text: "does not count", Tone: "bad"}
	case status == store.StatusFailed:
		return view.State{Text: "failed", Tone: "bad"}
	case status == store.StatusTimedOut:
		return view.State{Text: "timed out", Tone: "bad"}
	case done || status == store.StatusSucceeded:
		return view.State{Text: "finished", Tone: "idle"}
	case status == store.StatusRunning && !waiting:
		return view.State{Text: "running", Tone: "busy"}
	}
	return view.State{Text: "waiting", Tone: "busy"}
}

// listedState says how a submission came out, in a list.
func listedState(l *store.Listed) view.State {
	s := jobState(l.Job.Status, l.Done, l.Hacked, false)
	if s.Text != "finished" {
		return s
	}
	for _, v := range l.Verdicts {
		if v.Ranks {
			return view.State{Text: "ranks", Tone: "good"}
		}
	}
	if len(l.Verdicts) > 0 {
		return view.State{Text: "does not rank", Tone: "warn"}
	}
	return s
}
