package resource

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/local/engine"
)

// An Agent is an agent's JSON shape.
type Agent struct {
	ID              string     `json:"id"`
	GraphQLID       string     `json:"graphql_id"`
	URL             string     `json:"url"`
	WebURL          string     `json:"web_url"`
	Name            string     `json:"name"`
	ConnectionState string     `json:"connection_state"`
	Hostname        string     `json:"hostname"`
	IPAddress       string     `json:"ip_address"`
	UserAgent       string     `json:"user_agent"`
	Version         string     `json:"version"`
	OS              string     `json:"os_id"`
	Arch            string     `json:"arch"`
	Creator         *Person    `json:"creator"` // always null
	Job             *Job       `json:"job"`     // not in the agent of a job
	Priority        *int       `json:"priority"`
	MetaData        []string   `json:"meta_data"` // "key=value", queue among them
	Queue           string     `json:"queue"`
	ClusterQueueID  *string    `json:"cluster_queue_id"`
	Paused          bool       `json:"paused"`
	PausedNote      *string    `json:"paused_note"`
	CreatedAt       Timestamp  `json:"created_at"`
	ConnectedAt     Timestamp  `json:"connected_at"`
	DisconnectedAt  Timestamp  `json:"disconnected_at"`
	StoppedAt       Timestamp  `json:"stopped_at"`
	LostAt          Timestamp  `json:"lost_at"`
	LastJobAt       *Timestamp `json:"last_job_finished_at"`
}

// Agent is the shape of an agent, with the job it has.
func (s *Shapes) Agent(a *engine.Agent) Agent {
	out := s.agentAlone(a)
	if a.JobID == "" {
		return out
	}
	if j, err := s.engine.Job(a.JobID); err == nil {
		shape := s.jobAlone(&j)
		out.Job = &shape
	}
	return out
}

// agentAlone leaves the job out.
func (s *Shapes) agentAlone(a *engine.Agent) Agent {
	out := Agent{
		ID: a.ID, GraphQLID: graphQLID("Agent", a.ID), URL: s.orgURL() + "/agents/" + a.ID,
		WebURL: s.clusterPage() + "/queues/" + s.queueID(a.Queue) + "/agents/" + a.ID,
		Name:   a.Name, ConnectionState: string(a.State), Hostname: a.Hostname, IPAddress: a.IP,
		UserAgent: a.UserAgent, Version: a.Version, OS: a.OS, Arch: a.Arch,
		MetaData: append([]string{}, a.Tags...), Queue: a.Queue, ClusterQueueID: orNull(s.queueID(a.Queue)),
		Paused: a.Paused, PausedNote: orNull(a.PausedNote),
		CreatedAt: s.at(a.CreatedAt), ConnectedAt: s.at(a.ConnectedAt), DisconnectedAt: s.at(a.DisconnectedAt),
		StoppedAt: s.at(a.StoppedAt), LostAt: s.at(a.LostAt),
	}
	if !slices.ContainsFunc(a.Tags, func(tag string) bool { return strings.HasPrefix(tag, "queue=") }) {
		out.MetaData = append(out.MetaData, "queue="+a.Queue)
	}
	if n, err := strconv.Atoi(a.Priority); err == nil {
		out.Priority = &n
	}
	if !a.LastJobFinishedAt.IsZero() {
		at := s.at(a.LastJobFinishedAt)
		out.LastJobAt = &at
	}
	return out
}
