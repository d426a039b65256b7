package server

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// health answers those who watch over this process.
type health struct {
	s        *Server
	stopping atomic.Bool
}

// readyTime bounds the question to the database.
const readyTime = 3 * time.Second

// alive says that the process answers; a failed database is no reason to start it
// again.
func (h *health) alive(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"status": "ok", "version": h.s.o.Version})
}

// ready says whether requests should be sent here.
func (h *health) ready(w http.ResponseWriter, r *http.Request) {
	ctx, stop := context.WithTimeout(r.Context(), readyTime)
	defer stop()
	status, body := http.StatusOK, map[string]any{"status": "ok", "database": "ok"}
	if _, err := h.s.o.Store.Installation(ctx); err != nil {
		status, body["status"], body["database"] = http.StatusServiceUnavailable, "unavailable", "not reached"
		h.s.o.Log.Error("not ready", "error", err)
	}
	if h.stopping.Load() {
		status, body["status"] = http.StatusServiceUnavailable, "stopping"
	}
	body["working_on"] = h.s.reconciler.Working()
	answer(w, status, body)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

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
