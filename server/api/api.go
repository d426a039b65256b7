// Package api is the HTTP interface: the routes that popcorn-cli uses, as Kernelbot
// has them, and our own under /api/v1, which openapi.json describes.
//
// It decides nothing about who may see or do what: package backend does. It knows
// no page, and of the log-in only who somebody is.
package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/competition"
	"github.com/gpu-mode/kbgen/server/httpx"
	"github.com/gpu-mode/kbgen/server/identity"
	"github.com/gpu-mode/kbgen/store"
)

// Options are what the interface stands on.
type Options struct {
	Backend  *backend.Backend
	Identity *identity.Identity // its routes, under /auth/, are served too
	Log      *slog.Logger       // nil: nowhere

	// Next answers requests that match none of these routes: the pages. nil: not
	// found.
	Next Pages

	GitHub string // where repositories of competitions are downloaded from; "": competition.GitHub

	// Limit holds each user, and each address that nobody has logged in from, to a
	// rate; nil: none.
	Limit *httpx.Limiter

	// Streams bounds the open streams of each client; nil: [httpx.NewStreamQuota].
	Streams *httpx.Quota

	// Stopping is closed when the server is about to stop: streams end then, and say
	// so.
	Stopping <-chan struct{}

	// Beat is how often a stream says that it is alive; 0: 15 s, as in Kernelbot.
	Beat time.Duration
}

// Pages are the other handler of the server's paths.
type Pages interface {
	http.Handler
	// Has reports whether there is a page for a request.
	Has(*http.Request) bool
}

// Limits of a request with a file. Other requests have package httpx's.
const (
	maxUpload  = store.MaxCode + httpx.MaxBody // bytes: a file and the form around it
	uploadTime = 60 * time.Second              // popcorn-cli waits as long
)

// initCost is how many requests the beginning of popcorn-cli's log-in counts as: it
// makes a row for whoever asks.
const initCost = 10

type api struct {
	o     Options
	mux   *http.ServeMux
	first map[string]bool // first parts of the paths of the routes, "api"
}

// New makes the handler. [httpx.Wrap] belongs around it.
func New(o Options) http.Handler {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Beat, o.GitHub = cmp.Or(o.Beat, 15*time.Second), cmp.Or(o.GitHub, competition.GitHub)
	if o.Streams == nil {
		o.Streams = httpx.NewStreamQuota()
	}
	a := &api{o: o, mux: http.NewServeMux(), first: map[string]bool{}}
	for _, r := range a.routes() {
		_, at, _ := strings.Cut(r.pattern, " ")
		a.first[firstPart(at)] = true
		a.mux.HandleFunc(r.pattern, a.handler(r))
	}
	o.Identity.Register(a.mux)
	return a
}

func firstPart(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first
}

// ServeHTTP finds the route. Programs get JSON for a path that has no route, and for a
// method that a route does not take. Browsers get a page, unless the path belongs to
// the API.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	own := a.first[firstPart(r.URL.Path)]
	_, pattern := a.mux.Handler(r)
	if pattern == streamPattern && own { // the first part is not a board
		pattern = ""
	}
	if pattern == streamPattern && a.o.Next != nil && aPagesForm(r) {
		a.o.Next.ServeHTTP(w, r)
		return
	}
	if pattern != "" {
		if strings.Contains(pattern, " /auth/") { // of package identity
			httpx.Note(r.Context(), pattern, "")
			cost := 1
			if strings.HasSuffix(pattern, "/auth/init") {
				cost = initCost
			}
			if wait := a.o.Limit.Ask(httpx.Network(httpx.Client(r.Context())), cost); wait > 0 {
				httpx.TooMany(w, wait)
				return
			}
		}
		a.mux.ServeHTTP(w, r)
		return
	}
	if a.o.Next != nil && r.Method != http.MethodOptions && a.o.Next.Has(r) {
		a.o.Next.ServeHTTP(w, r)
		return
	}
	allow := a.allow(r, own)
	switch {
	case r.Method == http.MethodOptions && allow != "":
		w.Header().Set("Allow", allow+", OPTIONS")
		w.WriteHeader(http.StatusNoContent)
	case a.o.Next != nil && !own && (allow == "" || strings.Contains(r.Header.Get("Accept"), "text/html")):
		a.o.Next.ServeHTTP(w, r)
	case allow != "":
		w.Header().Set("Allow", allow)
		httpx.Error(w, http.StatusMethodNotAllowed, "method: this address takes "+allow)
	default:
		httpx.Error(w, http.StatusNotFound, "there is nothing here")
	}
}

// allow lists the methods that a path has routes for, "" for none. The route of all
// three-part addresses does not count below the first parts of our paths.
func (a *api) allow(r *http.Request, own bool) string {
	ask := r.Clone(r.Context())
	ask.Method = "NONE"
	h, _ := a.mux.Handler(ask)
	seen := &unrouted{header: http.Header{}}
	h.ServeHTTP(seen, ask)
	methods := strings.Split(seen.header.Get("Allow"), ", ")
	ask.Method = http.MethodPost
	if _, pattern := a.mux.Handler(ask); pattern == streamPattern && own {
		methods = slices.DeleteFunc(methods, func(m string) bool { return m == http.MethodPost })
	}
	return strings.Join(methods, ", ")
}

// aPagesForm reports whether a request that looks like popcorn-cli's older route is
// a page's form, whose address may have three parts too: it names no mode and brings
// no CLI id.
func aPagesForm(r *http.Request) bool {
	mode := strings.ToLower(path.Base(r.URL.Path))
	return !slices.Contains(schema.Modes(), mode) && r.Header.Get(identity.HeaderCLI) == "" && r.Header.Get("Authorization") == ""
}

// unrouted takes what the mux says about a request that has no route.
type unrouted struct{ header http.Header }

func (r *unrouted) Header() http.Header         { return r.header }
func (r *unrouted) Write(b []byte) (int, error) { return len(b), nil }
func (r *unrouted) WriteHeader(int)             {}

// A call is one request on its way through a route.
type call struct {
	*http.Request
	w   http.ResponseWriter
	who identity.Who
	api *api
	own bool // the route is ours

	admin *backend.Admin // nil on routes that are not for admins
}

func (c *call) ctx() context.Context     { return c.Request.Context() }
func (c *call) back() *backend.Backend   { return c.api.o.Backend }
func (c *call) viewer() backend.Viewer   { return c.who.Viewer }
func (c *call) board() string            { return strings.ToLower(c.PathValue("board")) }
func (c *call) client() string           { return httpx.Caller(c.ctx(), c.who.ID, c.who.Admin) }
func (c *call) header(name, text string) { c.w.Header().Set(name, text) }

// handler puts a route's handler into what all of them need.
func (a *api) handler(rt route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		httpx.Note(r.Context(), rt.pattern, "")
		if rt.upload || rt.large {
			httpx.Expect(r, maxUpload, uploadTime)
		}
		c := &call{Request: r, w: w, api: a, own: rt.own}
		if err := a.admit(c, rt); err != nil {
			a.refuse(c, rt, err)
			return
		}
		answer, err := rt.do(c)
		if err != nil {
			a.refuse(c, rt, err)
			return
		}
		if answer != nil { // a stream has answered itself
			httpx.JSON(w, rt.success(), answer)
		}
	}
}

// admit finds out who asks and whether they may ask at all.
func (a *api) admit(c *call, rt route) error {
	if _, err := url.ParseQuery(c.URL.RawQuery); err != nil {
		return &refusal{http.StatusBadRequest, "query: it cannot be read"}
	}
	var err error
	if c.who, err = a.o.Identity.Who(c.Request); err != nil {
		if wait := a.o.Limit.Ask(httpx.Network(httpx.Client(c.ctx())), 1); wait > 0 {
			return &slower{wait}
		}
		return err
	}
	httpx.Note(c.ctx(), rt.pattern, c.who.ID)
	if wait := a.o.Limit.Ask(c.client(), max(1, rt.cost)); wait > 0 {
		return &slower{wait}
	}
	switch {
	case rt.needs == user && c.who.ID == "" && !rt.own:
		return &refusal{http.StatusBadRequest, "want the header " + identity.HeaderCLI + "; popcorn-cli register makes one"}
	case rt.needs == user && c.who.ID == "", rt.needs == known && !c.who.Known():
		return &refusal{http.StatusUnauthorized, "want somebody who is logged in, or the header " + identity.HeaderCLI}
	case rt.needs == admin && !c.who.Known():
		return &refusal{http.StatusUnauthorized, "want the header Authorization: Bearer TOKEN"}
	case rt.needs == admin:
		if c.admin, err = a.o.Backend.Admin(c.viewer()); err != nil {
			return &refusal{http.StatusForbidden, "this is for admins"}
		}
	}
	if c.who.Cookie && c.Method != http.MethodGet && c.Method != http.MethodHead {
		return a.o.Identity.CheckOrigin(c.Request)
	}
	return nil
}

// A refusal is an answer that says no.
type refusal struct {
	status int
	detail string
}

func (f *refusal) Error() string                { return f.detail }
func (f *refusal) answer(w http.ResponseWriter) { httpx.Error(w, f.status, f.detail) }

// A slower is a client that asks too often.
type slower struct{ wait time.Duration }

func (s *slower) Error() string                { return "too many requests" }
func (s *slower) answer(w http.ResponseWriter) { httpx.TooMany(w, s.wait) }

// statuses of what a backend refuses.
var statuses = map[store.Why]int{
	store.Invalid: http.StatusBadRequest, store.UnknownBoard: http.StatusNotFound, store.UnknownGPU: http.StatusBadRequest, store.UnknownUser: http.StatusNotFound,
	store.Banned: http.StatusForbidden, store.NotInvited: http.StatusForbidden, store.AfterDeadline: http.StatusBadRequest, store.OverLimit: http.StatusTooManyRequests,
	store.Finished: http.StatusConflict, store.HasCLIID: http.StatusConflict, store.UnknownInvite: http.StatusNotFound, store.InviteTaken: http.StatusConflict, store.OtherProvider: http.StatusConflict,
}

// refuse answers with an error, and tells the log its kind. Errors of the server
// itself are logged, and their text is not sent.
func (a *api) refuse(c *call, rt route, err error) {
	var answerer interface{ answer(http.ResponseWriter) }
	var refused *store.Refusal
	var large *http.MaxBytesError
	fail := func(kind string, status int, detail string) {
		httpx.Outcome(c.ctx(), kind)
		httpx.Error(c.w, status, detail)
	}
	switch {
	case errors.As(err, &answerer):
		kind := "request"
		if _, rate := errors.AsType[*slower](err); rate {
			kind = "rate"
		}
		httpx.Outcome(c.ctx(), kind)
		answerer.answer(c.w)
	case errors.As(err, &refused):
		if refused.RetryAfter > 0 {
			c.w.Header().Set("Retry-After", strconv.Itoa(max(1, int(refused.RetryAfter.Round(time.Second).Seconds()))))
		}
		fail("refused", statuses[refused.Why], refused.Text)
	case errors.As(err, &large):
		fail("too large", http.StatusRequestEntityTooLarge, "body: want at most "+strconv.FormatInt(large.Limit, 10)+" bytes")
	case errors.Is(err, store.ErrNotFound):
		fail("not found", http.StatusNotFound, err.Error())
	case errors.Is(err, backend.ErrForbidden) && !c.who.Known():
		fail("forbidden", http.StatusUnauthorized, err.Error())
	case errors.Is(err, backend.ErrForbidden), errors.Is(err, identity.ErrCrossOrigin):
		fail("forbidden", http.StatusForbidden, err.Error())
	case errors.Is(err, identity.ErrCredentials):
		fail("credentials", http.StatusUnauthorized, err.Error())
	case httpx.TimedOut(c.ctx()):
		fail("timeout", http.StatusServiceUnavailable, "this took too long; try again")
	case c.ctx().Err() != nil:
		fail("client left", http.StatusServiceUnavailable, "the request has ended; try again")
	default:
		id := httpx.RequestID(c.ctx())
		a.o.Log.Error("a request did not work", "request", id, "route", rt.pattern, "error", err)
		if store.Unavailable(err) {
			c.w.Header().Set("Retry-After", httpx.RetryAfter)
			fail("database unavailable", http.StatusServiceUnavailable, "the database cannot be used at the moment, and nothing was stored; try again later; request "+id)
			return
		}
		fail("internal", http.StatusInternalServerError, "internal error; request "+id)
	}
}

// Who may call a route. What they then may see and do is package backend's.
type need int

const (
	anybody need = iota
	known        // a user or an admin
	user         // somebody with an account
	admin
)

// A route is one method and path, and everything that openapi.json says of it.
type route struct {
	pattern string // "GET /api/v1/boards/{board}"
	about   string
	own     bool // ours; otherwise Kernelbot's
	needs   need
	query   []param
	upload  bool         // the body is a form with a file
	large   bool         // the body may be as large as that
	body    reflect.Type // of JSON; nil: none
	answer  reflect.Type // of JSON; nil: a stream or text
	media   string       // of the answer, when it is no JSON
	status  int          // of success; 0: 200
	stream  bool
	cost    int // requests that one counts as; 0: 1
	do      func(*call) (any, error)
}

func (r route) success() int { return cmp.Or(r.status, http.StatusOK) }

// A param is one value in a query.
type param struct {
	name  string
	kind  string // string, integer or boolean
	about string
}

// routes are all there are. Their paths say which are ours, and which are for admins.
func (a *api) routes() []route {
	all := slices.Concat(popcornRoutes(), popcornAdminRoutes(), boardRoutes(), submissionRoutes(), adminRoutes(), otherRoutes())
	for i := range all {
		r := &all[i]
		_, at, _ := strings.Cut(r.pattern, " ")
		r.own = strings.HasPrefix(at, "/api/v1/")
		if strings.HasPrefix(at, "/admin/") || strings.HasPrefix(at, "/api/v1/admin/") {
			r.needs = admin
		}
	}
	return all
}
