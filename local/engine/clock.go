package engine

import (
	"time"
)

// tick is how often deadlines are checked.
const tick = 100 * time.Millisecond

// An agent whose calls all fail gives a job up without a word: accept after 150
// seconds, start after about a minute, the log and the end of a job after some
// ten minutes. It goes on living, so only its silence about the job tells.
const (
	unstartedFor = 3 * time.Minute  // accepted and not started: another agent may have it
	forgottenFor = 15 * time.Minute // started: it ends as one of a lost agent does
)

// clock sweeps until the engine is closed.
func (e *Engine) clock() {
	defer close(e.stopped)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			e.sweep()
		case <-e.stop:
			return
		}
	}
}

// sweep applies every deadline: job timeouts, silent agents, offers that were
// not accepted.
func (e *Engine) sweep() {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	acted := false
	for _, a := range e.agents {
		switch {
		case a.State != AgentConnected && a.State != AgentStopping && a.State != AgentNeverConnected:
		case a.stream == nil && now.Sub(a.LastSeen) > e.opts.LostAfter:
			e.lose(a)
			acted = true
		case a.job != nil && e.overdue(a.job, now):
			acted = true
		}
	}
	if acted {
		e.dispatch()
	}
}

// overdue acts on a held job that is past a deadline, and reports whether it did.
func (e *Engine) overdue(j *job, now time.Time) bool {
	switch {
	case j.State == JobRunning && j.Timeout > 0 && now.Sub(j.StartedAt) >= j.Timeout:
		e.setJob(j, JobTimingOut)
	case j.State == JobAssigned && now.Sub(j.AssignedAt) > 5*e.opts.AcceptAfter:
		e.unassign(j) // another agent may take it
	case j.State == JobAssigned && now.Sub(j.offeredAt) > e.opts.AcceptAfter<<min(j.offers, 4):
		j.offeredAt = now // announced again, ever more rarely: an agent that asks
		j.offers++        // again and again to accept it queues up every offer
		j.agent.wake()
	case j.State == JobAccepted && now.Sub(j.heardAt) > unstartedFor:
		delete(e.tokens, j.token) // should the agent come back to it, it is told so
		j.token, j.AcceptedAt = "", time.Time{}
		e.unassign(j)
	case j.State != JobAssigned && now.Sub(j.heardAt) > forgottenFor:
		e.finish(j, Finish{ExitStatus: -1})
	default:
		return false
	}
	return true
}
