package document

import (
	"github.com/gpu-mode/kbgen/local/engine"
)

// A Cluster is the only cluster as JSON.
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

// Cluster shows the cluster, which is as old as its default queue.
func (v *View) Cluster() Cluster {
	out := Cluster{
		ID: engine.ClusterID, GraphQLID: graphQLID("Cluster", engine.ClusterID), Name: engine.ClusterName,
		URL: v.clusterURL(), WebURL: v.clusterPage(), QueuesURL: v.clusterURL() + "/queues",
		DefaultQueueID: v.QueueID("default"), DefaultQueueURL: v.clusterURL() + "/queues/" + v.QueueID("default"),
	}
	for _, q := range v.engine.Queues() {
		if q.Key == "default" {
			out.CreatedAt = v.Time(q.CreatedAt)
		}
	}
	return out
}

// A Queue is a cluster's queue as JSON.
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

// Queue shows a queue.
func (v *View) Queue(q engine.Queue) Queue {
	return Queue{
		ID: q.ID, GraphQLID: graphQLID("ClusterQueue", q.ID), Key: q.Key, Description: orNull(q.Description),
		URL: v.clusterURL() + "/queues/" + q.ID, WebURL: v.clusterPage() + "/queues/" + q.ID, ClusterURL: v.clusterURL(),
		DispatchPaused: q.Paused, DispatchPausedAt: v.Time(q.PausedAt), DispatchPausedNote: orNull(q.PausedNote),
		RetryAffinity: "prefer-warmest", CreatedAt: v.Time(q.CreatedAt),
	}
}

// An Organization is the only organization as JSON.
type Organization struct {
	ID           string    `json:"id"`
	GraphQLID    string    `json:"graphql_id"`
	URL          string    `json:"url"`
	WebURL       string    `json:"web_url"`
	Name         string    `json:"name"`
	Slug         string    `json:"slug"`
	PipelinesURL string    `json:"pipelines_url"`
	AgentsURL    string    `json:"agents_url"`
	EmojisURL    string    `json:"emojis_url"`
	CreatedAt    Timestamp `json:"created_at"`
}

// Organization shows the organization, which is as old as its default queue.
func (v *View) Organization() Organization {
	slug, url := v.engine.Organization(), v.orgURL()
	return Organization{
		ID: engine.OrganizationID, GraphQLID: graphQLID("Organization", engine.OrganizationID),
		URL: url, WebURL: v.base + "/" + slug, Name: slug, Slug: slug,
		PipelinesURL: url + "/pipelines", AgentsURL: url + "/agents", EmojisURL: url + "/emojis",
		CreatedAt: v.Cluster().CreatedAt,
	}
}
