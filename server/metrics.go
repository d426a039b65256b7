package server

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/gpu-mode/kbgen/server/httpx"
	"github.com/gpu-mode/kbgen/server/reconciler"
	"github.com/gpu-mode/kbgen/store"
)

// metrics are what is counted. Labels are GPU types, modes, routes and statuses:
// nothing that a stranger chooses.
type metrics struct {
	registry *prometheus.Registry

	runs     *prometheus.CounterVec
	took     *prometheus.HistogramVec
	requests *prometheus.CounterVec
	answered *prometheus.HistogramVec
}

func newMetrics(s *Server) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kbserve_runs_total", Help: "What happened to planned runs."},
			[]string{"what", "gpu", "mode"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kbserve_run_seconds", Help: "From the plan of a run to its result in the store.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 14)}, []string{"gpu", "mode"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kbserve_http_requests_total", Help: "Answered requests."},
			[]string{"route", "status"}),
		answered: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kbserve_http_request_seconds", Help: "Time to answer, streams left out.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14)}, []string{"route"}),
	}
	m.registry.MustRegister(m.runs, m.took, m.requests, m.answered, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	counter := func(name, help string, value func() float64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value))
	}
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kbserve_runs_in_hand", Help: "Runs that this process works on."},
		func() float64 { return float64(s.reconciler.Working()) }))
	calls := s.o.Launcher.Calls
	counter("kbserve_buildkite_requests_total", "Requests to Buildkite's REST API.", func() float64 { return float64(calls().Total) })
	counter("kbserve_buildkite_creates_total", "Requests that make builds.", func() float64 { return float64(calls().Creates) })
	counter("kbserve_buildkite_polls_total", "Requests about builds that run.", func() float64 { return float64(calls().Polls) })
	counter("kbserve_webhook_hints_total", "Events that told of a build's end.", func() float64 { return float64(s.webhook.Hints()) })
	counter("kbserve_webhook_refused_total", "Events that were refused.", func() float64 { return float64(s.webhook.Refused()) })
	return m
}

// observe counts what the reconciler tells.
func (m *metrics) observe(e reconciler.Event) {
	mode := e.Mode
	if e.Secret {
		mode += "-secret"
	}
	m.runs.WithLabelValues(string(e.Kind), e.GPU, mode).Inc()
	if e.Kind == reconciler.Recorded {
		m.took.WithLabelValues(e.GPU, mode).Observe(e.Took.Seconds())
	}
}

// request counts an answer.
func (m *metrics) request(route string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	if took > 0 {
		m.answered.WithLabelValues(route).Observe(took.Seconds())
	}
}

// health answers programs that watch this process.
type health struct {
	s        *Server
	stopping atomic.Bool

	mu      sync.Mutex
	checked time.Time
	fault   error // of the last check of writing
}

const (
	// readyTime bounds each question to the database.
	readyTime = 3 * time.Second

	// writeEvery is how often a test write checks the database. Requests in between get
	// the last result, because anyone may ask whether the server is ready.
	writeEvery = 10 * time.Second
)

// alive says that the process answers; a failed database is no reason to start it
// again.
func (h *health) alive(w http.ResponseWriter, _ *http.Request) {
	httpx.JSON(w, http.StatusOK, map[string]any{"status": "ok", "version": h.s.o.Version})
}

// ready says whether requests should be sent here.
func (h *health) ready(w http.ResponseWriter, r *http.Request) {
	ctx, stop := context.WithTimeout(r.Context(), readyTime)
	defer stop()
	status, body := http.StatusOK, map[string]any{"status": "ok", "database": "ok"}
	refuse := func(database string, err error) {
		status, body["status"], body["database"] = http.StatusServiceUnavailable, "unavailable", database
		httpx.Outcome(r.Context(), "database "+database)
		h.s.o.Log.Error("not ready", "database", database, "error", err)
	}
	if _, err := h.s.o.Store.Installation(ctx); err != nil {
		refuse("not reached", err)
	} else if err := h.writable(ctx); err != nil {
		refuse("not written", err)
	}
	if h.stopping.Load() {
		status, body["status"] = http.StatusServiceUnavailable, "stopping"
	}
	body["working_on"] = h.s.reconciler.Working()
	httpx.JSON(w, status, body)
}

// writable returns why the database cannot be written, or nil. A database that is slow
// because others write to it counts as writable.
func (h *health) writable(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.checked) < writeEvery {
		return h.fault
	}
	err := h.s.o.Store.CheckWrite(ctx)
	if ctx.Err() != nil {
		return h.fault // of the check before this one
	}
	h.fault, h.checked = nil, time.Now()
	if store.Unavailable(err) {
		h.fault = err
	}
	return h.fault
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
