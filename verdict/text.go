package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/schema"
)

// A verdict is what a result says about the submission; with none it says
// nothing about it.
type verdict struct {
	passed, none bool
	outcome      schema.Outcome
}

// judge reads the outcome. A result without one, which only a runner of
// another make writes, is no verdict.
func judge(r *schema.Result) verdict {
	o := r.Outcome
	if o.Name == "" {
		o = schema.NewOutcome(schema.OutcomeUnsupported, "the result names no outcome")
	}
	return verdict{outcome: o, passed: o.Name == schema.OutcomePassed, none: o.Fault != schema.FaultNone && o.Fault != schema.FaultSubmission}
}

// words are the outcome on one line: "wrong: a case failed its check".
func (v verdict) words() string {
	s := v.outcome.Name
	if v.outcome.Text != "" {
		s += ": " + firstLine(v.outcome.Text)
	}
	if v.none && v.outcome.Retry {
		s += " (a fault of the " + v.outcome.Fault + ", worth another try)"
	} else if v.none {
		s += " (a fault of the " + v.outcome.Fault + ")"
	}
	return s
}

// reportText is what a person reads on stdout.
func reportText(s *submitCmd, v verdict, ranking string, report *launcher.Report) string {
	var b strings.Builder
	mark := "❌"
	if v.passed {
		mark = "✅"
	} else if v.none {
		mark = "❗"
	}
	fmt.Fprintf(&b, "%s %s\n", mark, v.words())
	for _, run := range report.Result.Runs {
		writeRun(&b, run)
	}
	score, err := launcher.Score(report.Result, ranking)
	switch {
	case errors.Is(err, launcher.ErrNoScore):
	case err != nil:
		fmt.Fprintf(&b, "\nno score: %s\n", firstLine(err.Error()))
	default:
		if ranking == "" {
			ranking = schema.RankLast
		}
		fmt.Fprintf(&b, "\nscore %s s = %s (%s)\n", strconv.FormatFloat(score, 'g', -1, 64), formatTime(score*1e9, 0), ranking)
	}
	fmt.Fprintf(&b, "\nbuild %s\n", report.BuildURL)
	return b.String()
}

// writeRun writes one phase: how it ended, then its cases.
func writeRun(b *strings.Builder, run schema.Run) {
	fmt.Fprintf(b, "\n%s: %s\n", firstLine(run.Name), ending(run.EvalResult))
	if c := run.Compilation; c != nil && !c.Success {
		writeQuote(b, lastLines(c.Stderr, 20))
		return
	}
	r := run.Run
	if r == nil {
		return
	}
	if _, ok := r.Result.Get("benchmark-count"); ok {
		writeBenchmarks(b, r.Result)
	} else {
		writeTests(b, r.Result)
	}
	if !r.Success {
		writeQuote(b, lastLines(r.Stderr, 20))
	}
}

func ending(e schema.EvalResult) string {
	switch r := e.Run; {
	case e.Compilation != nil && !e.Compilation.Success:
		return fmt.Sprintf("does not compile, exit status %d", e.Compilation.ExitCode)
	case r == nil:
		return "did not run"
	case r.ExitCode == 114 && !r.Success:
		return fmt.Sprintf("timed out after %.1f s", r.Duration)
	case !r.Success:
		return fmt.Sprintf("ended with exit status %d after %.1f s", r.ExitCode, r.Duration)
	case !r.Passed:
		return fmt.Sprintf("failed after %.1f s", r.Duration)
	default:
		return fmt.Sprintf("passed in %.1f s", r.Duration)
	}
}

// maxCases bounds what a report may make us print.
const maxCases = 1000

func writeTests(b *strings.Builder, r schema.Report) {
	for i := range maxCases {
		key := fmt.Sprintf("test.%d.", i)
		status, ok := r.Get(key + "status")
		if !ok {
			return
		}
		spec, _ := r.Get(key + "spec")
		mark, words := "❌", "error"
		if status == "pass" {
			mark, words = "✅", "message"
		}
		fmt.Fprintf(b, "  %s %s\n", mark, firstLine(spec))
		message, _ := r.Get(key + words)
		writeQuote(b, strings.ReplaceAll(message, `\n`, "\n"))
	}
}

func writeBenchmarks(b *strings.Builder, r schema.Report) {
	text, _ := r.Get("benchmark-count")
	n, _ := strconv.Atoi(text)
	for i := range min(n, maxCases) {
		key := fmt.Sprintf("benchmark.%d.", i)
		get := func(name string) string { v, _ := r.Get(key + name); return v }
		spec := firstLine(get("spec"))
		if get("status") == "fail" {
			fmt.Fprintf(b, "  ❌ %s\n", spec)
			writeQuote(b, strings.ReplaceAll(get("error"), `\n`, "\n"))
			continue
		}
		if profile := get("report"); profile != "" {
			fmt.Fprintf(b, "  %s\n", spec)
			writeQuote(b, profileText(profile))
			continue
		}
		fmt.Fprintf(b, "  %s\n     ⏱ %s", spec, timeText(get("mean"), get("err")))
		if get("best") != "" && get("worst") != "" {
			fmt.Fprintf(b, "  ⚡ %s 🐌 %s", timeText(get("best"), ""), timeText(get("worst"), ""))
		}
		b.WriteString("\n")
	}
}

// profileText decodes a profiler's report. Testers write base64 with "*" for
// "/", kbrun the standard one.
func profileText(report string) string {
	text, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(report, "*", "/"))
	if err != nil {
		return "the profiler's report is not base64"
	}
	return string(text)
}

// timeText formats nanoseconds as testers write them.
func timeText(ns, err string) string {
	v, parseErr := strconv.ParseFloat(ns, 64)
	if parseErr != nil {
		return firstLine(ns)
	}
	e, _ := strconv.ParseFloat(err, 64)
	return formatTime(v, e)
}

// formatTime gives nanoseconds, and their error unless it is 0, the unit and
// the digits of Kernelbot's reports.
//
// Source: gpu-mode/kernelbot, src/libkernelbot/utils.py, format_time.
func formatTime(ns, err float64) string {
	scale, unit := 1.0, "ns"
	switch {
	case ns > 2_000_000:
		scale, unit = 1e6, "ms"
	case ns > 2000:
		scale, unit = 1e3, "µs"
	}
	v, e := ns/scale, err/scale
	digits := 0
	switch {
	case v < 1:
		digits = -1 // as many as it takes
	case v < 10:
		digits = 2
	case v < 100:
		digits = 1
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if e == 0 {
		return text + " " + unit
	}
	if digits >= 0 {
		digits++
	}
	return fmt.Sprintf("%s ± %s %s", text, strconv.FormatFloat(e, 'f', digits, 64), unit)
}

// writeQuote indents foreign text, at most 40 lines of it.
func writeQuote(b *strings.Builder, text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, line := range lines {
		if i == 40 {
			fmt.Fprintf(b, "     > … %d more lines\n", len(lines)-i)
			return
		}
		fmt.Fprintf(b, "     > %s\n", firstLine(line))
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// firstLine makes foreign text safe for a terminal: one line, nothing that
// moves a cursor, at most 500 runes.
func firstLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '\t' || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if r := []rune(s); len(r) > 500 {
		s = string(r[:500]) + "…"
	}
	return strings.TrimRight(s, " ")
}
