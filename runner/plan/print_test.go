package plan

import (
	"fmt"
	"slices"
	"strings"
)

// String is the phase for people and goldens: every command with its files,
// limits and environment. The seed is not in it, only whether there is one.
func (p *Phase) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "phase %s, mode %s, in %s\n", p.Name, p.Mode, p.Dir)
	if len(p.Files) > 0 && !p.Isolated {
		names := make([]string, len(p.Files))
		for i, f := range p.Files {
			names[i] = fmt.Sprintf("%s (%d bytes)", f.Name, len(f.Text))
		}
		fmt.Fprintf(&b, "  files into %s: %s\n", p.Work, strings.Join(names, ", "))
	}
	p.WarmUp.print(&b, "warm-up")
	if p.WarmUp != nil {
		fmt.Fprintf(&b, "  %s made anew, the files written again\n", p.Work)
	}
	p.Version.print(&b, p.Compiler+" version")
	if !p.Isolated {
		p.Compile.print(&b, "compile")
	}
	if p.Compile != nil && !p.Isolated {
		b.WriteString("  the files removed\n")
	}
	for _, w := range p.Builds {
		names := []string{"our own"}
		for _, f := range w.Files {
			names = append(names, fmt.Sprintf("%s (%d bytes)", f.Name, len(f.Text)))
		}
		fmt.Fprintf(&b, "  once for all phases, files into %s: %s\n", w.Work, strings.Join(names, ", "))
		w.Compile.print(&b, "compile the "+w.Name)
		fmt.Fprintf(&b, "  %s removed\n", w.Dir)
	}
	if p.Test != nil {
		fmt.Fprintf(&b, "  cases into %s:\n", p.CasesFile())
		for line := range strings.Lines(p.Cases) {
			fmt.Fprintf(&b, "    | %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	switch pr := p.Profile; {
	case pr == nil:
	case pr.Program == "":
		fmt.Fprintf(&b, "  the worker looks at itself with %s\n", pr.Profiler)
	default:
		fmt.Fprintf(&b, "  directory %s for %s\n", pr.Dir, pr.Profiler)
	}
	p.Test.print(&b, "test")
	if p.Profile != nil {
		p.Profile.Import.print(&b, "import")
	}
	if o := p.Refused; o != nil {
		fmt.Fprintf(&b, "  refused: %s: %s\n", o.Name, o.Text)
	}
	return b.String()
}

func (c *Command) print(b *strings.Builder, title string) {
	if c == nil {
		return
	}
	fmt.Fprintf(b, "  %s: %s\n", title, c.Text())
	limit := "none"
	if c.Limit > 0 {
		limit = c.Limit.String()
	}
	yes := func(v bool) string {
		if v {
			return "yes"
		}
		return "no"
	}
	fmt.Fprintf(b, "    in %s, limit %s, seed: %s, report: %s, by harness.py: %s, built here: %s, more follows: %s\n",
		c.Dir, limit, yes(c.Seed != nil), yes(c.Report), yes(c.Harness), yes(c.Built), yes(c.More))
	if c.Watch != "" {
		fmt.Fprintf(b, "    looks for %q on stdout\n", c.Watch)
	}
	environ := slices.Clone(c.Environ)
	for i, pair := range environ {
		environ[i] = shellQuote(pair)
	}
	fmt.Fprintf(b, "    env %s\n", strings.Join(environ, " "))
}
