package server

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// A drain waits for requests that have begun. [http.Server.Shutdown] alone drops
// those whose first line it reads while it shuts down, and clients of ours give up
// at the first connection that ends without an answer.
type drain struct {
	mu   sync.Mutex
	busy map[net.Conn]time.Time // since when: new connections, and those with a request
}

// silent is how long a new connection may say nothing.
const silent = 2 * time.Second

// state is the server's hook.
func (d *drain) state(c net.Conn, s http.ConnState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch s {
	case http.StateNew:
		d.busy[c] = time.Now()
	case http.StateActive:
		d.busy[c] = time.Time{}
	default:
		delete(d.busy, c)
	}
}

// wait returns when no connection has anything to be answered, or when ctx ends.
// No more connections may be accepted by then.
func (d *drain) wait(ctx context.Context) {
	for pause := time.Millisecond; d.any() && ctx.Err() == nil; pause = min(2*pause, 50*time.Millisecond) {
		time.Sleep(pause)
	}
}

func (d *drain) any() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, since := range d.busy {
		if since.IsZero() || time.Since(since) < silent {
			return true
		}
	}
	return false
}
