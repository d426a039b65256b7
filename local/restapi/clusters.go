package restapi

import (
	"net/http"

	"github.com/gpu-mode/kbgen/local/document"
	"github.com/gpu-mode/kbgen/local/engine"
)

// inCluster checks the cluster that the path names.
func (c *call) inCluster() error {
	if c.r.PathValue("cluster") != engine.ClusterID {
		return notFound("No cluster found")
	}
	return nil
}

func (c *call) listClusters() error {
	clusters, err := page(c, []document.Cluster{c.view.Cluster()})
	if err != nil {
		return err
	}
	return c.ok(clusters)
}

func (c *call) getCluster() error {
	if err := c.inCluster(); err != nil {
		return err
	}
	return c.ok(c.view.Cluster())
}

func (c *call) listQueues() error {
	if err := c.inCluster(); err != nil {
		return err
	}
	return listing(c, c.engine.Queues(), c.view.Queue)
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

// showQueue answers with a queue, or why there is none.
func (c *call) showQueue(q engine.Queue, err error) error {
	if err != nil {
		return err
	}
	return c.ok(c.view.Queue(q))
}

func (c *call) getQueue() error { return c.showQueue(c.queue()) }

func (c *call) createQueue() error {
	if err := c.inCluster(); err != nil {
		return err
	}
	f := c.form()
	key := required(f, "key")
	description, _ := take[string](f, "description")
	if err := c.check(f); err != nil {
		return err
	}
	q, err := c.engine.CreateQueue(key, description)
	if err != nil {
		return err
	}
	c.answer(http.StatusCreated, c.view.Queue(q))
	return nil
}

// pauseQueue takes the note under both keys: the documentation shows one in
// its example and the other in its table.
func (c *call) pauseQueue(q engine.Queue) error {
	f := c.form()
	note, given := take[string](f, "dispatch_paused_note")
	if other, _ := take[string](f, "note"); !given {
		note = other
	}
	if err := c.check(f); err != nil {
		return err
	}
	return c.showQueue(c.engine.PauseQueue(q.ID, note))
}

func (c *call) resumeQueue(q engine.Queue) error {
	return c.showQueue(c.engine.ResumeQueue(q.ID))
}
