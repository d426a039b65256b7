package verdict

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
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
	line := func(quoted string) string { return text.Line(quoted, maxLine) }
	fmt.Fprintf(&b, "%s %s\n", mark, v.Words())
	for _, f := range v.explained() {
		fmt.Fprintf(&b, "   %s\n", f.render(line))
	}
	for i := range v.Runs {
		v.Runs[i].writeText(&b)
	}
	if closing := v.closing(); len(closing) > 0 {
		b.WriteString("\n")
		for _, f := range closing {
			fmt.Fprintf(&b, "%s\n", f.render(line))
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
	words := "⏱ " + Time(c.Mean)
	if e := nanoseconds(c.Err); e != nil && *e != 0 {
		words += " ± " + format.Time(*e)
	}
	if c.Best != "" && c.Worst != "" {
		words += "  ⚡ " + Time(c.Best) + " 🐌 " + Time(c.Worst)
	}
	if drawn := chart(c.Samples); drawn != "" {
		words += "  " + drawn
	}
	return words
}

// Time formats nanoseconds as a tester wrote them, and any other text as it is.
func Time(ns string) string {
	v, err := strconv.ParseFloat(ns, 64)
	if ns == "" || err != nil {
		return text.Line(ns, 40)
	}
	return format.Time(v)
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

// chartWidth is how many characters a chart has at most.
const chartWidth = 32

var bars = []rune("▁▂▃▄▅▆▇█")

// chart draws times as one line, in the order they were taken: each character
// is the mean of its share, the lowest bar the least and the highest the most.
// Below two samples there is nothing to see.
func chart(samples []float64) string {
	if samples = finite(samples); len(samples) < 2 {
		return ""
	}
	columns := make([]float64, min(len(samples), chartWidth))
	for i := range columns {
		share := samples[i*len(samples)/len(columns) : (i+1)*len(samples)/len(columns)]
		for _, v := range share {
			columns[i] += v / float64(len(share))
		}
	}
	least, most := slices.Min(columns), slices.Max(columns)
	var b strings.Builder
	for _, v := range columns {
		at := 0
		if most > least {
			at = int(math.Round((v/2 - least/2) / (most/2 - least/2) * float64(len(bars)-1))) // halves: no overflow
		}
		b.WriteRune(bars[min(max(at, 0), len(bars)-1)])
	}
	return b.String()
}

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
		fmt.Fprintf(&b, "  for GPU type %s, queue %s\n", cmp.Or(line(v.GPUType), "not named"), cmp.Or(line(v.Queue), "not named"))
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

// maxMarkdownCases bounds the lines for the cases of one phase.
const maxMarkdownCases = 50

// Markdown is the verdict for a Buildkite annotation: the outcome, then a list
// of what explains it, of the phases with their cases, and of score, device and
// harness. Foreign text stands in code spans, which nothing but a backtick ends.
// It has at most schema.MaxAnnotation bytes.
func (v *Verdict) Markdown() string {
	var b strings.Builder
	name := "**" + v.Outcome.Name + "**"
	if !slices.ContainsFunc(schema.Outcomes(), func(o schema.Outcome) bool { return o.Name == v.Outcome.Name }) {
		name = code(v.Outcome.Name) // foreign, like the rest
	}
	fmt.Fprintf(&b, "%s %s %s\n", name, code(v.RunID), code(v.Outcome.Text))
	list := func(facts []fact) {
		for i, f := range facts {
			if i == 0 {
				b.WriteString("\n") // a list of its own
			}
			fmt.Fprintf(&b, "- %s\n", f.render(code))
		}
	}
	list(v.explained())
	for i := range v.Runs {
		list(v.Runs[i].facts())
	}
	list(v.closing())
	return cut(b.String(), schema.MaxAnnotation)
}

// facts are a phase and its cases. The first line tells how it came out, and
// counts those that passed.
func (r *Run) facts() []fact {
	passed, lines := 0, []fact{}
	for i := range r.Cases {
		c := &r.Cases[i]
		switch {
		case c.Passed():
			passed++
		case c.Status != "":
			words := c.Spec
			if c.Message != "" {
				words += ": " + c.Message
			}
			lines = append(lines, fact{"❌ " + c.Key, words})
		case c.Profile == "" && c.Mean != "" && nanoseconds(c.Mean) == nil: // no number: foreign text
			lines = append(lines, fact{c.Key, c.Spec + ": " + c.Mean})
		case c.Profile == "" && c.Mean != "":
			lines = append(lines, fact{c.Key + " " + c.bounded().times(), c.Spec})
		}
	}
	if over := len(lines) - maxMarkdownCases; over > 0 {
		lines = append(lines[:maxMarkdownCases:maxMarkdownCases], fact{fmt.Sprintf("and %d more cases", over), ""})
	}
	words := r.words()
	if passed > 0 {
		words += fmt.Sprintf(", %d passed", passed)
	}
	return append([]fact{{words, r.Name}}, lines...)
}

// bounded is the case with those of its times left out that are no numbers: the
// others are words of ours.
func (c *Case) bounded() *Case {
	own := *c
	for _, ns := range []*string{&own.Err, &own.Best, &own.Worst} {
		if nanoseconds(*ns) == nil {
			*ns = ""
		}
	}
	return &own
}

// cut shortens a text to whole lines within limit bytes.
func cut(s string, limit int) string {
	const more = "- more is in the result\n"
	if len(s) <= limit {
		return s
	}
	s = s[:limit-len(more)]
	return s[:strings.LastIndexByte(s, '\n')+1] + more
}

// Style is the colour of the annotation, in Buildkite's words: success, error
// where somebody has to change something, warning where another machine may
// do.
func (v *Verdict) Style() string {
	switch v.Outcome.Fault {
	case schema.FaultNone:
		return "success"
	case schema.FaultSubmission, schema.FaultLauncher, schema.FaultTask:
		return "error"
	}
	return "warning"
}

func code(s string) string {
	s = strings.ReplaceAll(text.Line(s, maxLogLine), "`", "'")
	s = cmp.Or(s, "-") // two backticks alone would begin a longer span
	return "`" + s + "`"
}
