package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/local/steps"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/condition"
	"github.com/gpu-mode/kbgen/schema/glob"
)

// insert adds a document's steps to a build: behind the uploader's step and all
// that it has uploaded, or at the end when there is no uploader. It removes the
// steps of dropped first. When it refuses, nothing has changed.
func (e *Engine) insert(b *build, doc *steps.Document, uploader *job, dropped []*node) error {
	if err := b.accepts(doc, dropped); err != nil {
		return err
	}
	if err := e.acceptsTriggers(b, doc); err != nil {
		return err
	}
	in := insertion{engine: e, build: b, uploader: uploader, agents: doc.Agents, env: doc.Env, at: e.now()}
	if uploader != nil {
		in.env = cloneMap(uploader.topEnv)
		maps.Copy(in.env, doc.Env)
		in.at = uploader.ScheduledAt
	}
	if err := in.acceptsSelection(doc); err != nil {
		return err
	}
	vars := e.conditionVars(b)
	var nodes []*node
	for _, s := range doc.Steps {
		n, err := in.node(nil, s, vars, "")
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	for _, n := range dropped {
		e.forget(b, n)
	}
	at := len(b.nodes)
	if uploader != nil {
		at = b.behind(uploader.node)
		uploader.node.uploaded = append(uploader.node.uploaded, nodes...)
	}
	b.nodes = slices.Insert(b.nodes, at, nodes...)
	for _, n := range withChildren(nodes) {
		in.adopt(n)
	}
	return nil
}

// accepts checks a document against what the build has already, not counting the
// steps that are to be dropped.
func (b *build) accepts(doc *steps.Document, dropped []*node) error {
	if have, more := len(b.jobs), doc.Jobs(); have+more > schema.MaxJobsPerBuild {
		return Refuse(Invalid, "the build would have %d jobs, want at most %d", have+more, schema.MaxJobsPerBuild)
	}
	taken := maps.Clone(b.keys)
	for _, n := range withChildren(dropped) {
		delete(taken, n.def.Key)
	}
	own := map[string]bool{}
	for _, s := range doc.All() {
		own[s.Key] = true
		if _, used := taken[s.Key]; used && s.Key != "" {
			return Refuse(Invalid, "The key %q has already been used by another step in this build", s.Key)
		}
	}
	for _, s := range doc.All() {
		for _, dep := range s.DependsOn {
			if _, known := taken[dep.Key]; !known && !own[dep.Key] {
				return Refuse(Invalid, "Step %s depends on %q, but no step of this build has that key", describeStep(s), dep.Key)
			}
		}
	}
	return nil
}

func describeStep(s *steps.Step) string {
	for _, name := range []string{s.Key, s.Label, s.Command} {
		if name != "" {
			return fmt.Sprintf("%q", name)
		}
	}
	return "without a name"
}

// behind returns the index in the build's top scope for steps that n uploads:
// behind n, or the group that n lies in, and all that it has uploaded so far.
func (b *build) behind(n *node) int {
	n = cmp.Or(n.parent, n)
	at := slices.Index(b.nodes, n)
	var deepest func(n *node)
	deepest = func(n *node) {
		at = max(at, slices.Index(b.nodes, n))
		for _, u := range n.uploaded {
			deepest(u)
		}
		for _, child := range n.children {
			for _, u := range child.uploaded {
				deepest(u)
			}
		}
	}
	deepest(n)
	return at + 1
}

// An insertion turns the steps of one document into nodes and jobs.
type insertion struct {
	engine   *Engine
	build    *build
	uploader *job
	agents   []string
	env      map[string]string
	at       time.Time // scheduled_at of the jobs, the uploader's
}

// node makes a step's node and those inside it. excluded is why its group does
// not take part, if so.
func (in *insertion) node(parent *node, def *steps.Step, vars condition.Vars, excluded string) (*node, error) {
	n := &node{id: newID(), def: def, parent: parent, label: def.Label, excluded: excluded}
	if in.uploader != nil {
		n.uploader = in.uploader.node
	}
	reason, err := in.exclusion(def, vars)
	if err != nil {
		return nil, err
	}
	if reason == "" && !in.selects(n) {
		reason = skipped + ": not selected"
	}
	n.excluded = cmp.Or(n.excluded, reason)
	if def.Kind != steps.Group {
		return n, nil
	}
	for _, inner := range def.Steps {
		child, err := in.node(n, inner, vars, n.excluded)
		if err != nil {
			return nil, err
		}
		n.children = append(n.children, child)
	}
	return n, nil
}

// exclusion returns why a step does not take part, "" when it does.
func (in *insertion) exclusion(def *steps.Step, vars condition.Vars) (string, error) {
	if def.If != "" {
		take, err := condition.Eval(def.If, vars)
		if err != nil {
			return "", Refuse(Invalid, "Step %s: if: %v", describeStep(def), err)
		}
		if !take {
			return "its if condition is false", nil
		}
	}
	if len(def.On) > 0 && !in.build.IgnoreBranchFilters && !branchMatches(def.On, in.build.Branch) {
		return "its branches do not include " + in.build.Branch, nil
	}
	if def.Skip.On {
		if def.Skip.Reason == "" {
			return skipped, nil
		}
		return skipped + ": " + def.Skip.Reason, nil
	}
	return "", nil
}

const skipped = "skipped"

// adopt registers a node with its build and makes its jobs.
func (in *insertion) adopt(n *node) {
	b := in.build
	if n.def.Key != "" {
		b.keys[n.def.Key] = n
	}
	switch n.def.Kind {
	case steps.Group:
	case steps.Wait:
		in.job(n, TypeWaiter, 0)
	case steps.Block, steps.Input:
		in.job(n, TypeManual, 0)
	case steps.TriggerStep:
		for i := range max(1, n.def.Parallelism) {
			in.job(n, TypeTrigger, i)
		}
	default:
		for i := range n.def.Variants {
			in.variant(n, &n.def.Variants[i])
		}
		if n.def.Variants != nil {
			break
		}
		for i := range max(1, n.def.Parallelism) {
			in.job(n, TypeScript, i)
		}
	}
	if n.excluded != "" && n.def.Kind != steps.Group {
		n.state = nodeSettled
	}
}

// variant makes the job of one permutation of a matrix.
func (in *insertion) variant(n *node, v *steps.Variant) {
	j := in.job(n, TypeScript, 0)
	j.Step, j.Label, j.Matrix = v.Step, v.Step.Label, v.Values
	if in.build.OnHost {
		j.Step, j.HostImage = v.Step.OnHost()
	}
	j.Rules = steps.Rules(v.Step.Agents, in.agents)
	j.Queue = steps.QueueOf(j.Rules)
	in.engine.queue(j.Queue)
	if v.Skip.On && !j.State.Finished() {
		in.engine.leaveGroup(j)
		j.State, j.BrokenReason, j.FinishedAt = JobSkipped, v.Skip.Reason, in.engine.now()
	}
}

func (in *insertion) job(n *node, kind string, index int) *job {
	e, b, def := in.engine, in.build, n.def
	e.seq++
	j := &job{
		Job: Job{
			ID: newID(), BuildID: b.ID, Pipeline: b.Pipeline, Number: b.Number, Type: kind,
			StepID: n.id, StepKey: def.Key, Label: n.label, Step: def, StepJSON: def.JSON,
			State: JobWaiting, Priority: def.Priority,
			ParallelIndex: index, ParallelTotal: def.Parallelism,
			CreatedAt: e.now(), ScheduledAt: in.at,
		},
		build: b, node: n, seq: e.seq, topEnv: in.env,
		ruleCounts: make([]int, len(def.Retry.Automatic)),
	}
	if b.OnHost {
		j.Step, j.HostImage = def.OnHost()
	}
	j.Timeout = def.Timeout / time.Minute * e.opts.Minute
	if group := n.parent; group != nil {
		j.GroupID, j.GroupKey, j.GroupLabel = group.id, group.def.Key, group.def.Label
	}
	if kind == TypeScript {
		j.Rules = steps.Rules(def.Agents, in.agents)
		j.Queue = steps.QueueOf(j.Rules)
		if def.Variants == nil { // tokens of a matrix are no queue
			e.queue(j.Queue)
		}
	}
	n.jobs = append(n.jobs, j)
	b.jobs = append(b.jobs, j)
	e.jobs[j.ID] = j
	switch {
	case n.excluded == "":
		e.joinGroup(j)
	case strings.HasPrefix(n.excluded, skipped):
		j.BrokenReason = strings.TrimPrefix(strings.TrimPrefix(n.excluded, skipped), ": ")
		j.FinishedAt = e.now()
		j.State = JobSkipped
	default:
		j.BrokenReason = n.excluded
		j.FinishedAt = e.now()
		j.State = JobBroken
	}
	return j
}

// branchMatches applies a step's branches: any pattern must match, and none
// that starts with "!" may.
func branchMatches(patterns []string, branch string) bool {
	matched, positive := false, false
	for _, p := range patterns {
		if not, ok := strings.CutPrefix(p, "!"); ok {
			if glob.Match(not, branch) {
				return false
			}
			continue
		}
		positive = true
		matched = matched || glob.Match(p, branch)
	}
	return matched || !positive
}
