// Package agentapi serves the stand-in's engine as the API that buildkite-agent
// speaks: the calls of its workers and of the buildkite-agent commands inside
// jobs, and the stream that gives jobs out. It decides nothing about builds. What
// it does not implement it refuses by name.
//
// Source: buildkite/agent v3.138.0, packages api, core and agent. Statuses
// follow what that agent does with them: no 5xx for a mistake, since it would
// be repeated for minutes.
package agentapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/local/blob"
	"github.com/gpu-mode/kbgen/local/engine"
)

// Options configure an [API]. Zero fields take the defaults named.
type Options struct {
	RegistrationToken string // of `buildkite-agent start --token`; without one no agent can register

	// Links are those for a caller whose request named host; required.
	Links func(host string) blob.Links

	HeartbeatInterval int // told to agents, whole seconds, 60: an agent that reads 0 panics

	// StreamLimit is how long a stream lasts before it is ended in good order,
	// 50 seconds: the agent would cut it after 60.
	StreamLimit time.Duration

	// Issuer is the URL that tokens name as theirs, below which DiscoveryPath and
	// KeysPath are served; empty: there are no tokens.
	Issuer string

	// Secrets is the secret store, by key.
	Secrets map[string]string

	Logger *slog.Logger // one debug line per call, without tokens; nil is silent
}

// An API serves the agent API under /v3/ and the stream of pings at
// [StreamPath]. Make it with [New], end its streams with [API.Close].
type API struct {
	engine *engine.Engine
	opts   Options
	issuer func() (issuer, error) // made when a token or its key is asked for
	mux    *http.ServeMux
	life   context.Context // of streams
	end    context.CancelFunc

	mu      sync.Mutex
	uploads map[string]error         // outcome of pipeline uploads, by job and uuid
	batches map[string]artifactReply // by job and batch id
	updates map[string]struct{}      // idempotency ids of step updates
}

// New makes the API of an engine.
func New(e *engine.Engine, opts Options) *API {
	if opts.HeartbeatInterval < 1 {
		opts.HeartbeatInterval = 60
	}
	if opts.StreamLimit <= 0 {
		opts.StreamLimit = 50 * time.Second
	}
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	a := &API{
		engine: e, opts: opts, mux: http.NewServeMux(),
		issuer:  sync.OnceValues(newIssuer),
		uploads: map[string]error{},
		batches: map[string]artifactReply{},
		updates: map[string]struct{}{},
	}
	a.life, a.end = context.WithCancel(context.Background())
	a.routes()
	return a
}

// Close ends all streams; agents go over to polling. Call it before
// http.Server.Shutdown, which waits for them.
func (a *API) Close() { a.end() }

// ServeHTTP answers one call.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	sw := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	a.mux.ServeHTTP(sw, r)
	a.opts.Logger.Debug("agent API", "method", r.Method, "path", r.URL.Path, "status", sw.status, "took", time.Since(start))
}

// A statusWriter remembers the status for the log.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// routes lists every call there is, with the tokens that may make it.
func (a *API) routes() {
	for pattern, h := range map[string]struct {
		tokens kinds
		serve  handler
	}{
		"POST /v3/register":   {registration, with(a.register)},
		"POST /v3/connect":    {session, a.connect},
		"POST /v3/disconnect": {session, a.disconnect},
		"POST /v3/heartbeat":  {session, with(a.heartbeat)},
		"GET /v3/ping":        {session, a.ping},
		"POST /v3/stop":       {session | jobToken, with(a.stop)},
		"POST /v3/pause":      {session | jobToken, with(a.pause)},
		"POST /v3/resume":     {session | jobToken, a.resume},
		"GET /v3/token":       {registration | session | jobToken, a.token},

		"PUT /v3/jobs/{id}/accept":           {session, a.accept},
		"PUT /v3/jobs/{id}/acquire":          {session, a.acquire},
		"PUT /v3/jobs/{job}/start":           {jobToken, with(a.start)},
		"GET /v3/jobs/{job}":                 {jobToken, a.jobState},
		"PUT /v3/jobs/{job}":                 {jobToken, with(a.updateJob)},
		"POST /v3/jobs/{job}/chunks":         {jobToken, a.chunk},
		"POST /v3/jobs/{job}/header_times":   {jobToken, with(a.headerTimes)},
		"PUT /v3/jobs/{job}/finish":          {jobToken, with(a.finish)},
		"PUT /v3/jobs/{job}/promise_failure": {jobToken, with(a.promiseFailure)},

		"POST /v3/jobs/{job}/pipelines":       {jobToken, a.uploadPipeline},
		"GET /v3/jobs/{job}/pipelines/{uuid}": {jobToken, a.uploadStatus},

		"POST /v3/jobs/{job}/artifacts":           {jobToken, with(a.createArtifacts)},
		"PUT /v3/jobs/{job}/artifacts":            {jobToken, with(a.updateArtifacts)},
		"GET /v3/builds/{build}/artifacts/search": {jobToken, a.searchArtifacts},

		"POST /v3/jobs/{job}/data/set":        {jobToken, with(a.setData)},
		"POST /v3/jobs/{job}/data/set-batch":  {jobToken, with(a.setDataBatch)},
		"POST /v3/jobs/{job}/data/get":        {jobToken, with(a.getData)},
		"POST /v3/jobs/{job}/data/exists":     {jobToken, with(a.dataExists)},
		"POST /v3/jobs/{job}/data/keys":       {jobToken, a.dataKeys},
		"POST /v3/builds/{build}/data/get":    {jobToken, with(a.getData)},
		"POST /v3/builds/{build}/data/exists": {jobToken, with(a.dataExists)},
		"POST /v3/builds/{build}/data/keys":   {jobToken, a.dataKeys},

		"POST /v3/jobs/{job}/annotations":             {jobToken, with(a.annotate)},
		"DELETE /v3/jobs/{job}/annotations/{context}": {jobToken, a.removeAnnotation},

		"POST /v3/steps/{step}/export":   {jobToken, with(a.exportStep)},
		"PUT /v3/steps/{step}":           {jobToken, with(a.updateStep)},
		"POST /v3/steps/{step}/cancel":   {jobToken, with(a.cancelStep)},
		"POST /v3/builds/{build}/cancel": {jobToken, a.cancelBuild},

		"GET /v3/jobs/{job}/secrets":                  {jobToken, a.secret},
		"POST /v3/jobs/{job}/oidc/tokens":             {jobToken, with(a.issueToken)},
		"POST /v3/jobs/{job}/repository_access_token": {jobToken, unimplemented("it has no repository provider")},
		"/v3/cache_registries/":                       {jobToken | session, unimplemented("it has no cache registries")},
	} {
		a.mux.Handle(pattern, a.handle(h.tokens, h.serve))
	}
	a.mux.HandleFunc("POST "+StreamPath, a.streamPings)
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.fail(w, engine.Refuse(engine.NotFound, "kblocal does not implement %s %s", r.Method, r.URL.Path))
	})
}

// unimplemented refuses a call that Buildkite has.
func unimplemented(why string) handler {
	return func(c *call) (any, error) {
		return nil, unusable("kblocal does not implement %s %s: %s", c.Method, c.URL.Path, why)
	}
}

// A call is one request whose token has been looked up.
type call struct {
	*http.Request
	caller
}

// A handler answers with what becomes the JSON body, nil for {}.
type handler func(c *call) (any, error)

// with makes the handler of a call that takes a JSON body.
func with[T any](serve func(c *call, body T) (any, error)) handler {
	return func(c *call) (any, error) {
		var body T
		if err := c.decode(&body); err != nil {
			return nil, err
		}
		return serve(c, body)
	}
}

// noContent is the answer 204.
type noContent struct{}

// handle wraps a handler with the checks that all calls share.
func (a *API) handle(allowed kinds, serve handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := a.identify(r, allowed)
		if err != nil {
			a.fail(w, err)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		body, err := serve(&call{Request: r, caller: who})
		switch {
		case err != nil:
			a.fail(w, err)
		case body == noContent{}:
			w.WriteHeader(http.StatusNoContent)
		case body == nil:
			writeJSON(w, http.StatusOK, struct{}{})
		default:
			writeJSON(w, http.StatusOK, body)
		}
	})
}

// writeJSON sends header and body in one go.
func writeJSON(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil { // a step's definition that is not JSON
		status, data = http.StatusInternalServerError, []byte(`{"message":"the answer could not be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	_, _ = w.Write(data) // the agent is gone if this fails, and asks again
}

// unusable refuses with 422, which agents do not repeat.
func unusable(format string, args ...any) error {
	return engine.Refuse(engine.Invalid, format, args...)
}

// fail answers with an error's status and {"message": …}.
func (a *API) fail(w http.ResponseWriter, err error) {
	refused, ok := errors.AsType[*engine.Error](err)
	if !ok {
		a.opts.Logger.Error("agent API", "error", err)
		refused = engine.Refuse(http.StatusInternalServerError, "kblocal could not do this, see its log")
	}
	if refused.Kind == engine.Locked {
		w.Header().Set("Retry-After", "1") // seconds
	}
	writeJSON(w, int(refused.Kind), refused)
}
