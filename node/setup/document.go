package setup

import (
	"fmt"
	"io"
	"strings"

	"github.com/gpu-mode/kbgen/node/plan"
	"github.com/gpu-mode/kbgen/node/resource"
)

// A Document is what kbnode plan --json prints.
type Document struct {
	Node      string              `json:"node"`
	Slots     []string            `json:"slots"`
	Actions   []resource.Action   `json:"actions"`   // in the order in which apply does them
	Conflicts []resource.Conflict `json:"conflicts"` // what apply refuses without a flag
	Missing   []plan.Missing      `json:"missing"`   // what the machine must have first
	Notes     []string            `json:"notes"`
}

// Document returns the plan for programs.
func (p *Plan) Document() *Document {
	d := &Document{
		Node: p.Config.Node, Slots: []string{}, Actions: append([]resource.Action{}, p.Actions...), Conflicts: append([]resource.Conflict{}, p.Conflicts...),
		Missing: append([]plan.Missing{}, p.Missing...), Notes: append([]string{}, p.Notes...),
	}
	for i := range p.Config.Slots {
		d.Slots = append(d.Slots, p.Config.Slots[i].Name)
	}
	return d
}

// Write prints the plan for people.
func (p *Plan) Write(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "node %s: %s\n", p.Config.Node, p.slotNames())
	for _, note := range p.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	for _, m := range p.Missing {
		fmt.Fprintf(&b, "missing: %s: %s\n  %s\n", m.What, m.Why, m.Command)
	}
	for _, c := range p.Conflicts {
		fmt.Fprintf(&b, "refused: %s\n", c)
	}
	for _, a := range p.Actions {
		fmt.Fprintf(&b, "%s\n", worded(&a))
		for line := range strings.Lines(a.Diff) {
			fmt.Fprintf(&b, "    %s", line)
		}
		if a.Diff != "" && !strings.HasSuffix(a.Diff, "\n") {
			b.WriteByte('\n')
		}
	}
	switch units := p.restarts(); {
	case len(p.Actions) == 0:
		b.WriteString("nothing to do\n")
	case len(units) > 0:
		fmt.Fprintf(&b, "%s; restarts %s\n", resource.Summary(p.Actions), strings.Join(units, ", "))
	default:
		fmt.Fprintf(&b, "%s; restarts nothing\n", resource.Summary(p.Actions))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// worded is one action as a line.
func worded(a *resource.Action) string {
	line := a.Line()
	if a.Why != "" {
		line += " (" + a.Why + ")"
	}
	if a.Asks {
		line += ", which stops every container unless live-restore is on"
	}
	return line
}

// restarts are the units that run now and will have been stopped.
func (p *Plan) restarts() []string {
	var names []string
	for _, a := range p.Actions {
		if a.Verb == resource.Restart || a.Verb == resource.Stop {
			names = append(names, a.Name)
		}
	}
	return names
}

func (p *Plan) slotNames() string {
	var names []string
	for i := range p.Config.Slots {
		s := &p.Config.Slots[i]
		names = append(names, fmt.Sprintf("%s (%s)", s.Name, s.GPUType))
	}
	return strings.Join(names, ", ")
}
