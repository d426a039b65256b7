package engine

import (
	"slices"
	"strconv"

	"github.com/gpu-mode/kbgen/local/steps"
)

// A node is one step of a build.
type node struct {
	id       string // UUID, BUILDKITE_STEP_ID
	def      *steps.Step
	parent   *node   // the group it lies in; nil outside of groups
	children []*node // of a group
	jobs     []*job  // every attempt, in creation order
	uploader *node   // the step whose job uploaded this one
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

// withChildren lists the nodes and those in them, which come behind their group.
func withChildren(nodes []*node) []*node {
	var out []*node
	for _, n := range nodes {
		out = append(append(out, n), n.children...)
	}
	return out
}

// step finds a step of the build by id or key.
func (b *build) step(step string) (*node, error) {
	if n, ok := b.keys[step]; ok && step != "" {
		return n, nil
	}
	for _, n := range withChildren(b.nodes) {
		if n.id == step {
			return n, nil
		}
	}
	return nil, Refuse(NotFound, "No step found")
}

// StepAttributes answers `buildkite-agent step get`: what there is to know of a
// step, in the types that its JSON has.
func (e *Engine) StepAttributes(buildID, step string) (map[string]any, error) {
	return query(e, e.findBuildByID, buildID, func(b *build) (map[string]any, error) {
		n, err := b.step(step)
		if err != nil {
			return nil, err
		}
		return map[string]any{
			"id": n.id, "key": orNil(n.def.Key), "label": orNil(n.label), "command": n.def.Command, "type": n.def.Kind,
			"outcome": n.outcome(), "state": n.stateName(), "priority": n.last().Priority, "agents": append([]string{}, n.last().Rules...),
		}, nil
	})
}

// last is the step's newest job; a group has an empty one.
func (n *node) last() *job {
	if len(n.jobs) == 0 {
		return &job{}
	}
	return n.jobs[len(n.jobs)-1]
}

// stateName is the step's state as `step get state` says it.
func (n *node) stateName() string {
	switch n.state {
	case nodeSettled:
		return "finished"
	case nodeOpen:
		for _, j := range n.latest() {
			if j.State.Held() {
				return "running"
			}
		}
		return "ready"
	}
	return "waiting_for_dependencies"
}

// UpdateStep answers `buildkite-agent step update`.
func (e *Engine) UpdateStep(buildID, step, attribute, value string, appendValue bool) error {
	return change(e, e.findBuildByID, buildID, func(b *build) error {
		n, err := b.step(step)
		if err != nil {
			return err
		}
		switch attribute {
		case "label":
			for _, j := range n.latest() { // each variant of a matrix has its own
				if appendValue {
					j.Label += value
				} else {
					j.Label = value
				}
			}
			if appendValue {
				value = n.label + value
			}
			n.label = value
		case "priority":
			priority, err := strconv.Atoi(value)
			if err != nil {
				return Refuse(Invalid, "step priority: got %q, want a whole number", value)
			}
			for _, j := range n.latest() {
				j.Priority = priority
			}
			e.dispatch()
		default:
			return Refuse(Invalid, "step attribute %q cannot be updated, want label or priority", attribute)
		}
		for _, j := range n.latest() {
			e.publish(EventJobChanged, b, j, nil)
		}
		return nil
	})
}

// settle closes an open node whose last attempts have all ended.
func (n *node) settle() bool {
	failed := false
	for _, j := range n.latest() {
		if !j.State.Finished() {
			return false
		}
		failed = failed || j.hardFailed()
	}
	n.state, n.failed = nodeSettled, failed
	return true
}
