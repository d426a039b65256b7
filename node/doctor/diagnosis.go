package doctor

import (
	"fmt"
	"io"
)

// A Diagnosis is what kbnode doctor --json prints.
type Diagnosis struct {
	OK     bool     `json:"ok"` // no failure; warnings may be there
	Node   string   `json:"node"`
	Checks []Result `json:"checks"`
}

// Count returns how many checks ended in a state.
func (d *Diagnosis) Count(state State) int {
	n := 0
	for _, r := range d.Checks {
		if r.State == state {
			n++
		}
	}
	return n
}

// Write prints a line for each result that is not as it should be, or for all, with
// its remedy below, and how many there are.
func (d *Diagnosis) Write(w io.Writer, all bool) {
	for _, r := range d.Checks {
		if !all && (r.State == OK || r.State == Skipped) {
			continue
		}
		where := d.Node
		if r.Slot != "" {
			where = r.Slot
		}
		fmt.Fprintf(w, "%-8s %-8s %-16s %s\n", r.State, where, r.Code, r.Text)
		if r.Fix != "" {
			fmt.Fprintf(w, "%-8s %-8s %-16s mend: %s\n", "", "", "", r.Fix)
		}
	}
	fmt.Fprintf(w, "%d checks: %d in order, %d failed, %d to look at, %d not made\n",
		len(d.Checks), d.Count(OK), d.Count(Failure), d.Count(Warning), d.Count(Skipped))
}
