package engine

import (
	"context"
	"slices"
	"sync"
)

// Names of events, as webhooks spell them. The last ones are the stand-in's
// own and go to no webhook.
const (
	EventBuildScheduled = "build.scheduled"
	EventBuildRunning   = "build.running"
	EventBuildFailing   = "build.failing"
	EventBuildFinished  = "build.finished"
	EventBuildSkipped   = "build.skipped" // not_run
	EventJobScheduled   = "job.scheduled"
	EventJobStarted     = "job.started"
	EventJobFinished    = "job.finished"
	EventAgentConnected = "agent.connected"
	EventAgentLost      = "agent.lost"
	EventAgentStopped   = "agent.stopped" // disconnected in good order

	EventBuildBlocked    = "kblocal.build.blocked"
	EventUploadRefused   = "kblocal.upload.refused" // Job.UploadRefused says why
	EventJobChanged      = "kblocal.job.changed"    // any change of a job's state
	EventJobLog          = "kblocal.job.log"        // the log grew to Job.LogSize
	EventBuildAnnotation = "kblocal.build.annotation"
	EventBuildArtifact   = "kblocal.build.artifact"
	EventBuildMetaData   = "kblocal.build.meta_data"
	EventAgentChanged    = "kblocal.agent.changed" // its stream, its pause, that it is about to leave
	EventQueueChanged    = "kblocal.queue.changed" // about no build, job or agent
)

// An Event is one thing that happened. Build.Jobs is empty; Job is nil unless
// the event is about a job, Agent unless it is about an agent.
type Event struct {
	Name  string
	Build *Build
	Job   *Job
	Agent *Agent
}

// A Subscription receives every event from its start on, in order, without
// loss: events wait in memory until they are taken.
type Subscription struct {
	engine *Engine
	mu     sync.Mutex
	queue  []Event
	wake   chan struct{} // capacity 1
}

// Subscribe starts a subscription. Close it.
func (e *Engine) Subscribe() *Subscription {
	s := &Subscription{engine: e, wake: make(chan struct{}, 1)}
	e.mu.Lock()
	e.subs[s] = struct{}{}
	e.mu.Unlock()
	return s
}

// Next waits for the next event; its only error is ctx's.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	for {
		s.mu.Lock()
		if len(s.queue) > 0 {
			ev := s.queue[0]
			s.queue[0] = Event{}
			s.queue = s.queue[1:]
			s.mu.Unlock()
			return ev, nil
		}
		s.mu.Unlock()
		select {
		case <-s.wake:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

// Close ends the subscription and drops what it holds.
func (s *Subscription) Close() {
	s.engine.mu.Lock()
	delete(s.engine.subs, s)
	s.engine.mu.Unlock()
	s.mu.Lock()
	s.queue = nil
	s.mu.Unlock()
}

func (s *Subscription) push(ev Event) {
	s.mu.Lock()
	s.queue = append(s.queue, ev)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// publish hands an event to all subscribers; the caller holds the lock.
func (e *Engine) publish(name string, b *build, j *job, a *agent) {
	if len(e.subs) == 0 {
		return
	}
	ev := Event{Name: name}
	if b != nil {
		ev.Build = new(b.Build)
		ev.Build.MetaData = cloneMap(b.MetaData)
		ev.Build.Annotations = slices.Clone(b.Annotations)
	}
	if j != nil {
		ev.Job = new(j.snapshot())
	}
	if a != nil {
		ev.Agent = new(a.Agent)
	}
	for s := range e.subs {
		s.push(ev)
	}
}
