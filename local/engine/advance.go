package engine

import (
	"time"

	"github.com/gpu-mode/kbgen/local/steps"
)

// advance moves a build as far as it can go now: it opens gates, settles steps,
// and sets the build's state. The caller calls dispatch afterwards.
func (e *Engine) advance(b *build) {
	for changed := true; changed; {
		changed = false
		for _, n := range withChildren(b.nodes) {
			if n.state != nodeSettled && e.step(b, n) {
				changed = true
			}
		}
	}
	e.settleBuild(b)
}

// step moves one node; it reports whether anything changed.
func (e *Engine) step(b *build, n *node) bool {
	switch {
	case n.def.Kind == steps.Group:
		for _, child := range n.children {
			if child.state != nodeSettled {
				return false
			}
			n.failed = n.failed || child.failed
		}
		n.state = nodeSettled
		return true
	case n.state == nodeWaiting:
		return e.open(b, n)
	default:
		return n.settle()
	}
}

// open lets a waiting node's jobs run when its gate allows it, or breaks it.
func (e *Engine) open(b *build, n *node) bool {
	switch b.gate(n) {
	case gateClosed:
		return false
	case gateBroken:
		for _, j := range n.jobs {
			if !j.State.Finished() {
				j.BrokenReason = "a step it depends on failed"
				e.end(j, JobWaitingFailed)
			}
		}
		n.state, n.failed = nodeSettled, true
		return true
	}
	if n.def.Kind == steps.Wait {
		for _, j := range n.jobs {
			e.end(j, JobPassed)
		}
		n.state = nodeSettled
		return true
	}
	n.state = nodeOpen
	for _, j := range n.jobs {
		switch {
		case j.State.Finished():
		case j.Type == TypeManual:
			e.block(j)
		case j.Type == TypeTrigger:
			e.trigger(j)
		default:
			e.makeReady(j)
		}
	}
	n.settle() // a step may consist of canceled jobs only
	return true
}

// settleBuild derives the build's state from its jobs.
func (e *Engine) settleBuild(b *build) {
	var unfinished, moving, begun, failed bool
	var blocked *job
	ran := false
	for _, j := range b.jobs {
		if j.RetriedIn != "" {
			begun = true
			continue
		}
		unfinished = unfinished || !j.State.Finished()
		moving = moving || j.State.Held() || j.State == JobScheduled || j.State == JobLimited
		if j.State == JobBlocked && blocked == nil {
			blocked = j
		}
		begun = begun || !j.StartedAt.IsZero()
		failed = failed || j.hardFailed()
		ran = ran || j.Type != TypeWaiter && j.State != JobSkipped && j.State != JobBroken
	}
	if blocked != nil && !moving && !b.canceling {
		e.setBlocked(b, blocked, failed)
		return
	}
	if b.Blocked {
		b.Blocked, b.State = false, BuildRunning // whatever its step made of it
	}
	switch {
	case b.canceling && !unfinished:
		e.setBuild(b, BuildCanceled)
	case b.canceling:
		e.setBuild(b, BuildCanceling)
	case !unfinished && !ran:
		e.setBuild(b, BuildNotRun)
	case !unfinished && failed:
		e.setBuild(b, BuildFailed)
	case !unfinished:
		e.setBuild(b, BuildPassed)
	case failed:
		e.setBuild(b, BuildFailing)
	case begun:
		e.setBuild(b, BuildRunning)
	default:
		e.setBuild(b, BuildScheduled)
	}
}

// setBuild changes a build's state, notes the time, and publishes the change.
func (e *Engine) setBuild(b *build, state BuildState) {
	if b.State == state {
		return
	}
	if b.State == BuildScheduled && state == BuildFailing {
		e.setBuild(b, BuildRunning) // both changes have their event
	}
	now, before := e.now(), b.State
	b.State = state
	if !state.Terminal() {
		b.FinishedAt = time.Time{} // a job of an ended build was retried
	}
	if b.StartedAt.IsZero() && (state == BuildRunning || state == BuildFailing) {
		b.StartedAt = now
	}
	switch state {
	case BuildScheduled:
		e.publish(EventBuildScheduled, b, nil, nil)
	case BuildRunning:
		if before != BuildFailing {
			e.publish(EventBuildRunning, b, nil, nil)
		}
	case BuildFailing:
		b.FailingAt = now
		e.publish(EventBuildFailing, b, nil, nil)
		e.cancelOnFailing(b)
	case BuildNotRun:
		b.FinishedAt = now
		e.ended = append(e.ended, b)
		e.publish(EventBuildSkipped, b, nil, nil)
	case BuildPassed, BuildFailed, BuildCanceled:
		if state == BuildFailed && b.FailingAt.IsZero() {
			b.FailingAt = now
		}
		b.FinishedAt = now
		e.ended = append(e.ended, b)
		e.publish(EventBuildFinished, b, nil, nil)
	}
	b.wake()
}
