package engine

import (
	"cmp"
	"slices"
	"time"
)

// A concurrencyGroup holds the unfinished jobs of one concurrency_group, over
// all builds, in the order of their creation.
type concurrencyGroup struct{ members []*job }

func (e *Engine) joinGroup(j *job) {
	if j.Step.Concurrency.Group == "" {
		return
	}
	g := e.groups[j.Step.Concurrency.Group]
	if g == nil {
		g = &concurrencyGroup{}
		e.groups[j.Step.Concurrency.Group] = g
	}
	g.members = append(g.members, j)
}

func (e *Engine) leaveGroup(j *job) {
	if j.Step.Concurrency.Group == "" {
		return
	}
	g := e.groups[j.Step.Concurrency.Group]
	g.members = slices.DeleteFunc(g.members, func(m *job) bool { return m == j })
	if len(g.members) == 0 {
		delete(e.groups, j.Step.Concurrency.Group)
	}
}

// admits reports whether the job's concurrency group has a slot for it.
// Ordered jobs take their slots in the order of creation, eager ones as they
// become ready.
func (e *Engine) admits(j *job) bool {
	limit := j.Step.Concurrency
	if limit.Group == "" {
		return true
	}
	members := e.groups[limit.Group].members
	if !limit.Eager {
		return slices.Index(members, j) < limit.Limit
	}
	taken := 0
	for _, m := range members {
		if m != j && (m.State.Held() || m.State == JobScheduled) {
			taken++
		}
	}
	return taken < limit.Limit
}

// makeReady makes a job one that dispatch may give to an agent.
func (e *Engine) makeReady(j *job) {
	j.RunnableAt = e.now()
	e.setJob(j, JobLimited)
	if e.admits(j) {
		e.scheduled(j)
	}
	e.ready = append(e.ready, j)
}

func (e *Engine) scheduled(j *job) {
	e.setJob(j, JobScheduled)
	e.publish(EventJobScheduled, j.build, j, nil)
}

func (e *Engine) unready(j *job) {
	e.ready = slices.DeleteFunc(e.ready, func(r *job) bool { return r == j })
}

// dispatch offers ready jobs to idle agents that stream: higher priority
// first, then older. Agents that poll are served by [Engine.Ping].
func (e *Engine) dispatch() {
	e.settleTriggers()
	var idle []*agent
	for _, a := range e.agents {
		if a.stream != nil && a.free() {
			idle = append(idle, a)
		}
	}
	e.offer(idle)
}

// offer gives ready jobs to the agents, each at most one.
func (e *Engine) offer(idle []*agent) {
	slices.SortFunc(e.ready, func(a, b *job) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.ScheduledAt.Compare(b.ScheduledAt), cmp.Compare(a.seq, b.seq))
	})
	slices.SortFunc(idle, func(a, b *agent) int {
		return cmp.Or(a.LastJobFinishedAt.Compare(b.LastJobFinishedAt), a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Name, b.Name))
	})
	for _, j := range slices.Clone(e.ready) {
		if j.State == JobLimited && e.admits(j) {
			e.scheduled(j)
		}
		if j.State != JobScheduled || e.queue(j.Queue).Paused {
			continue
		}
		at := slices.IndexFunc(idle, func(a *agent) bool { return a.matches(j.Rules) })
		if at < 0 {
			continue
		}
		e.assign(j, idle[at])
		idle = slices.Delete(idle, at, at+1)
	}
}

func (e *Engine) assign(j *job, a *agent) {
	e.unready(j)
	j.agent, a.job = a, j
	a.JobID = j.ID
	j.AgentID, j.AgentName = a.ID, a.Name
	j.AssignedAt = e.now()
	j.offeredAt, j.offers = j.AssignedAt, 0
	e.setJob(j, JobAssigned)
	a.wake()
}

// unassign takes a job back that its agent never accepted.
func (e *Engine) unassign(j *job) {
	if j.agent != nil {
		j.agent.job, j.agent.JobID = nil, ""
		j.agent = nil
	}
	j.AgentID, j.AgentName = "", ""
	j.AssignedAt = time.Time{}
	e.makeReady(j)
}

// Unserved returns the query rules of ready jobs that no connected agent meets,
// each set of rules once: `kblocal run` starts agents for them.
func (e *Engine) Unserved() [][]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out [][]string
	for _, j := range e.ready {
		served := false
		for _, a := range e.agents {
			if (a.State == AgentConnected || a.State == AgentNeverConnected) && a.matches(j.Rules) {
				served = true
				break
			}
		}
		if !served && !slices.ContainsFunc(out, func(r []string) bool { return slices.Equal(r, j.Rules) }) {
			out = append(out, j.Rules)
		}
	}
	return out
}
