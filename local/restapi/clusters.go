package restapi

import (
	"net/http"

	"github.com/gpu-mode/kbgen/local/engine"
)

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

// inCluster checks the cluster that the path names.
func (c *call) inCluster() error {
	if c.r.PathValue("cluster") != engine.ClusterID {
		return notFound("No cluster found")
	}
	return nil
}

func (c *call) listClusters() error {
	clusters, err := page(c, []Cluster{c.shapes.cluster()})
	if err != nil {
		return err
	}
	return c.ok(clusters)
}

func (c *call) getCluster() error {
	if err := c.inCluster(); err != nil {
		return err
	}
	return c.ok(c.shapes.cluster())
}

func (c *call) listQueues() error {
	if err := c.inCluster(); err != nil {
		return err
	}
	queues, err := page(c, c.engine.Queues())
	if err != nil {
		return err
	}
	return c.ok(render(queues, c.shapes.Queue))
}

// queue returns the queue that the path names.
func (c *call) queue() (engine.Queue, error) {
	if err := c.inCluster(); err != nil {
		return engine.Queue{}, err
	}
	for _, q := range c.engine.Queues() {
		if q.ID == c.r.PathValue("queue") {
			return q, nil
		}
	}
	return engine.Queue{}, notFound("No queue found")
}

func (c *call) getQueue() error {
	q, err := c.queue()
	if err != nil {
		return err
	}
	return c.ok(c.shapes.Queue(q))
}

func (c *call) createQueue() error {
	if err := c.inCluster(); err != nil {
		return err
	}
	f, err := c.form()
	if err != nil {
		return err
	}
	key := required(f, "key")
	description, _ := take[string](f, "description")
	if err := c.check(f); err != nil {
		return err
	}
	q, err := c.engine.CreateQueue(key, description)
	if err != nil {
		return err
	}
	c.answer(http.StatusCreated, c.shapes.Queue(q))
	return nil
}

// pauseQueue takes the note under both keys: the documentation shows one in
// its example and the other in its table.
func (c *call) pauseQueue() error {
	q, err := c.queue()
	if err != nil {
		return err
	}
	f, err := c.form()
	if err != nil {
		return err
	}
	note, given := take[string](f, "dispatch_paused_note")
	if other, _ := take[string](f, "note"); !given {
		note = other
	}
	if err := c.check(f); err != nil {
		return err
	}
	if q, err = c.engine.PauseQueue(q.ID, note); err != nil {
		return err
	}
	return c.ok(c.shapes.Queue(q))
}

func (c *call) resumeQueue() error {
	q, err := c.queue()
	if err != nil {
		return err
	}
	if q, err = c.engine.ResumeQueue(q.ID); err != nil {
		return err
	}
	return c.ok(c.shapes.Queue(q))
}
