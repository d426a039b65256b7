package setup

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/node/resource"
)

// Write prints the plan for people: a summary, or with diffs each change.
func (p *Plan) Write(out io.Writer, diffs bool) error {
	var b strings.Builder
	var slots []string
	for _, s := range p.Config.Slots {
		slots = append(slots, fmt.Sprintf("%s (%s)", s.Name, s.GPUType))
	}
	for _, m := range p.Missing {
		fmt.Fprintf(&b, "missing: %s: %s\n  %s\n", m.What, m.Why, m.Command)
	}
	fmt.Fprintf(&b, "node %s: %s\n", p.Config.Node, strings.Join(slots, ", "))
	for _, c := range p.Conflicts {
		fmt.Fprintf(&b, "refused: %s\n", c)
	}
	for _, note := range p.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	if diffs {
		writeAll(&b, p.Actions)
	} else {
		writeSummary(&b, p.Actions)
	}
	if len(p.Actions) == 0 {
		b.WriteString("nothing to do\n")
	} else {
		fmt.Fprintf(&b, "%s; restarts %s\n", resource.Summary(p.Actions), cmp.Or(strings.Join(p.restarts(), ", "), "nothing"))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func writeAll(b *strings.Builder, actions []resource.Action) {
	for _, a := range actions {
		fmt.Fprintf(b, "%s\n", worded(&a))
		for line := range strings.Lines(a.Diff) {
			fmt.Fprintf(b, "    %s", line)
		}
		if a.Diff != "" && !strings.HasSuffix(a.Diff, "\n") {
			b.WriteByte('\n')
		}
	}
}

// slotName is a slot in the name of a user, path or unit.
var slotName = regexp.MustCompile(`\b[gc]pu[0-9]+\b`)

// writeSummary prints a group of lines for each slot. Slots with the same changes share
// a group. Changes that belong to no slot come last.
func writeSummary(b *strings.Builder, actions []resource.Action) {
	bySlot := map[string][]resource.Action{}
	var slots []string
	for _, a := range actions {
		slot := slotName.FindString(a.Name)
		a.Name = slotName.ReplaceAllString(a.Name, "SLOT")
		a.Why = slotName.ReplaceAllString(a.Why, "SLOT")
		if bySlot[slot] == nil && slot != "" {
			slots = append(slots, slot)
		}
		bySlot[slot] = append(bySlot[slot], a)
	}
	groups := map[string][]string{}
	var texts []string
	for _, slot := range slots {
		lines := summary(bySlot[slot])
		if groups[lines] == nil {
			texts = append(texts, lines)
		}
		groups[lines] = append(groups[lines], slot)
	}
	for _, lines := range texts {
		if slots := groups[lines]; len(slots) > 1 {
			fmt.Fprintf(b, "each SLOT of %s:\n%s", strings.Join(slots, ", "), lines)
		} else {
			fmt.Fprintf(b, "%s:\n%s", slots[0], strings.ReplaceAll(lines, "SLOT", slots[0]))
		}
	}
	if shared := bySlot[""]; len(shared) > 0 {
		fmt.Fprintf(b, "all slots:\n%s", summary(shared))
	}
}

// maxNames is how many created files and users one line of a summary names. It counts
// the rest.
const maxNames = 4

// summary returns a line for each verb and reason, with what it is done to.
func summary(actions []resource.Action) string {
	names := map[string][]string{}
	dirs := map[string]int{}
	var order []string
	stops := map[string]bool{}
	for _, a := range actions {
		stops[a.Name] = stops[a.Name] || a.Verb == resource.Stop
	}
	restarted := func(a resource.Action) bool { return a.Verb == resource.Start && stops[a.Name] }
	for _, a := range actions {
		if restarted(a) || a.Verb == resource.Reload {
			continue
		}
		verb := a.Verb
		if verb == resource.Stop && slices.ContainsFunc(actions, func(b resource.Action) bool { return restarted(b) && b.Name == a.Name }) {
			verb = resource.Restart
		}
		if a.Drain {
			verb += " after its job"
		}
		if verb == resource.Start {
			a.Why = "" // only restarts have a reason
		}
		line := verb + "\x00" + a.Why + a.Impact()
		if names[line] == nil && dirs[line] == 0 {
			order = append(order, line)
		}
		switch a.Kind {
		case resource.KindDir:
			dirs[line]++
		case resource.KindUser:
			names[line] = append(names[line], "user "+a.Name)
		default:
			names[line] = append(names[line], a.Name)
		}
	}
	var b strings.Builder
	for _, line := range order {
		verb, why, _ := strings.Cut(line, "\x00")
		things := names[line]
		if n := len(things) - maxNames; verb == resource.Make && n > 1 {
			things = append(things[:maxNames:maxNames], fmt.Sprintf("%d more files", n))
		}
		switch n := dirs[line]; {
		case n == 1:
			things = append(things, "1 directory")
		case n > 1:
			things = append(things, fmt.Sprintf("%d directories", n))
		}
		if why != "" {
			why = " (" + why + ")"
		}
		fmt.Fprintf(&b, "  %s %s%s\n", verb, strings.Join(things, ", "), why)
	}
	return b.String()
}

// worded is one action as a line.
func worded(a *resource.Action) string {
	line := a.Line()
	if a.Why != "" {
		line += " (" + a.Why + ")"
	}
	return line + a.Impact()
}

// restarts returns the names of the units that the plan stops or restarts.
func (p *Plan) restarts() []string {
	var names []string
	for _, a := range p.Actions {
		if a.Verb == resource.Restart || a.Verb == resource.Stop {
			names = append(names, a.Name)
		}
	}
	return names
}
