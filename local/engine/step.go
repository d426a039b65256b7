package engine

import (
	"slices"

	"github.com/gpu-mode/kbgen/local/steps"
)

// A scope is a list of steps that wait steps divide: a build, or one group.
type scope struct {
	nodes []*node
	owner *node // the group; nil for the build
}

// A node is one step of a build.
type node struct {
	id       string // UUID, BUILDKITE_STEP_ID
	def      *steps.Step
	scope    *scope
	children *scope // of a group
	jobs     []*job // every attempt, in creation order
	uploader *node  // the step whose job uploaded this one
	uploaded []*node

	state    nodeState
	failed   bool   // settled in a way that fails the build and dependants
	excluded string // why if, branches or skip took the step out; empty: it takes part

	// label may be changed by `buildkite-agent step update`.
	label string
}

type nodeState int

const (
	nodeWaiting nodeState = iota // for its gate
	nodeOpen                     // its jobs may run
	nodeSettled
)

// group returns the group the node lies in, nil outside of groups.
func (n *node) group() *node { return n.scope.owner }

// latest returns the attempts that no retry has replaced.
func (n *node) latest() []*job {
	out := make([]*job, 0, len(n.jobs))
	for _, j := range n.jobs {
		if j.RetriedIn == "" {
			out = append(out, j)
		}
	}
	return out
}

// complete reports whether the node and all that its jobs uploaded have
// settled: steps that depend on an uploader depend on its uploads, too.
func (n *node) complete() bool {
	return n.state == nodeSettled && !slices.ContainsFunc(n.uploaded, func(u *node) bool { return !u.complete() })
}

// descends reports whether the node came with an upload of ancestor, or with
// an upload of such a step.
func (n *node) descends(ancestor *node) bool {
	for n != nil {
		if n.uploader == ancestor {
			return true
		}
		n = n.uploader
	}
	return false
}

// broke reports whether a complete node fails those that depend on it.
func (n *node) broke() bool {
	return n.failed || slices.ContainsFunc(n.uploaded, (*node).broke)
}

// outcome is the step's outcome as `buildkite-agent step get outcome` says it.
func (n *node) outcome() string {
	if n.state != nodeSettled {
		return "neutral"
	}
	soft := false
	for _, j := range n.latest() {
		switch {
		case j.State == JobPassed:
		case j.SoftFailed:
			soft = true
		case j.State == JobFailed || j.State == JobTimedOut:
			return "hard_failed"
		case j.State == JobCanceled || j.State == JobWaitingFailed:
			return "errored"
		}
	}
	if soft {
		return "soft_failed"
	}
	return "passed"
}

// walk calls fn for the scope's nodes, those of groups behind their group.
func (s *scope) walk(fn func(*node)) {
	for _, n := range s.nodes {
		fn(n)
		if n.children != nil {
			n.children.walk(fn)
		}
	}
}

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
	if owner := n.group(); owner != nil {
		g = b.gate(owner)
	}
	if n.def.DependsOn != nil {
		return g.and(b.dependencies(n))
	}
	before := n.scope.nodes[:slices.Index(n.scope.nodes, n)]
	if n.def.Kind == steps.Wait {
		return g.and(waitGate(before, n.def.ContinueOnFailure))
	}
	for _, w := range slices.Backward(before) {
		if w.def.Kind != steps.Wait || w.excluded != "" {
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

// waitGate is the gate of a wait step: everything before it must have settled.
// What those steps uploaded stands in the same list, before or behind the wait.
func waitGate(before []*node, continueOnFailure bool) gate {
	broken := false
	for _, n := range before {
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
