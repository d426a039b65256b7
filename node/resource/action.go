package resource

import (
	"fmt"
	"strings"
)

// Verbs of actions.
const (
	Make    = "make"
	Change  = "change"
	Remove  = "remove"  // what kbnode made
	Restore = "restore" // what was there before
	Start   = "start"
	Stop    = "stop"
	Restart = "restart"
	Enable  = "enable"
	Disable = "disable"
	Reload  = "reload"
)

// An Action is one thing that has to be done. Neighbours of kind unit with the
// same verb are done at once.
type Action struct {
	Kind string `json:"kind"`
	Verb string `json:"verb"`
	Name string `json:"name"` // a path, or that of a user or unit
	Why  string `json:"why,omitempty"`
	Diff string `json:"diff,omitempty"` // unified; of a secret nothing
	// Drain: an agent, which ends its job before it stops.
	Drain bool `json:"drain,omitempty"`
	// Asks: it touches others' work, and is done with leave only.
	Asks bool `json:"asks,omitempty"`

	want any // the User, Dir, Copy, Clone or File that it makes
}

// Wants is the User, Dir, Copy, Clone or File that the action makes; nil
// where it makes none.
func (a *Action) Wants() any { return a.want }

// Line says the action for people.
func (a *Action) Line() string {
	switch {
	case a.Verb == Reload:
		return "reload systemd"
	case a.Kind == KindOff:
		return a.Verb + " unit " + a.Name
	case a.Verb == Stop && a.Drain:
		return a.Verb + " unit " + a.Name + ", after its job"
	}
	return a.Verb + " " + a.Kind + " " + a.Name
}

// A Conflict is something that is not kbnode's to change.
type Conflict struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	Why  string `json:"why"`
	// Flag of kbnode apply that gives leave; empty: a person has to clear it away.
	Flag string `json:"flag,omitempty"`
}

func (c Conflict) String() string {
	if c.Flag == "" {
		return fmt.Sprintf("%s: %s", c.Name, c.Why)
	}
	return fmt.Sprintf("%s: %s (%s)", c.Name, c.Why, c.Flag)
}

// Flags that a Conflict may name.
const (
	FlagAdopt = "--adopt"
	FlagForce = "--force"
)

// Summary sums actions up: "2 users, 3 files".
func Summary(actions []Action) string {
	var kinds []string
	n := map[string]int{}
	for _, a := range actions {
		kind := a.Kind
		switch kind {
		case KindOff:
			kind = KindUnit
		case KindReload:
			continue
		}
		if n[kind] == 0 {
			kinds = append(kinds, kind)
		}
		n[kind]++
	}
	words := map[string][2]string{KindDir: {"directory", "directories"}, KindCopy: {"copy", "copies"}}
	for i, kind := range kinds {
		word, ok := words[kind]
		if !ok {
			word = [2]string{kind, kind + "s"}
		}
		kinds[i] = fmt.Sprintf("%d %s", n[kind], word[min(n[kind], 2)-1])
	}
	return strings.Join(kinds, ", ")
}
