package engine

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/local/steps"
)

// A ConnectionState is an agent's state as REST v2 spells it.
type ConnectionState string

const (
	AgentNeverConnected ConnectionState = "never_connected"
	AgentConnected      ConnectionState = "connected"
	AgentDisconnected   ConnectionState = "disconnected"
	AgentStopping       ConnectionState = "stopping"
	AgentStopped        ConnectionState = "stopped"
	AgentLost           ConnectionState = "lost"
)

// AgentInfo is what an agent says of itself when it registers.
type AgentInfo struct {
	Name      string   `json:"name"`
	Hostname  string   `json:"hostname"`
	OS        string   `json:"os"`
	Arch      string   `json:"arch"`
	Version   string   `json:"version"`
	Build     string   `json:"build"`
	PID       int      `json:"pid"`
	Tags      []string `json:"meta_data"` // "key=value"
	Priority  string   `json:"priority"`
	IP        string   `json:"-"`
	UserAgent string   `json:"-"` // of the register call
	// OutOfDispatch marks an agent that only acquires one job.
	OutOfDispatch bool `json:"ignore_in_dispatches"`
}

// An Agent is one registered worker. Agents handed out by [Engine] are copies.
type Agent struct {
	AgentInfo

	ID    string // UUID
	Queue string // from its queue tag, "default" without

	State      ConnectionState
	Paused     bool
	PausedNote string
	Streaming  bool // has a stream open

	JobID string // the job it has; empty when idle

	CreatedAt         time.Time
	ConnectedAt       time.Time
	DisconnectedAt    time.Time
	StoppedAt         time.Time
	LostAt            time.Time
	LastSeen          time.Time
	LastJobFinishedAt time.Time
}

// agent is an agent under the engine's lock.
type agent struct {
	Agent
	token      string
	job        *job
	stream     *Stream // the newest one
	disconnect string  // reason of a requested disconnect; empty: none
	leaving    bool    // will take no further job
}

// NewToken returns a secret of 160 random bits in hex behind prefix, which
// shows what kind of token it is.
func NewToken(prefix string) string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return prefix + hex.EncodeToString(b[:])
}

// Register adds an agent and returns its session token. Names are made
// unique: two workers of one name would share a checkout directory.
func (e *Engine) Register(info AgentInfo) (Agent, string, error) {
	for _, tag := range info.Tags {
		if key, value, ok := strings.Cut(tag, "="); ok && key == "queue" && value == "" {
			return Agent{}, "", Refuse(Invalid, "tag %q: the queue has no name", tag)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	info.Name = e.uniqueName(info.Name)
	a := &agent{token: NewToken("bkaa_")}
	a.AgentInfo = info
	a.ID, a.CreatedAt, a.LastSeen = newID(), e.now(), e.now()
	a.Queue = steps.QueueOf(info.Tags)
	a.State = AgentNeverConnected
	e.queue(a.Queue)
	e.agents[a.ID] = a
	e.sessions[a.token] = a
	return a.Agent, a.token, nil
}

func (e *Engine) uniqueName(name string) string {
	name = cmp.Or(name, "agent")
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
	return change(e, e.findAgent, agentID, func(a *agent) error {
		a.State, a.ConnectedAt = AgentConnected, e.now()
		e.publish(EventAgentConnected, nil, nil, a)
		return nil
	})
}

// Disconnect notes that an agent leaves in good order. A job it still had is
// lost.
func (e *Engine) Disconnect(agentID string) error {
	return change(e, e.findAgent, agentID, func(a *agent) error {
		e.retire(a, AgentDisconnected)
		a.DisconnectedAt = e.now()
		e.publish(EventAgentStopped, nil, nil, a)
		e.dispatch()
		return nil
	})
}

// LoseAgent declares an agent lost, as a long silence does: its job ends with
// exit status -1 and no signal reason.
func (e *Engine) LoseAgent(agentID string) error {
	return change(e, e.findAgent, agentID, func(a *agent) error {
		e.lose(a)
		e.dispatch()
		return nil
	})
}

func (e *Engine) lose(a *agent) {
	if a.State == AgentLost || a.State == AgentDisconnected {
		return
	}
	e.retire(a, AgentLost)
	a.LostAt = e.now()
	e.publish(EventAgentLost, nil, nil, a)
}

// retire takes an agent out of service: its token dies, its stream ends, and its
// job fails or, when it was not accepted yet, goes to another agent.
func (e *Engine) retire(a *agent, state ConnectionState) {
	a.State = state
	delete(e.sessions, a.token)
	if j := a.job; j != nil {
		if j.State == JobAssigned {
			e.unassign(j)
		} else {
			e.finish(j, Finish{ExitStatus: -1})
		}
	}
	a.wake()
	a.stream, a.Streaming = nil, false
}

// StopAgent asks an agent to finish its job and leave; force cancels the job.
func (e *Engine) StopAgent(agentID string, force bool) error {
	return change(e, e.findAgent, agentID, func(a *agent) error {
		if a.State != AgentConnected && a.State != AgentStopping {
			return Refuse(BadRequest, "Can only stop connected agents")
		}
		a.State = AgentStopping
		a.disconnect = "stopped by request"
		e.publish(EventAgentChanged, nil, nil, a)
		if force && a.job != nil {
			e.cancelJob(a.job)
		}
		a.wake()
		return nil
	})
}

// Stopping notes that an agent is about to leave: it gets no more jobs.
func (e *Engine) Stopping(agentID string) error {
	return change(e, e.findAgent, agentID, func(a *agent) error {
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
	})
}

// SetAgentPaused keeps new jobs from an agent, or ends that.
func (e *Engine) SetAgentPaused(agentID string, paused bool, note string) error {
	return change(e, e.findAgent, agentID, func(a *agent) error {
		switch {
		case a.State != AgentConnected:
			return Refuse(Invalid, "Agent is not connected")
		case a.Paused && paused:
			return Refuse(Invalid, "Agent is already paused")
		case !a.Paused && !paused:
			return Refuse(Invalid, "Agent is not paused")
		}
		a.Paused, a.PausedNote = paused, note
		e.publish(EventAgentChanged, nil, nil, a)
		a.wake()
		e.dispatch()
		return nil
	})
}

// Heartbeat notes that the agent lives.
func (e *Engine) Heartbeat(agentID string) error {
	return change(e, e.findAgent, agentID, func(a *agent) error {
		a.LastSeen = e.now()
		return nil
	})
}

// Agent returns one agent.
func (e *Engine) Agent(id string) (Agent, error) {
	return query(e, e.findAgent, id, func(a *agent) (Agent, error) {
		return a.Agent, nil
	})
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
	return lookUp(e.agents, id, "No agent found")
}

// Ping answers an agent that polls. It offers a job only when the agent has
// no stream.
func (e *Engine) Ping(agentID string) (Order, error) {
	return query(e, e.findAgent, agentID, func(a *agent) (Order, error) {
		a.LastSeen = e.now()
		if a.stream == nil && a.free() {
			e.offer([]*agent{a})
		}
		order := a.order()
		if order.Action == ActionJob && a.stream != nil {
			return Order{Action: ActionIdle}, nil
		}
		return order, nil
	})
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

// free reports whether the agent may be given a job.
func (a *agent) free() bool {
	return a.State == AgentConnected && a.job == nil && !a.Paused && !a.leaving && !a.OutOfDispatch && a.disconnect == ""
}

// matches reports whether the agent's tags meet every rule. "key=*" asks for
// any value.
func (a *agent) matches(rules []string) bool {
	for _, rule := range rules {
		key, value, _ := strings.Cut(rule, "=")
		if key == "queue" {
			if value != "*" && value != a.Queue {
				return false
			}
			continue
		}
		ok := slices.ContainsFunc(a.Tags, func(tag string) bool {
			k, v, _ := strings.Cut(tag, "=")
			return k == key && (value == "*" || v == value)
		})
		if !ok {
			return false
		}
	}
	return true
}
