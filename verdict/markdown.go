package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

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
