package engine

import (
	"context"
	"errors"
)

// An Action is what an agent is told on a ping or on its stream.
type Action string

const (
	ActionIdle       Action = "idle"
	ActionPause      Action = "pause"
	ActionDisconnect Action = "disconnect"
	ActionJob        Action = "job"
)

// An Order is one message to an agent.
type Order struct {
	Action Action
	JobID  string // with [ActionJob]
	Reason string // with [ActionPause] and [ActionDisconnect]
}

// A Stream carries orders to one agent.
type Stream struct {
	engine *Engine
	agent  *agent
	woken  chan struct{} // capacity 1
	last   Order         // sent; zero: nothing yet
	sentAt int64         // offer that last was sent for, in nanoseconds
}

// ErrStreamEnded means that a newer stream took over or the agent is gone.
var ErrStreamEnded = errors.New("stream ended")

// OpenStream starts the agent's stream of orders; an older one ends.
func (e *Engine) OpenStream(agentID string) (*Stream, error) {
	return query(e, e.findAgent, agentID, func(a *agent) (*Stream, error) {
		if a.State == AgentLost || a.State == AgentDisconnected {
			return nil, Refuse(Unauthorized, "Agent is %s", a.State)
		}
		if a.stream != nil {
			a.wake()
		}
		a.LastSeen = e.now()
		s := &Stream{engine: e, agent: a, woken: make(chan struct{}, 1)}
		a.stream, a.Streaming = s, true
		e.publish(EventAgentChanged, nil, nil, a)
		if a.job != nil {
			a.job.offeredAt = e.now() // what the old stream announced may be lost
		}
		e.dispatch()
		return s, nil
	})
}

// Next waits for the next order to send. The first one is ready at once; a job
// that was not accepted comes again. Errors: [ErrStreamEnded], and ctx's.
func (s *Stream) Next(ctx context.Context) (Order, error) {
	for {
		s.engine.mu.Lock()
		a := s.agent
		if a.stream != s {
			s.engine.mu.Unlock()
			return Order{}, ErrStreamEnded
		}
		order, offered := a.order(), int64(0)
		if s.last.Action == "" && order.Action == ActionJob {
			order = Order{Action: ActionIdle} // a resume frame comes first on every stream
		}
		if order.Action == ActionJob {
			offered = a.job.offeredAt.UnixNano()
		}
		if order != s.last || offered != s.sentAt {
			s.last, s.sentAt = order, offered
			s.engine.mu.Unlock()
			return order, nil
		}
		s.engine.mu.Unlock()
		select {
		case <-s.woken:
		case <-ctx.Done():
			return Order{}, ctx.Err()
		}
	}
}

// Close ends the stream; the agent may poll or open another.
func (s *Stream) Close() {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	if s.agent.stream == s {
		s.agent.stream, s.agent.Streaming = nil, false
		s.agent.LastSeen = s.engine.now()
		s.engine.publish(EventAgentChanged, nil, nil, s.agent)
	}
}

// wake makes the agent's stream check for a new order.
func (a *agent) wake() {
	if a.stream == nil {
		return
	}
	select {
	case a.stream.woken <- struct{}{}:
	default:
	}
}
