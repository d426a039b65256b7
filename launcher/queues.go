package launcher

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema/text"
)

// A Queue is a cluster queue.
type Queue struct {
	ID         string
	Key        string // what steps name, "h100"
	Cluster    string `json:"-"`               // name of its cluster
	Paused     bool   `json:"dispatch_paused"` // nothing is dispatched to agents
	PausedNote string `json:"dispatch_paused_note"`
}

// Connected is the state of an agent that is there and not stopping.
const Connected = "connected"

// An Agent is an agent that Buildkite knows to be there: connected, or
// stopping after its job.
type Agent struct {
	ID         string
	Name       string
	State      string   `json:"connection_state"` // [Connected] or "stopping"
	Tags       []string `json:"meta_data"`        // "key=value", queue among them
	Queue      string   // key; empty outside a cluster
	QueueID    string   `json:"cluster_queue_id"`
	Paused     bool     // takes no jobs
	PausedNote string   `json:"paused_note"`
	Job        *struct {
		ID string
	}
}

// Busy reports whether the agent has a job.
func (a *Agent) Busy() bool { return a.Job != nil }

// On reports whether the agent serves q. A key may exist in several clusters, so
// ids decide where there are any.
func (a *Agent) On(q *Queue) bool {
	if a.QueueID != "" {
		return a.QueueID == q.ID
	}
	if a.Queue != "" {
		return a.Queue == q.Key
	}
	return slices.Contains(a.Tags, "queue="+q.Key)
}

// Queues lists the queues of all clusters of the organization. It takes one
// request and one for each cluster, and the scope read_clusters.
//
// Errors: [APIError], 403 where the scope is missing; [RateLimitError].
func (c *Client) Queues(ctx context.Context) ([]Queue, error) {
	type cluster struct{ ID, Name string }
	ctx, stop := patient(ctx)
	defer stop()
	clusters, err := allOf[cluster](ctx, c, c.orgPath()+"/clusters")
	if err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	var all []Queue
	for _, cl := range clusters {
		if !idPattern.MatchString(cl.ID) {
			return nil, fmt.Errorf("listing clusters: got the id %q from the API, want letters, digits and -", text.Line(cl.ID, 60))
		}
		queues, err := allOf[Queue](ctx, c, c.orgPath()+"/clusters/"+cl.ID+"/queues")
		if err != nil {
			return nil, fmt.Errorf("listing the queues of cluster %s: %w", text.Line(cl.Name, 60), err)
		}
		for i := range queues {
			queues[i].Cluster = cl.Name
		}
		all = append(all, queues...)
	}
	return all, nil
}

// Agents lists the organization's agents, connected and stopping ones: the API
// lists no others. It takes a request for each hundred and the scope
// read_agents.
//
// Errors: as for [Client.Queues].
func (c *Client) Agents(ctx context.Context) ([]Agent, error) {
	ctx, stop := patient(ctx)
	defer stop()
	agents, err := allOf[Agent](ctx, c, c.orgPath()+"/agents")
	if err != nil {
		return nil, fmt.Errorf("listing agents: %w", err)
	}
	return agents, nil
}

// orgPath returns "v2/organizations/{org}".
func (c *Client) orgPath() string {
	org, _, _ := strings.Cut(c.path, "/pipelines/")
	return org
}
