package web

import (
	"fmt"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
	"github.com/gpu-mode/kbgen/verdict/view"
)

// fillTerms says what holds on a board.
func (s *site) fillTerms(r *request, b *store.Board, _ string, page *boardPage) error {
	add := func(name, text string) { page.Terms = append(page.Terms, view.Term{Name: name, Text: text}) }
	add("Deadline", b.Deadline.UTC().Format("2 January 2006, 15:04 UTC"))
	limits, err := s.Backend.Limits(r.Context(), r.viewer, b.Name)
	if err != nil {
		return err
	}
	add("Limits", limitWords(limits))
	if b.Task != nil {
		add("Language", languages[b.Task.Lang])
		add("Score", rankings[b.Task.RankingBy])
	}
	p := b.Policy
	if p == nil {
		p = &ranking.Policy{}
	}
	if p.Harness == schema.HarnessIsolated {
		add("Judge", "Only runs that a separate judge timed and checked: the submission holds neither the answers nor the clock.")
	} else {
		add("Judge", "The harness that the task brings, or a separate judge.")
	}
	switch p.Sandbox {
	case schema.SandboxFull:
		add("Sandbox", "Full: no network, no other processes, its own files only.")
	case schema.SandboxPartial:
		add("Sandbox", "At least partial: no privileges, no secrets, limits on what it starts.")
	default:
		add("Sandbox", "Any that the machine has; what it was is shown beside each result.")
	}
	if p.ClearTiming {
		add("Timing", "Only clear runs: not where the GPU was slowed down or somebody else was on it.")
	}
	if p.Ties {
		add("Ties", "Scores whose 95 % intervals overlap share a rank.")
	} else {
		add("Ties", "Equal scores share a rank.")
	}
	if b.Visibility == store.Closed {
		add("Access", "With an invite.")
	}
	return nil
}

var languages = map[string]string{schema.LangPython: "Python", schema.LangCUDA: "CUDA C++"}

var rankings = map[string]string{
	schema.RankLast: "The time of the last benchmark; lower is better.",
	schema.RankMean: "The mean time over all benchmarks; lower is better.",
	schema.RankGeom: "The geometric mean of the times of all benchmarks; lower is better.",
}

func limitWords(limits []store.Limit) string {
	if len(limits) == 0 {
		return "None."
	}
	var words []string
	for _, l := range limits {
		kind := "ranked submissions"
		if l.Category == schema.ModeTest {
			kind = "tests, benchmarks and profiles"
		}
		on := ""
		if l.GPU != "" {
			on = " on " + name(l.GPU)
		}
		if l.PerHour == 0 {
			words = append(words, fmt.Sprintf("no %s%s", kind, on))
			continue
		}
		words = append(words, fmt.Sprintf("%s %s an hour%s", format.Number(l.PerHour), kind, on))
	}
	return view.Sentence("for each user " + strings.Join(words, "; "))
}
