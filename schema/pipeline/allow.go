package pipeline

import (
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// allowMark begins a comment that allows findings.
const allowMark = "kbgen:allow"

// An allowance covers the lines from first to last.
type allowance struct {
	rules       []string
	first, last int
}

var allowComment = text.Pattern(`^(\s*)(.*?)#\s*kbgen:allow\b\s*((?:KB\d+(?:,\s*|\s+|$))*)(.*)$`)

// allowances reads the comments that allow findings, and reports those that
// cannot be meant.
func (c *checker) allowances(text []byte) []allowance {
	var all []allowance
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		m := allowComment().FindStringSubmatchIndex(line)
		if m == nil {
			continue
		}
		at := schema.Finding{Line: i + 1, Column: m[5] + 1}
		ids := strings.FieldsFunc(line[m[6]:m[7]], func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
		if len(ids) == 0 || strings.TrimSpace(line[m[8]:m[9]]) == "" {
			c.add("KB008", at, "got an allowance without rules or without a reason, want \"# kbgen:allow KB205 the reason\"")
			continue
		}
		for _, id := range ids {
			if _, ok := c.severities[id]; !ok {
				c.add("KB008", at, "there is no rule %s", id)
			}
		}
		first := i + 1
		if line[m[4]:m[5]] == "" { // alone on its line: for what follows
			for first++; first <= len(lines) && commentOrBlank(lines[first-1]); first++ {
			}
		}
		all = append(all, allowance{rules: ids, first: first, last: c.lastLine(first)})
	}
	return all
}

func commentOrBlank(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || line[0] == '#'
}

// lastLine returns the last line of the step that begins on a line, or the line.
func (c *checker) lastLine(line int) int {
	for _, d := range c.documents {
		for _, s := range d.steps {
			if s.node.Line == line {
				return lastLine(s.node)
			}
		}
	}
	return line
}

func allowed(allowances []allowance, f schema.Finding) bool {
	return slices.ContainsFunc(allowances, func(a allowance) bool {
		return f.Line >= a.first && f.Line <= a.last && slices.Contains(a.rules, f.Rule)
	})
}
