package web

import (
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/verdict/view"
)

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
