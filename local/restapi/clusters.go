package restapi

import (
	"net/http"

	"github.com/gpu-mode/kbgen/local/document"
	"github.com/gpu-mode/kbgen/local/engine"
)

func (c *call) listClusters() error {
	return listing(c, []document.Cluster{c.view.Cluster()}, same)
}

func (c *call) getCluster() error { return c.ok(c.view.Cluster()) }

func (c *call) listQueues() error {
	return listing(c, c.engine.Queues(), c.view.Queue)
}

// queue returns the queue that the path names.
func (c *call) queue() (engine.Queue, error) {
	return c.engine.Queue(c.r.PathValue("queue"))
}

func (c *call) getQueue() error { return ok(c, c.view.Queue)(c.queue()) }

func (c *call) createQueue() error {
	f := c.form()
	key := required(f, "key")
	description, _ := take[string](f, "description")
	if err := c.check(f); err != nil {
		return err
	}
	return shown(c, http.StatusCreated, c.view.Queue)(c.engine.CreateQueue(key, description))
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
	return ok(c, c.view.Queue)(c.engine.SetQueuePaused(q.ID, true, note))
}

func (c *call) resumeQueue(q engine.Queue) error {
	return ok(c, c.view.Queue)(c.engine.SetQueuePaused(q.ID, false, ""))
}
