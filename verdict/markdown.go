package verdict

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Markdown is the verdict as a few lines for a Buildkite annotation. Foreign
// text stands in code spans, which nothing but a backtick ends.
func (v *Verdict) Markdown() string {
	var b strings.Builder
	name := "**" + v.Outcome.Name + "**"
	if !slices.ContainsFunc(schema.Outcomes(), func(o schema.Outcome) bool { return o.Name == v.Outcome.Name }) {
		name = code(v.Outcome.Name) // foreign, like the rest
	}
	fmt.Fprintf(&b, "%s %s %s\n", name, code(v.RunID), code(v.Outcome.Text))
	for i, a := range v.Ambiguous {
		if i == maxAmbiguous {
			fmt.Fprintf(&b, "\nand %d more\n", len(v.Ambiguous)-i)
			break
		}
		fmt.Fprintf(&b, "\nambiguous: %s\n", code(a))
	}
	return b.String()
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
	if s == "" {
		s = "-" // two backticks alone would begin a longer span
	}
	return "`" + s + "`"
}
