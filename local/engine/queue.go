package engine

import (
	"cmp"
	"regexp"
	"slices"
	"time"
)

// A Queue is one queue of the stand-in's only cluster. A queue comes into
// being when it is created, or when an agent registers for it or a job asks
// for it.
type Queue struct {
	ID          string
	Key         string
	Description string
	CreatedAt   time.Time

	Paused     bool // dispatch_paused
	PausedAt   time.Time
	PausedNote string
}

// Queues returns all queues, oldest first.
func (e *Engine) Queues() []Queue {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]Queue, 0, len(e.queues))
	for _, q := range e.queues {
		out = append(out, *q)
	}
	slices.SortFunc(out, func(a, b Queue) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Key, b.Key))
	})
	return out
}

var queueKey = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// CreateQueue adds a queue.
func (e *Engine) CreateQueue(key, description string) (Queue, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !queueKey.MatchString(key) {
		return Queue{}, &Error{Kind: Invalid, Message: "Validation failed", Fields: []FieldError{{Field: "key", Code: "invalid"}}}
	}
	if _, ok := e.queues[key]; ok {
		return Queue{}, &Error{Kind: Invalid, Message: "Validation failed", Fields: []FieldError{{Field: "key", Code: "already_exists"}}}
	}
	q := e.queue(key)
	q.Description = description
	e.publish(EventQueueChanged, nil, nil, nil)
	return *q, nil
}

// SetQueuePaused stops the dispatch of a queue's jobs, or ends that.
func (e *Engine) SetQueuePaused(id string, paused bool, note string) (Queue, error) {
	return query(e, e.findQueue, id, func(q *Queue) (Queue, error) {
		switch {
		case q.Paused && paused:
			return Queue{}, Refuse(Invalid, "Queue is already paused")
		case !q.Paused && !paused:
			return Queue{}, Refuse(Invalid, "Queue is not paused")
		}
		q.Paused, q.PausedAt, q.PausedNote = paused, time.Time{}, note
		if paused {
			q.PausedAt = e.now()
		}
		e.publish(EventQueueChanged, nil, nil, nil)
		e.dispatch()
		return *q, nil
	})
}

// Queue returns one queue.
func (e *Engine) Queue(id string) (Queue, error) {
	return query(e, e.findQueue, id, func(q *Queue) (Queue, error) { return *q, nil })
}

func (e *Engine) findQueue(id string) (*Queue, error) {
	for _, q := range e.queues {
		if q.ID == id {
			return q, nil
		}
	}
	return nil, Refuse(NotFound, "No queue found")
}

// queue returns the queue, made when it is new.
func (e *Engine) queue(key string) *Queue {
	q, ok := e.queues[key]
	if !ok {
		q = &Queue{ID: newID(), Key: key, CreatedAt: e.now()}
		e.queues[key] = q
	}
	return q
}
