package resource

import (
	"cmp"
	"slices"
)

// units compares units: those of others that have to be off, those wanted no
// longer, and the wanted ones.
func (c *comparison) units() {
	for _, name := range c.want.Off {
		if is := c.have.Units[name]; is.Found && (is.Active || is.Enabled) {
			c.conflict(KindOff, name, FlagAdopt, "an agent that kbnode did not set up, which would use the same devices")
			c.off(KindOff, name, is, "taken over", true)
		}
	}
	wanted := map[string]bool{}
	for _, u := range c.want.Units {
		wanted[u.Name] = true
	}
	for _, m := range c.have.Made {
		if m.Kind == KindUnit && !wanted[m.Name] {
			is := c.have.Units[m.Name]
			is.Active, is.Enabled = is.Active && !m.Active && !m.Asks, is.Enabled && !m.Enabled // what others use runs on
			c.off(KindUnit, m.Name, is, "wanted no longer", m.Drain)
			c.last = append(c.last, Action{Kind: KindUnit, Verb: Remove, Name: m.Name, Why: "wanted no longer"})
		}
	}
	asks := false
	for _, u := range c.want.Units {
		asks = asks || u.Asks && c.have.Units[u.Name].Active && c.stale(&u) != ""
	}
	for _, u := range c.want.Units {
		c.unit(u, asks)
	}
	slices.SortStableFunc(c.starts, func(a, b Action) int { return cmp.Compare(rank(a), rank(b)) })
	// Agents before slices: that of a slice would end their containers.
	slices.SortStableFunc(c.stops, func(a, b Action) int { return cmp.Compare(rank(a), rank(b)) })
}

// rank orders starts: docker before who needs it, restarts before starts. And
// stops: those that wait for jobs first.
func rank(a Action) int {
	switch {
	case a.Asks, a.Verb == Stop && a.Drain:
		return 0
	case a.Verb == Restart:
		return 1
	}
	return 2
}

func (c *comparison) off(kind, name string, is UnitState, why string, drain bool) {
	if is.Active {
		c.stops = append(c.stops, Action{Kind: kind, Verb: Stop, Name: name, Why: why, Drain: drain})
	}
	if is.Enabled {
		c.disables = append(c.disables, Action{Kind: kind, Verb: Disable, Name: name, Why: why})
	}
}

// unit compares one wanted unit. Agents stop before anything changes, for that a
// job sees one state of the machine, and before docker does.
func (c *comparison) unit(u Unit, dockerRestarts bool) {
	is := c.have.Units[u.Name]
	if u.Enabled && !is.Enabled && !is.Static {
		c.enables = append(c.enables, Action{Kind: KindUnit, Verb: Enable, Name: u.Name, want: u})
	}
	why := c.stale(&u)
	if u.Drain && why == "" && dockerRestarts {
		why = "docker restarts"
	}
	switch start := (Action{Kind: KindUnit, Verb: Start, Name: u.Name, Why: why, Asks: false, want: u}); {
	case is.Active && why == "":
	case is.Active && u.Drain:
		c.stops = append(c.stops, Action{Kind: KindUnit, Verb: Stop, Name: u.Name, Why: why, Drain: true, want: u})
		if u.Active {
			c.starts = append(c.starts, start)
		}
	case is.Active:
		start.Verb, start.Asks = Restart, u.Asks
		c.starts = append(c.starts, start)
	case u.Active && !is.Held:
		c.starts = append(c.starts, start)
	}
}

// stale says why a unit that runs has to be restarted; empty: it need not.
func (c *comparison) stale(u *Unit) string {
	for _, name := range u.Uses {
		if c.changed[name] {
			return name + " changes"
		}
	}
	if slices.Contains(c.have.Pending, u.Name) {
		return "left over from an apply that ended early"
	}
	return ""
}
