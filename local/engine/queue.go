package engine

import "time"

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
