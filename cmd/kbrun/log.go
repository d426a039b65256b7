package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

// logger writes the job's log for people. Whatever came from a submission is
// made plain first and never begins a line, so that it cannot open a group.
type logger struct{ w io.Writer }

func (l logger) start(runID string, p *schema.Payload) {
	if runID == "" {
		runID = "no run id"
	}
	fmt.Fprintf(l.w, "--- Evaluating %s: %s, mode %s, %d tests, %d benchmarks\n", runID, p.Lang, p.Mode, len(p.Tests), len(p.Benchmarks))
}

// budget says so when the task's limits allow more time than the job has.
func (l logger) budget(p *schema.Payload, c clock) {
	if c.deadline.IsZero() {
		return
	}
	have := time.Until(c.deadline).Round(time.Second)
	switch budget, limited := p.Budget(); {
	case !limited:
		fmt.Fprintf(l.w, "  the task sets no limit; the job ends in %s\n", have)
	case budget > have:
		fmt.Fprintf(l.w, "  the task's limits allow %s in all; the job ends in %s\n", budget, have)
	}
}

func (l logger) phase(name string, result *schema.EvalResult) {
	if result == nil {
		fmt.Fprintf(l.w, "--- Phase %s\n", name)
		return
	}
	if c := result.Compilation; c != nil && !c.Success {
		fmt.Fprintf(l.w, "  compilation failed with status %d\n", c.ExitCode)
		return
	}
	l.cases(result.Run.Result)
	word := "not passed"
	if result.Run.Passed {
		word = "passed"
	}
	fmt.Fprintf(l.w, "  %s, exit status %d, %.2f s\n", word, result.Run.ExitCode, result.Run.Duration)
}

// maxCaseLines bounds how many lines a report may add to the log.
const maxCaseLines = 200

// cases prints a line per test and per benchmark.
func (l logger) cases(report schema.Report) {
	lines := 0
	for _, e := range report {
		prefix, last := e.Key, ""
		if i := strings.LastIndexByte(e.Key, '.'); i > 0 {
			prefix, last = e.Key[:i], e.Key[i+1:]
		}
		if last != "status" && last != "mean" {
			continue
		}
		if lines++; lines > maxCaseLines {
			fmt.Fprintf(l.w, "  more cases are in the result\n")
			return
		}
		get := func(name string) string { v, _ := report.Get(prefix + "." + name); return plain(v) }
		line := fmt.Sprintf("  %s %s", plain(prefix), plain(e.Value))
		if last == "mean" {
			line = fmt.Sprintf("  %s mean %s ns", plain(prefix), plain(e.Value))
		}
		for _, more := range []string{get("spec"), get("error")} {
			if more != "" {
				line += " | " + more
			}
		}
		fmt.Fprintln(l.w, line)
	}
}

func (l logger) verdict(r *schema.Result) {
	fmt.Fprintf(l.w, "+++ Verdict: %s\n  %s\n", r.Outcome.Name, plain(r.Outcome.Text))
	for _, doubt := range r.Ambiguous {
		fmt.Fprintf(l.w, "  ambiguous: %s\n", plain(doubt))
	}
	if r.SharedJudge {
		fmt.Fprintln(l.w, "  shared judge: the submission ran in a process that can write its report")
	}
	if r.Sandbox != nil {
		fmt.Fprintf(l.w, "  sandbox: %s\n", sandbox.Words(r.Sandbox))
	}
}

// plain makes foreign text safe for a terminal and a log: one line, no control
// or invisible characters, at most 300 characters.
func plain(s string) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n++; n > 300 {
			b.WriteRune('…')
			break
		}
		if !unicode.IsPrint(r) {
			r = ' '
		}
		b.WriteRune(r)
	}
	return strings.TrimSpace(b.String())
}
