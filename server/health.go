package server

import (
	"context"
	"encoding/json"
	"net/http"
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
