package engine

import (
	"slices"

	"github.com/gpu-mode/kbgen/local/steps"
)

// A gate says whether a step may begin.
type gate int

const (
	gateOpen gate = iota
	gateClosed
	gateBroken // what it waited for failed: it never opens
)

func (g gate) and(other gate) gate {
	if g == gateBroken || other == gateBroken {
		return gateBroken
	}
	return max(g, other)
}

// gate computes a node's gate from its dependencies, or without any from the
// wait step before it, and from those of its group.
func (b *build) gate(n *node) gate {
	g := gateOpen
	siblings := b.nodes
	if n.parent != nil {
		g = b.gate(n.parent)
		siblings = n.parent.children
	}
	if n.def.DependsOn != nil {
		return g.and(b.dependencies(n))
	}
	before := siblings[:slices.Index(siblings, n)]
	switch n.def.Kind {
	case steps.Wait, steps.Block:
		return g.and(waitGate(before, n.def.ContinueOnFailure))
	case steps.Input: // has no implicit dependencies
		return g
	}
	for _, w := range slices.Backward(before) {
		if w.def.Kind != steps.Wait && w.def.Kind != steps.Block || w.excluded != "" {
			continue
		}
		switch {
		case w.state != nodeSettled:
			return g.and(gateClosed)
		case w.failed:
			return gateBroken
		}
		break
	}
	return g
}

func (b *build) dependencies(n *node) gate {
	g := gateOpen
	for _, dep := range n.def.DependsOn {
		target := b.keys[dep.Key]
		switch {
		case target == nil:
			return gateBroken // dropped by an upload with --replace
		case n.descends(target): // which cannot wait for itself
			if target.state != nodeSettled {
				g = g.and(gateClosed)
			} else if target.failed && !dep.AllowFailure && !n.def.AllowDependencyFailure {
				g = gateBroken
			}
		case !target.complete():
			g = g.and(gateClosed)
		case target.broke() && !dep.AllowFailure && !n.def.AllowDependencyFailure:
			g = gateBroken
		}
	}
	return g
}

// waitGate is the gate of a wait or block step: everything before it must have settled.
// What those steps uploaded stands in the same list, before or behind the wait.
func waitGate(before []*node, continueOnFailure bool) gate {
	broken := false
	for _, n := range before {
		if n.def.Kind == steps.Input {
			continue // nothing waits for one but by depends_on
		}
		if n.state != nodeSettled {
			return gateClosed
		}
		broken = broken || n.failed
	}
	if broken && !continueOnFailure {
		return gateBroken
	}
	return gateOpen
}
