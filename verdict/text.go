package verdict

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema/text"
)

// maxLine bounds one line of foreign text, in runes.
const maxLine = 500

// maxQuoted bounds how many lines of one foreign text are shown.
const maxQuoted = 40

// Text is the verdict for a person at a terminal: the outcome, each phase with
// its cases, the score.
func (v *Verdict) Text() string {
	var b strings.Builder
	mark := "❌"
	if v.Passed {
		mark = "✅"
	} else if !v.Judged {
		mark = "❗"
	}
	line := func(foreign string) string { return text.Line(foreign, maxLine) }
	fmt.Fprintf(&b, "%s %s\n", mark, v.Words())
	for _, f := range v.explained() {
		fmt.Fprintf(&b, "   %s\n", f.shown(line))
	}
	for i := range v.Runs {
		v.Runs[i].writeText(&b)
	}
	if closing := v.closing(); len(closing) > 0 {
		b.WriteString("\n")
		for _, f := range closing {
			fmt.Fprintf(&b, "%s\n", f.shown(line))
		}
	}
	return b.String()
}

// writeText writes one phase: how it came out, then its cases.
func (r *Run) writeText(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s: %s\n", text.Line(r.Name, maxLine), r.words())
	for i := range r.Cases {
		r.Cases[i].writeText(b)
	}
	writeQuote(b, r.Output)
}

func (c *Case) writeText(b *strings.Builder) {
	spec := text.Line(c.Spec, maxLine)
	switch {
	case c.Passed():
		fmt.Fprintf(b, "  ✅ %s\n", spec)
		writeQuote(b, c.Message)
	case c.Status != "":
		fmt.Fprintf(b, "  ❌ %s\n", spec)
		writeQuote(b, c.Message)
	case c.Profile != "":
		fmt.Fprintf(b, "  %s\n", spec)
		writeQuote(b, c.Profile)
	default:
		fmt.Fprintf(b, "  %s\n     %s\n", spec, c.times())
	}
}

// times are a benchmark's mean with its error, the best, the worst, and a chart
// of the samples where there are some.
func (c *Case) times() string {
	words := "⏱ " + timeText(c.Mean, c.Err)
	if c.Best != "" && c.Worst != "" {
		words += "  ⚡ " + timeText(c.Best, "") + " 🐌 " + timeText(c.Worst, "")
	}
	if drawn := chart(c.Samples); drawn != "" {
		words += "  " + drawn
	}
	return words
}

// timeText formats nanoseconds as testers write them.
func timeText(ns, err string) string {
	v, parseErr := strconv.ParseFloat(ns, 64)
	if parseErr != nil {
		return text.Line(ns, maxLine)
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

// writeQuote indents foreign text. Its lines keep their own indentation, which
// a traceback needs.
func writeQuote(b *strings.Builder, s string) {
	s = strings.TrimRight(text.Lines(s), "\n")
	if strings.TrimSpace(s) == "" {
		return
	}
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if i == maxQuoted {
			fmt.Fprintf(b, "     > … %d more lines\n", len(lines)-i)
			return
		}
		line = text.Shorten(strings.ReplaceAll(line, "\t", " "), maxLine)
		fmt.Fprintf(b, "     > %s\n", strings.TrimRight(line, " "))
	}
}
