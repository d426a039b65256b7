package engine

import "time"

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
	Name     string
	Hostname string
	OS       string
	Arch     string
	Version  string
	Build    string
	PID      int
	Tags     []string // "key=value"
	Priority string
	IP       string
	// UserAgent of the register call.
	UserAgent string
	// OutOfDispatch marks an agent that only acquires one job.
	OutOfDispatch bool
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

// agent is an agent under the engine's lock.
type agent struct {
	Agent
	token      string
	job        *job
	stream     *Stream // the newest one
	disconnect string  // reason of a requested disconnect; empty: none
	leaving    bool    // will take no further job
}
