package agentapi

import (
	"cmp"
	"net"
	"time"

	"github.com/google/uuid"

	"github.com/gpu-mode/kbgen/local/engine"
)

type registerReply struct {
	ID                string   `json:"id"`
	Name              string   `json:"name"`
	AccessToken       string   `json:"access_token"`
	PingInterval      int      `json:"ping_interval"`
	HeartbeatInterval int      `json:"heartbeat_interval"`
	JobStatusInterval int      `json:"job_status_interval"`
	Tags              []string `json:"meta_data"`
}

func (a *API) register(c *call, info engine.AgentInfo) (any, error) {
	info.IP, _, _ = net.SplitHostPort(c.RemoteAddr)
	info.UserAgent = c.UserAgent()
	agent, token, err := a.engine.Register(info)
	if err != nil {
		return nil, err
	}
	return registerReply{
		ID: agent.ID, Name: agent.Name, AccessToken: token, Tags: agent.Tags,
		PingInterval: 1, HeartbeatInterval: a.opts.HeartbeatInterval,
		JobStatusInterval: 1, // how soon a cancel is noticed
	}, nil
}

func (a *API) connect(c *call) (any, error) { return nil, a.engine.Connect(c.agent.ID) }

func (a *API) disconnect(c *call) (any, error) { return nil, a.engine.Disconnect(c.agent.ID) }

func (a *API) heartbeat(c *call, body struct {
	SentAt     string `json:"sent_at"`
	ReceivedAt string `json:"received_at"`
}) (any, error) {
	body.ReceivedAt = a.engine.Now().Format(time.RFC3339Nano)
	return body, a.engine.Heartbeat(c.agent.ID)
}

type jobRef struct {
	ID string `json:"id"`
}

type pingReply struct {
	Action  string  `json:"action,omitempty"`
	Message string  `json:"message,omitempty"`
	Job     *jobRef `json:"job,omitempty"`
}

func (a *API) ping(c *call) (any, error) {
	order, err := a.engine.Ping(c.agent.ID)
	if err != nil {
		return nil, err
	}
	switch order.Action {
	case engine.ActionJob:
		return pingReply{Job: &jobRef{order.JobID}}, nil
	case engine.ActionPause, engine.ActionDisconnect:
		return pingReply{Action: string(order.Action), Message: order.Reason}, nil
	}
	return pingReply{}, nil
}

// stop announces that a worker is about to end; from a job, it asks for the end
// of the job's worker.
func (a *API) stop(c *call, body struct {
	Force bool `json:"force"`
}) (any, error) {
	if c.kind == session {
		return nil, a.engine.Stopping(c.agent.ID)
	}
	return nil, a.engine.StopAgent(c.agentID(), body.Force)
}

func (a *API) pause(c *call, body struct {
	Note             string `json:"note"`
	TimeoutInMinutes int    `json:"timeout_in_minutes"`
}) (any, error) {
	if body.TimeoutInMinutes != 0 {
		return nil, unusable("kblocal does not implement timeout_in_minutes of a pause")
	}
	return nil, a.engine.SetAgentPaused(c.agentID(), true, body.Note)
}

func (a *API) resume(c *call) (any, error) {
	return nil, a.engine.SetAgentPaused(c.agentID(), false, "")
}

// registrationID is the identity of the only registration token.
var registrationID = uuid.NewSHA1(uuid.NameSpaceURL, []byte("kblocal:registration-token")).String()

// token says what a token is.
func (a *API) token(c *call) (any, error) {
	kind := map[kinds]string{registration: "registration", session: "session", jobToken: "job"}[c.kind]
	return map[string]string{
		"uuid":              cmp.Or(c.job.ID, c.agent.ID, registrationID),
		"description":       "kblocal",
		"token_type":        kind,
		"organization_slug": a.engine.Organization(),
		"cluster_uuid":      engine.ClusterID,
		"cluster_name":      engine.ClusterName,
	}, nil
}
