package restapi

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

// listAgents lists connected and stopping agents only, as the service does.
func (c *call) listAgents() error {
	q := c.r.URL.Query()
	differs := func(name, got string) bool { return q.Has(name) && q.Get(name) != got }
	agents := slices.DeleteFunc(c.engine.Agents(), func(a engine.Agent) bool {
		return a.State != engine.AgentConnected && a.State != engine.AgentStopping ||
			differs("name", a.Name) || differs("hostname", a.Hostname) || differs("version", a.Version) ||
			differs("cluster_queue_id", c.shapes.queueID(a.Queue))
	})
	agents, err := page(c, agents)
	if err != nil {
		return err
	}
	return c.ok(render(agents, func(a engine.Agent) Agent { return c.shapes.Agent(&a) }))
}

func (c *call) getAgent() error {
	a, err := c.engine.Agent(c.r.PathValue("agent"))
	if err != nil {
		return err
	}
	return c.ok(c.shapes.Agent(&a))
}

// stopAgent cancels the agent's job unless told otherwise, as the service
// does.
func (c *call) stopAgent() error {
	f, err := c.form()
	if err != nil {
		return err
	}
	force, given := take[bool](f, "force")
	if err := c.check(f); err != nil {
		return err
	}
	if err := c.engine.StopAgent(c.r.PathValue("agent"), force || !given); err != nil {
		return err
	}
	return c.noContent()
}

// pauseAgent refuses a timeout: the engine would not end the pause by itself.
func (c *call) pauseAgent() error {
	f, err := c.form()
	if err != nil {
		return err
	}
	note, _ := take[string](f, "note")
	if _, given := take[int](f, "timeout_in_minutes"); given {
		return invalid("kblocal does not end pauses by itself: leave timeout_in_minutes out",
			engine.FieldError{Field: "timeout_in_minutes", Code: "not_implemented"})
	}
	if err := c.check(f); err != nil {
		return err
	}
	if err := c.engine.PauseAgent(c.r.PathValue("agent"), note); err != nil {
		return err
	}
	return c.noContent()
}

func (c *call) resumeAgent() error {
	if err := c.engine.ResumeAgent(c.r.PathValue("agent")); err != nil {
		return err
	}
	return c.noContent()
}
