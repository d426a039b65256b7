package resource

import "github.com/gpu-mode/kbgen/local/engine"

// A Cluster is the JSON shape of the only cluster.
type Cluster struct {
	ID              string    `json:"id"`
	GraphQLID       string    `json:"graphql_id"`
	Name            string    `json:"name"`
	Description     string    `json:"description"`
	Emoji           *string   `json:"emoji"` // always null
	Color           *string   `json:"color"` // always null
	URL             string    `json:"url"`
	WebURL          string    `json:"web_url"`
	QueuesURL       string    `json:"queues_url"`
	DefaultQueueID  string    `json:"default_queue_id"`
	DefaultQueueURL string    `json:"default_queue_url"`
	CreatedAt       Timestamp `json:"created_at"`
	CreatedBy       *Person   `json:"created_by"` // always null
}

// cluster shapes the cluster; it is as old as its default queue.
func (s *Shapes) cluster() Cluster {
	out := Cluster{
		ID: engine.ClusterID, GraphQLID: graphQLID("Cluster", engine.ClusterID), Name: engine.ClusterName,
		URL: s.clusterURL(), WebURL: s.clusterPage(), QueuesURL: s.clusterURL() + "/queues",
		DefaultQueueID: s.queueID("default"), DefaultQueueURL: s.clusterURL() + "/queues/" + s.queueID("default"),
	}
	for _, q := range s.engine.Queues() {
		if q.Key == "default" {
			out.CreatedAt = s.at(q.CreatedAt)
		}
	}
	return out
}

// A Queue is a cluster queue's JSON shape.
type Queue struct {
	ID                 string    `json:"id"`
	GraphQLID          string    `json:"graphql_id"`
	Key                string    `json:"key"`
	Description        *string   `json:"description"`
	URL                string    `json:"url"`
	WebURL             string    `json:"web_url"`
	ClusterURL         string    `json:"cluster_url"`
	DispatchPaused     bool      `json:"dispatch_paused"`
	DispatchPausedBy   *Person   `json:"dispatch_paused_by"` // always null
	DispatchPausedAt   Timestamp `json:"dispatch_paused_at"`
	DispatchPausedNote *string   `json:"dispatch_paused_note"`
	RetryAffinity      string    `json:"retry_agent_affinity"`
	CreatedAt          Timestamp `json:"created_at"`
	CreatedBy          *Person   `json:"created_by"` // always null
}

// Queue is the shape of a queue.
func (s *Shapes) Queue(q engine.Queue) Queue {
	return Queue{
		ID: q.ID, GraphQLID: graphQLID("ClusterQueue", q.ID), Key: q.Key, Description: orNull(q.Description),
		URL: s.clusterURL() + "/queues/" + q.ID, WebURL: s.clusterPage() + "/queues/" + q.ID, ClusterURL: s.clusterURL(),
		DispatchPaused: q.Paused, DispatchPausedAt: s.at(q.PausedAt), DispatchPausedNote: orNull(q.PausedNote),
		RetryAffinity: "prefer-warmest", CreatedAt: s.at(q.CreatedAt),
	}
}
