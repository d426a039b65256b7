package web

import (
	"strings"

	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/verdict"
)

// A state is a state as a page shows it: in words, with a colour and a mark that
// only repeat what the words say.
type state struct {
	Text string
	Tone string // class: good, bad, warn, busy, idle
}

// jobState says how far a submission is.
func jobState(status string, done, hacked, waiting bool) state {
	switch {
	case hacked || status == store.StatusHacked:
		return state{"does not count", "bad"}
	case status == store.StatusFailed:
		return state{"failed", "bad"}
	case status == store.StatusTimedOut:
		return state{"timed out", "bad"}
	case done || status == store.StatusSucceeded:
		return state{"finished", "idle"}
	case status == store.StatusRunning && !waiting:
		return state{"running", "busy"}
	}
	return state{"waiting", "busy"}
}

// listedState says how a submission came out, in a list.
func listedState(l *store.Listed) state {
	s := jobState(l.Job.Status, l.Done, l.Hacked, false)
	if s.Text != "finished" {
		return s
	}
	for _, v := range l.Verdicts {
		if v.Ranks {
			return state{"ranks", "good"}
		}
	}
	if len(l.Verdicts) > 0 {
		return state{"does not rank", "warn"}
	}
	return s
}

// verdictState is the outcome of one evaluation.
func verdictState(v *verdict.Verdict) state {
	words := strings.ReplaceAll(v.Outcome.Name, "-", " ")
	switch {
	case v.Passed:
		return state{"passed", "good"}
	case v.Judged:
		return state{words, "bad"}
	}
	return state{words, "warn"}
}

// phaseState is how one phase came out.
func phaseState(status string) state {
	words := strings.ReplaceAll(status, "-", " ")
	switch status {
	case verdict.Passed:
		return state{words, "good"}
	case verdict.NotRun:
		return state{words, "idle"}
	}
	return state{words, "bad"}
}

// caseState is what the tester said of one case.
func caseState(c *verdict.Case) state {
	switch {
	case c.Status == "":
		return state{}
	case c.Passed():
		return state{"passed", "good"}
	}
	return state{"failed", "bad"}
}
