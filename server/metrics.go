package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gpu-mode/kbgen/server/reconciler"
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
	counter("kbserve_webhook_hints_total", "Events that told of a build's end.", func() float64 { return float64(s.webhook.Stats().Hints) })
	counter("kbserve_webhook_refused_total", "Events that were refused.", func() float64 { return float64(s.webhook.Stats().Refused) })
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
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

// count counts the requests of one route.
func (m *metrics) count(route string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun, kept := time.Now(), &statusKeeper{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			m.requests.WithLabelValues(route, strconv.Itoa(kept.status)).Inc()
			if !kept.streamed {
				m.answered.WithLabelValues(route).Observe(time.Since(begun).Seconds())
			}
		}()
		h.ServeHTTP(kept, r)
	})
}

// A statusKeeper remembers the status of an answer.
type statusKeeper struct {
	http.ResponseWriter
	status   int
	wrote    bool
	streamed bool
}

func (k *statusKeeper) WriteHeader(status int) {
	if !k.wrote {
		k.status, k.wrote = status, true
		k.streamed = k.Header().Get("Content-Type") == "text/event-stream"
	}
	k.ResponseWriter.WriteHeader(status)
}

func (k *statusKeeper) Write(b []byte) (int, error) {
	if !k.wrote {
		k.WriteHeader(http.StatusOK)
	}
	return k.ResponseWriter.Write(b)
}

// Unwrap lets a stream flush.
func (k *statusKeeper) Unwrap() http.ResponseWriter { return k.ResponseWriter }
