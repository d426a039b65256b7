package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node/plan"
	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/node/setup"
)

// exitChanges is kbnode plan's status when there is something to do.
const exitChanges = 2

// planCmd says what apply would do.
type planCmd struct {
	target
	JSON bool `name:"json"`
}

// nodePlan is what --json prints.
type nodePlan struct {
	Node      string              `json:"node"`
	Slots     []string            `json:"slots"`
	Actions   []resource.Action   `json:"actions"`   // in the order in which apply does them
	Conflicts []resource.Conflict `json:"conflicts"` // what apply refuses without a flag
	Missing   []plan.Missing      `json:"missing"`   // what the machine must have first
	Notes     []string            `json:"notes"`
}

func (c *planCmd) Run(ctx context.Context, env *cli.Env) error {
	token, err := c.token(env, false)
	if err != nil {
		return public(err)
	}
	p, err := c.target.target().Plan(ctx, token, logger(env))
	if err != nil {
		return public(err)
	}
	if c.JSON {
		err = cli.PrintJSON(env.Stdout, document(p))
	} else {
		err = printPlan(p, env.Stdout)
	}
	if err == nil && len(p.Actions)+len(p.Missing) > 0 {
		return &cli.ExitError{Status: exitChanges}
	}
	return err
}

func document(p *setup.Plan) *nodePlan {
	d := &nodePlan{
		Node: p.Config.Node, Slots: []string{}, Actions: append([]resource.Action{}, p.Actions...), Conflicts: append([]resource.Conflict{}, p.Conflicts...),
		Missing: append([]plan.Missing{}, p.Missing...), Notes: append([]string{}, p.Notes...),
	}
	for i := range p.Config.Slots {
		d.Slots = append(d.Slots, p.Config.Slots[i].Name)
	}
	return d
}

// printPlan prints a plan for people.
func printPlan(p *setup.Plan, out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "node %s: %s\n", p.Config.Node, slotNames(p))
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
	switch units := restarts(p); {
	case len(p.Actions) == 0:
		b.WriteString("nothing to do\n")
	case len(units) > 0:
		fmt.Fprintf(&b, "%s; restarts %s\n", counted(p.Actions), strings.Join(units, ", "))
	default:
		fmt.Fprintf(&b, "%s; restarts nothing\n", counted(p.Actions))
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
func restarts(p *setup.Plan) []string {
	var names []string
	for _, a := range p.Actions {
		if a.Verb == resource.Restart || a.Verb == resource.Stop {
			names = append(names, a.Name)
		}
	}
	return names
}

// counted sums actions up: "2 users, 3 files".
func counted(actions []resource.Action) string {
	var kinds []string
	n := map[string]int{}
	for _, a := range actions {
		kind := a.Kind
		switch kind {
		case resource.KindOff:
			kind = resource.KindUnit
		case resource.KindReload:
			continue
		}
		if n[kind] == 0 {
			kinds = append(kinds, kind)
		}
		n[kind]++
	}
	words := map[string][2]string{resource.KindDir: {"directory", "directories"}, resource.KindCopy: {"copy", "copies"}}
	for i, kind := range kinds {
		word, ok := words[kind]
		if !ok {
			word = [2]string{kind, kind + "s"}
		}
		kinds[i] = fmt.Sprintf("%d %s", n[kind], word[min(n[kind], 2)-1])
	}
	return strings.Join(kinds, ", ")
}

func slotNames(p *setup.Plan) string {
	var names []string
	for i := range p.Config.Slots {
		s := &p.Config.Slots[i]
		names = append(names, fmt.Sprintf("%s (%s)", s.Name, s.GPUType))
	}
	return strings.Join(names, ", ")
}

// progress prints what is done while it is done.
func progress(env *cli.Env) func(string) {
	return func(line string) { fmt.Fprintf(env.Stderr, "%s\n", line) }
}
