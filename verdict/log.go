package verdict

import (
	"fmt"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Bounds on what a log and an annotation show of a result.
const (
	maxLogCases  = 200 // lines for the cases of one phase
	maxLogLine   = 300 // runes of one foreign text
	maxAmbiguous = 5   // timings named
)

// Log is the verdict for the log of the job that judged: a group which
// Buildkite opens, then what [Verdict.Text] has beside the phases, and a chart of
// each case that has samples. No line begins with foreign text, which could open
// or close a group.
func (v *Verdict) Log() string {
	line := func(quoted string) string { return text.Line(quoted, maxLogLine) }
	var b strings.Builder
	fmt.Fprintf(&b, "+++ Verdict: %s\n  %s\n", line(v.Outcome.Name), line(v.Outcome.Text))
	if v.GPUType != "" || v.Queue != "" {
		fmt.Fprintf(&b, "  for GPU type %s, queue %s\n", orNone(v.GPUType), orNone(v.Queue))
	}
	for _, f := range v.explained() {
		fmt.Fprintf(&b, "  %s\n", f.render(line))
	}
	charts := 0
	for i := range v.Runs {
		for _, c := range v.Runs[i].Cases {
			if drawn := chart(c.Samples); drawn != "" && charts < maxLogCases {
				charts++
				fmt.Fprintf(&b, "  %s %s %s\n", line(v.Runs[i].Name), c.Key, drawn)
			}
		}
	}
	for _, f := range v.closing() {
		fmt.Fprintf(&b, "  %s\n", f.render(line))
	}
	return b.String()
}

func orNone(s string) string {
	if s == "" {
		return "not named"
	}
	return text.Line(s, maxLogLine)
}

// PhaseLog is one phase for the log of its job: a line for each case under its
// key in the report, so that it can be found there, and how the phase came out.
func PhaseLog(name string, e *schema.EvalResult) string {
	run := runOf(name, e)
	switch run.Status {
	case NotRun:
		return "  did not run\n"
	case CompileFailed:
		return fmt.Sprintf("  compilation failed with status %d\n", run.ExitCode)
	}
	var b strings.Builder
	for i := range run.Cases {
		c := &run.Cases[i]
		if i == maxLogCases {
			b.WriteString("  more cases are in the result\n")
			break
		}
		c.writeLog(&b)
	}
	word := "not passed"
	if e.Run.Passed {
		word = "passed"
	}
	fmt.Fprintf(&b, "  %s, exit status %d, %.2f s\n", word, run.ExitCode, run.Seconds)
	return b.String()
}

func (c *Case) writeLog(b *strings.Builder) {
	switch {
	case c.Status != "":
		fmt.Fprintf(b, "  %s %s", c.Key, text.Line(c.Status, maxLogLine))
	case c.Mean != "":
		fmt.Fprintf(b, "  %s %s", c.Key, c.times())
	default: // a profile, or nothing
		return
	}
	more := []string{c.Spec}
	if !c.Passed() {
		more = append(more, c.Message)
	}
	for _, m := range more {
		if m = text.Line(m, maxLogLine); m != "" {
			fmt.Fprintf(b, " | %s", m)
		}
	}
	b.WriteString("\n")
}
