package document

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/local/engine"
)

// An Agent is an agent as JSON.
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

// Agent shows an agent with the job it has.
func (v *View) Agent(a engine.Agent) Agent {
	out := v.agentAlone(a)
	if a.JobID == "" {
		return out
	}
	if j, err := v.engine.Job(a.JobID); err == nil {
		out.Job = new(v.jobAlone(j))
	}
	return out
}

// agentAlone shows an agent without its job.
func (v *View) agentAlone(a engine.Agent) Agent {
	out := Agent{
		ID: a.ID, GraphQLID: graphQLID("Agent", a.ID), URL: v.orgURL() + "/agents/" + a.ID,
		WebURL: v.clusterPage() + "/queues/" + v.QueueID(a.Queue) + "/agents/" + a.ID,
		Name:   a.Name, ConnectionState: string(a.State), Hostname: a.Hostname, IPAddress: a.IP,
		UserAgent: a.UserAgent, Version: a.Version, OS: a.OS, Arch: a.Arch,
		MetaData: append([]string{}, a.Tags...), Queue: a.Queue, ClusterQueueID: orNull(v.QueueID(a.Queue)),
		Paused: a.Paused, PausedNote: orNull(a.PausedNote),
		CreatedAt: v.Time(a.CreatedAt), ConnectedAt: v.Time(a.ConnectedAt), DisconnectedAt: v.Time(a.DisconnectedAt),
		StoppedAt: v.Time(a.StoppedAt), LostAt: v.Time(a.LostAt),
	}
	if !slices.ContainsFunc(a.Tags, func(tag string) bool { return strings.HasPrefix(tag, "queue=") }) {
		out.MetaData = append(out.MetaData, "queue="+a.Queue)
	}
	if n, err := strconv.Atoi(a.Priority); err == nil {
		out.Priority = &n
	}
	if !a.LastJobFinishedAt.IsZero() {
		out.LastJobAt = new(v.Time(a.LastJobFinishedAt))
	}
	return out
}
