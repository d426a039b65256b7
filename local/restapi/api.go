// Package restapi serves the stand-in's engine as Buildkite's REST API v2, as
// far as launchers and checks of queues use it. What it does not implement it
// refuses with a message that says so.
//
// It knows nothing of the agents' API, of artifact bytes (a download redirects to
// another origin), or of where it is mounted.
//
// Source: Buildkite's REST API reference (buildkite/docs, pages/apis/rest_api)
// and what buildkite/go-buildkite v3.13.0 decodes.
package restapi

import (
	"cmp"
	"log/slog"
	"net/http"
	"sync"

	"github.com/gpu-mode/kbgen/local/document"
	"github.com/gpu-mode/kbgen/local/engine"
)

// Options configure the handler of [New].
type Options struct {
	// Tokens may call the API; without any, every call is refused.
	Tokens []Token

	// Blob knows where artifact bytes are served for a caller whose request named
	// host. Nil: downloads are refused.
	Blob func(host string) Blob

	// Lenient accepts what the service is not documented to accept: unknown
	// body fields are ignored and a build may be named by its UUID.
	Lenient bool

	// RateLimits are enforced. Nil counts and sends headers all the same, with
	// a limit of [Unlimited].
	RateLimits *Limits

	Logger *slog.Logger // gets one line per request at debug level; may be nil
}

// A Blob names the place an artifact's bytes are fetched from, on another
// origin than the API's and without its token.
type Blob interface {
	DownloadURL(artifactID string) string
}

// maxBody bounds a request's body, bytes. The service's own limit is not
// documented; this lets through the largest env that Linux can exec.
const maxBody = 8 << 20

// maxDepth is how many results deep a listing goes before it is refused.
const maxDepth = 10_000

// metaPath needs no token.
const metaPath = "/v2/meta"

type api struct {
	engine *engine.Engine
	opts   Options
	tokens []credential
	meter  *meter
	mux    *http.ServeMux

	mu       sync.Mutex
	settings map[string]pipelineSettings // by pipeline id
}

// New returns the handler of everything below /v2/.
func New(e *engine.Engine, opts Options) http.Handler {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	a := &api{
		engine:   e,
		opts:     opts,
		tokens:   credentials(opts.Tokens),
		meter:    newMeter(opts.RateLimits, e.Now),
		mux:      http.NewServeMux(),
		settings: map[string]pipelineSettings{},
	}
	a.routes()
	return a
}

// A call is one request on its way through the API.
type call struct {
	*api
	w    http.ResponseWriter
	r    *http.Request
	who  *credential
	view *document.View
}

// ServeHTTP refuses what every endpoint refuses, then routes.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.opts.Logger.Debug("rest", "method", r.Method, "path", r.URL.Path)
	c := &call{api: a, w: w, r: r}
	c.view = document.NewView(a.engine, c.base())
	switch {
	case (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.ContentLength != 0:
		c.fail(engine.Refuse(http.StatusForbidden, "a GET request must not have a body"))
	case r.URL.Path == metaPath:
		a.meter.describe(w.Header())
		a.mux.ServeHTTP(w, r)
	case !c.authenticate():
		a.meter.describe(w.Header())
		c.unauthorized()
	default:
		if over := a.meter.count(c.who.User.ID, w.Header()); over != nil {
			c.answer(http.StatusTooManyRequests, over)
			return
		}
		a.mux.ServeHTTP(w, r)
	}
}

func (c *call) unauthorized() {
	c.w.Header().Set("WWW-Authenticate", `Bearer realm="kblocal"`)
	c.fail(engine.Refuse(engine.Unauthorized, "Authentication required: send a valid API access token as Authorization: Bearer"))
}

// base is the origin of URLs in answers: the host that the caller reached. It
// takes the token to get one, so a forged name misleads nobody but its author.
func (c *call) base() string { return "http://" + c.r.Host }

// A handler answers one endpoint; the error it returns becomes the answer.
type handler func(c *call) error

// handle adds an endpoint; an empty scope asks for a valid token only.
func (a *api) handle(pattern, scope string, h handler) {
	a.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		c := &call{api: a, w: w, r: r}
		c.view = document.NewView(a.engine, c.base())
		if r.URL.Path != metaPath && !c.authenticate() { // who was counted is not known here
			c.unauthorized()
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if err := c.allowed(scope); err != nil {
			c.fail(err)
			return
		}
		if err := h(c); err != nil {
			c.fail(err)
		}
	})
}

// with makes the handler of what is asked of one thing that the path names.
func with[T any](find func(*call) (T, error), serve func(*call, T) error) handler {
	return func(c *call) error {
		found, err := find(c)
		if err != nil {
			return err
		}
		return serve(c, found)
	}
}

// allowed checks the token's scope, and the organization, cluster and pipeline in
// the path.
func (c *call) allowed(scope string) error {
	if scope != "" && !c.who.has(scope) {
		return engine.Refuse(http.StatusForbidden, "Forbidden")
	}
	if org := c.r.PathValue("org"); org != "" && org != c.engine.Organization() {
		return engine.Refuse(engine.NotFound, "No organization found")
	}
	if cluster := c.r.PathValue("cluster"); cluster != "" && cluster != engine.ClusterID {
		return engine.Refuse(engine.NotFound, "No cluster found")
	}
	if slug := c.r.PathValue("pipeline"); slug != "" {
		_, err := c.engine.Pipeline(slug)
		return err
	}
	return nil
}
