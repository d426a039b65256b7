package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// newToken returns a random secret, recognizable by its prefix.
func newToken(prefix string) string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return prefix + hex.EncodeToString(b[:])
}

// Register adds an agent and returns its session token. Names are made
// unique: two workers of one name would share a checkout directory.
func (e *Engine) Register(info AgentInfo) (Agent, string, error) {
	for _, tag := range info.Tags {
		if key, value, ok := strings.Cut(tag, "="); ok && key == "queue" && value == "" {
			return Agent{}, "", refuse(Invalid, "tag %q: the queue has no name", tag)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	info.Name = e.uniqueName(info.Name)
	a := &agent{token: newToken("bkaa_")}
	a.AgentInfo = info
	a.ID, a.CreatedAt, a.LastSeen = newID(), e.now(), e.now()
	a.Queue = queueOf(info.Tags)
	a.State = AgentNeverConnected
	e.queue(a.Queue)
	e.agents[a.ID] = a
	e.sessions[a.token] = a
	return a.Agent, a.token, nil
}

func (e *Engine) uniqueName(name string) string {
	if name == "" {
		name = "agent"
	}
	taken := func(name string) bool {
		for _, a := range e.agents {
			if a.Name == name && (a.State == AgentConnected || a.State == AgentStopping || a.State == AgentNeverConnected) {
				return true
			}
		}
		return false
	}
	unique := name
	for i := 2; taken(unique); i++ {
		unique = fmt.Sprintf("%s-%d", name, i)
	}
	return unique
}

// AgentByToken returns the agent of a session token and notes that it lives.
func (e *Engine) AgentByToken(token string) (Agent, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, ok := e.sessions[token]
	if !ok {
		return Agent{}, false
	}
	a.LastSeen = e.now()
	return a.Agent, true
}

// Connect makes a registered agent available for jobs.
func (e *Engine) Connect(agentID string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.findAgent(agentID)
	if err != nil {
		return err
	}
	a.State, a.ConnectedAt = AgentConnected, e.now()
	e.publish(EventAgentConnected, nil, nil, a)
	return nil
}

// Disconnect is an agent's farewell. A job it still had is lost.
func (e *Engine) Disconnect(agentID string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.findAgent(agentID)
	if err != nil {
		return err
	}
	e.part(a, AgentDisconnected)
	a.DisconnectedAt = e.now()
	e.publish(EventAgentStopped, nil, nil, a)
	e.dispatch()
	return nil
}

// LoseAgent declares an agent lost, as silence does: its job ends with exit
// status -1 and no signal reason.
func (e *Engine) LoseAgent(agentID string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.findAgent(agentID)
	if err != nil {
		return err
	}
	e.lose(a)
	e.dispatch()
	return nil
}

func (e *Engine) lose(a *agent) {
	if a.State == AgentLost || a.State == AgentDisconnected {
		return
	}
	e.part(a, AgentLost)
	a.LostAt = e.now()
	e.publish(EventAgentLost, nil, nil, a)
}

// part takes an agent out of service: its token dies, its stream ends, and
// what it was running has failed.
func (e *Engine) part(a *agent, state ConnectionState) {
	a.State = state
	delete(e.sessions, a.token)
	if j := a.job; j != nil {
		if j.State == JobAssigned {
			e.unassign(j)
		} else {
			e.finish(j, Finish{ExitStatus: -1, FinishedAt: e.now()})
		}
	}
	a.wake()
	a.stream, a.Streaming = nil, false
}

// StopAgent asks an agent to finish its job and leave; force cancels the job.
func (e *Engine) StopAgent(agentID string, force bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.findAgent(agentID)
	if err != nil {
		return err
	}
	if a.State != AgentConnected && a.State != AgentStopping {
		return refuse(BadRequest, "Can only stop connected agents")
	}
	a.State = AgentStopping
	a.disconnect = "stopped by request"
	e.publish(EventAgentChanged, nil, nil, a)
	if force && a.job != nil {
		e.cancelJob(a.job)
	}
	a.wake()
	return nil
}

// Stopping notes that an agent announced its own end: no more jobs for it.
func (e *Engine) Stopping(agentID string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.findAgent(agentID)
	if err != nil {
		return err
	}
	a.leaving = true
	if a.State == AgentConnected {
		a.State = AgentStopping
	}
	e.publish(EventAgentChanged, nil, nil, a)
	if a.job != nil && a.job.State == JobAssigned {
		e.unassign(a.job)
		e.dispatch()
	}
	return nil
}

// PauseAgent keeps new jobs from an agent, ResumeAgent ends that.
func (e *Engine) PauseAgent(agentID, note string) error {
	return e.setPaused(agentID, true, note)
}

// ResumeAgent undoes [Engine.PauseAgent].
func (e *Engine) ResumeAgent(agentID string) error { return e.setPaused(agentID, false, "") }

func (e *Engine) setPaused(agentID string, paused bool, note string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.findAgent(agentID)
	switch {
	case err != nil:
		return err
	case a.State != AgentConnected:
		return refuse(Invalid, "Agent is not connected")
	case a.Paused && paused:
		return refuse(Invalid, "Agent is already paused")
	case !a.Paused && !paused:
		return refuse(Invalid, "Agent is not paused")
	}
	a.Paused, a.PausedNote = paused, note
	e.publish(EventAgentChanged, nil, nil, a)
	a.wake()
	e.dispatch()
	return nil
}

// Heartbeat notes that the agent lives.
func (e *Engine) Heartbeat(agentID string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.findAgent(agentID)
	if err == nil {
		a.LastSeen = e.now()
	}
	return err
}

// Agent returns one agent.
func (e *Engine) Agent(id string) (Agent, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.findAgent(id)
	if err != nil {
		return Agent{}, err
	}
	return a.Agent, nil
}

// Agents returns all agents that ever registered, newest first.
func (e *Engine) Agents() []Agent {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]Agent, 0, len(e.agents))
	for _, a := range e.agents {
		out = append(out, a.Agent)
	}
	slices.SortFunc(out, func(a, b Agent) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.Name, b.Name))
	})
	return out
}

func (e *Engine) findAgent(id string) (*agent, error) {
	a, ok := e.agents[id]
	if !ok {
		return nil, refuse(NotFound, "No agent found")
	}
	return a, nil
}

// Ping answers an agent that polls. It offers a job only when the agent has
// no stream.
func (e *Engine) Ping(agentID string) (Order, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.findAgent(agentID)
	if err != nil {
		return Order{}, err
	}
	a.LastSeen = e.now()
	if a.stream == nil && a.free() {
		e.offer([]*agent{a})
	}
	order := a.order()
	if order.Action == ActionJob && a.stream != nil {
		return Order{Action: ActionIdle}, nil
	}
	return order, nil
}

// order is what the agent should be doing.
func (a *agent) order() Order {
	switch {
	case a.disconnect != "":
		return Order{Action: ActionDisconnect, Reason: a.disconnect}
	case a.Paused:
		return Order{Action: ActionPause, Reason: a.PausedNote}
	case a.job != nil && a.job.State == JobAssigned:
		return Order{Action: ActionJob, JobID: a.job.ID}
	}
	return Order{Action: ActionIdle}
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
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.findAgent(agentID)
	if err != nil {
		return nil, err
	}
	if a.State == AgentLost || a.State == AgentDisconnected {
		return nil, refuse(Unauthorized, "Agent is %s", a.State)
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
}

// Next waits for the next order to send. The first is there at once, a job
// that nobody accepted comes again. It fails with [ErrStreamEnded] or ctx's
// error.
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

// wake lets the agent's stream look again.
func (a *agent) wake() {
	if a.stream == nil {
		return
	}
	select {
	case a.stream.woken <- struct{}{}:
	default:
	}
}

// Queues returns all queues, oldest first.
func (e *Engine) Queues() []Queue {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]Queue, 0, len(e.queues))
	for _, q := range e.queues {
		out = append(out, *q)
	}
	slices.SortFunc(out, func(a, b Queue) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Key, b.Key))
	})
	return out
}

// CreateQueue adds a queue.
func (e *Engine) CreateQueue(key, description string) (Queue, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slugKey(key) {
		return Queue{}, &Error{Kind: Invalid, Message: "Validation failed", Fields: []FieldError{{Field: "key", Code: "invalid"}}}
	}
	if _, ok := e.queues[key]; ok {
		return Queue{}, &Error{Kind: Invalid, Message: "Validation failed", Fields: []FieldError{{Field: "key", Code: "already_exists"}}}
	}
	q := e.queue(key)
	q.Description = description
	e.publish(EventQueueChanged, nil, nil, nil)
	return *q, nil
}

// slugKey reports whether key is a queue key: letters, digits, "-" and "_",
// at most 100 of them.
func slugKey(key string) bool {
	ok := key != "" && len(key) <= 100
	for _, r := range key {
		ok = ok && (r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}
	return ok
}

// PauseQueue stops the dispatch of a queue's jobs.
func (e *Engine) PauseQueue(id, note string) (Queue, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	q, err := e.findQueue(id)
	if err != nil {
		return Queue{}, err
	}
	if q.Paused {
		return Queue{}, refuse(Invalid, "Queue is already paused")
	}
	q.Paused, q.PausedAt, q.PausedNote = true, e.now(), note
	e.publish(EventQueueChanged, nil, nil, nil)
	return *q, nil
}

// ResumeQueue undoes [Engine.PauseQueue].
func (e *Engine) ResumeQueue(id string) (Queue, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	q, err := e.findQueue(id)
	if err != nil {
		return Queue{}, err
	}
	if !q.Paused {
		return Queue{}, refuse(Invalid, "Queue is not paused")
	}
	q.Paused, q.PausedAt, q.PausedNote = false, zeroTime, ""
	e.publish(EventQueueChanged, nil, nil, nil)
	e.dispatch()
	return *q, nil
}

func (e *Engine) findQueue(id string) (*Queue, error) {
	for _, q := range e.queues {
		if q.ID == id {
			return q, nil
		}
	}
	return nil, refuse(NotFound, "No queue found")
}
