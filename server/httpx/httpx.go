// Package httpx is what stands around every handler of the server: names for
// requests, limits of rate, size and time, and an answer when a handler breaks.
//
// It knows no route, no user and no database. No log line of it has a path, a query,
// a header or a body: paths hold invites, queries hold codes.
package httpx

import (
	"cmp"
	"container/list"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"github.com/gpu-mode/kbgen/server/trace"
)

// Options are what is set for all requests.
type Options struct {
	Log *slog.Logger // nil: nowhere

	// Proxies are those whose X-Forwarded-For counts.
	Proxies []netip.Prefix

	// HTTPS tells browsers to use nothing but https for this host.
	HTTPS bool

	// Limit holds each client to a rate; nil: none.
	Limit *Limiter

	// Quiet lists patterns of routes that programs ask all day. Requests to them that
	// succeed are logged at debug level.
	Quiet []string

	// Observe, when not nil, is told of every answer: the route's pattern, "other" for
	// none, the status, and how long it took, 0 for a stream of events.
	Observe func(route string, status int, took time.Duration)
}

// Limits of every request. [Expect] raises them for one request, and [NewStream]
// lifts the limit of time.
const (
	// MaxBody is the largest body, in bytes.
	MaxBody = 64 << 10

	// MaxTime is how long a client may take to send the body, and a handler to
	// answer.
	MaxTime = 30 * time.Second
)

const (
	writeTime   = 5 * time.Second // to read an answer that was written at the last moment
	refusedTime = 2 * time.Second // to send the rest of a body that is refused unread

	// maxBodies is how many requests of one client may be sending their bodies at
	// once. An address may have addressFactor times as many.
	maxBodies = 6
)

type key int

const (
	requestKey key = iota
	clientKey
	exchangeKey
)

// errSlow is the cause with which a request's context ends after its time.
var errSlow = errors.New("the request took too long")

// TimedOut reports whether the context of a request ended because its time is over.
// Otherwise its client has left.
func TimedOut(ctx context.Context) bool { return context.Cause(ctx) == errSlow }

// An exchange is a request and the part of its answer that has been written.
type exchange struct {
	http.ResponseWriter
	body     *body
	timer    *time.Timer // ends the context
	status   int
	bytes    int64
	streamed bool

	route, user, outcome string // for the log
}

// Note tells the log which route serves a request and who asks.
func Note(ctx context.Context, route, user string) {
	if e, found := ctx.Value(exchangeKey).(*exchange); found {
		e.route, e.user = route, user
	}
}

// Outcome tells the log what kind of error a request ended with.
func Outcome(ctx context.Context, kind string) {
	if e, found := ctx.Value(exchangeKey).(*exchange); found {
		e.outcome = kind
	}
}

// Expect lets a request have a body of so many bytes, and lets the whole exchange
// take so long from now on. It must be called before the body is read.
func Expect(r *http.Request, bytes int64, within time.Duration) {
	if e, found := r.Context().Value(exchangeKey).(*exchange); found {
		e.bound(r, bytes, within)
	}
}

func (e *exchange) bound(r *http.Request, bytes int64, within time.Duration) {
	e.timer.Reset(within)
	control := http.NewResponseController(e.ResponseWriter) // a test's recorder supports no deadlines
	control.SetWriteDeadline(time.Now().Add(within + writeTime))
	if e.body != nil {
		control.SetReadDeadline(time.Now().Add(within))
		r.Body = http.MaxBytesReader(e.ResponseWriter, e.body, bytes)
	}
}

func (e *exchange) WriteHeader(status int) {
	if e.status == 0 && status >= 200 {
		e.status = status
		e.settle()
	}
	e.ResponseWriter.WriteHeader(status)
}

// settle bounds how long a client may hold its connection once it has an answer.
func (e *exchange) settle() {
	if e.body != nil && !e.body.ended && e.status >= 400 {
		// net/http reads the rest of a small body before it sends the answer.
		http.NewResponseController(e.ResponseWriter).SetReadDeadline(time.Now().Add(refusedTime))
	}
	if !e.timer.Stop() && !e.streamed { // a read deadline that has passed ends the contexts of later requests, too
		e.Header().Set("Connection", "close")
	}
}

func (e *exchange) Write(b []byte) (int, error) {
	if e.status == 0 {
		e.WriteHeader(http.StatusOK)
	}
	n, err := e.ResponseWriter.Write(b)
	e.bytes += int64(n)
	return n, err
}

// Unwrap lets [http.ResponseController] reach what it needs.
func (e *exchange) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// A body is counted while it is being sent.
type body struct {
	io.ReadCloser
	release func()
	ended   bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended = true
		b.release()
	}
	return n, err
}

// RequestID returns the name of the request, "" outside of one.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestKey).(string)
	return id
}

// Client returns the address that a request comes from.
func Client(ctx context.Context) netip.Addr {
	a, _ := ctx.Value(clientKey).(netip.Addr)
	return a
}

// Caller names the client that rates and quotas hold for: the user, or the address
// of a client that is not logged in.
func Caller(ctx context.Context, userID string, admin bool) string {
	switch {
	case userID != "":
		return "user " + userID
	case admin:
		return "admin"
	}
	return Network(Client(ctx))
}

// hsts lasts for a year. Subdomains are not ours to decide about.
const hsts = "max-age=31536000"

// Wrap puts a handler into what every request gets.
func Wrap(h http.Handler, o Options) http.Handler {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	bodies := &Quota{Each: maxBodies}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		var random [16]byte
		rand.Read(random[:]) // never fails
		id := hex.EncodeToString(random[:])
		from := clientOf(r, o.Proxies)
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		e := &exchange{ResponseWriter: w, timer: time.AfterFunc(MaxTime, func() { cancel(errSlow) })}
		defer e.timer.Stop()
		ctx = context.WithValue(context.WithValue(context.WithValue(ctx, requestKey, id), clientKey, from), exchangeKey, e)
		ctx, end := trace.Request(ctx, r.Header)
		r = r.WithContext(ctx)
		w.Header().Set("X-Request-Id", id)
		if o.HTTPS {
			w.Header().Set("Strict-Transport-Security", hsts)
		}
		defer func() {
			broke := recover()
			// The pattern is that of the outermost mux, if no handler has noted a route.
			route := cmp.Or(e.route, r.Pattern, "/")
			if route == "/" {
				route = "other"
			}
			if broke != nil && broke != http.ErrAbortHandler {
				e.outcome = "panic"
				o.Log.Error("a handler broke", "request", id, "route", route, "what", PanicKind(broke), "stack", string(debug.Stack()))
				if e.status == 0 {
					Error(e, http.StatusInternalServerError, "internal error; request "+id)
				}
			}
			took := time.Since(begun)
			e.log(r, o, "request", id, "method", method(r), "route", route, "user", e.user, "client", from, "status", e.status, "bytes", e.bytes, "took", took.Round(time.Microsecond))
			end(method(r), route, e.status)
			if o.Observe != nil {
				if e.streamed {
					took = 0
				}
				o.Observe(route, e.status, took)
			}
			if broke != nil && e.status != http.StatusInternalServerError {
				panic(http.ErrAbortHandler) // the answer has begun: end the connection, so that nobody takes it for whole
			}
		}()
		if r.Body != nil && r.Body != http.NoBody {
			release, err := bodies.Take(ctx, "")
			if err != nil {
				e.outcome = "quota"
				e.body = &body{ReadCloser: r.Body, release: func() {}}
				TooMany(e, time.Second)
				return
			}
			defer release()
			e.body = &body{ReadCloser: r.Body, release: release}
		}
		e.bound(r, MaxBody, MaxTime)
		switch wait := o.Limit.address(from); {
		case wait > 0:
			e.outcome = "rate"
			TooMany(e, wait)
		case !cleanPath(r):
			Error(e, http.StatusBadRequest, "path: want a plain one")
		default:
			h.ServeHTTP(e, r)
		}
	})
}

// log writes the line of a request. Without an error there is no outcome.
func (e *exchange) log(r *http.Request, o Options, attrs ...any) {
	level := slog.LevelInfo
	if e.status < 400 && slices.Contains(o.Quiet, r.Pattern) {
		level = slog.LevelDebug
	}
	if e.outcome != "" {
		attrs = append(attrs, "outcome", e.outcome)
	}
	o.Log.Log(r.Context(), level, "request", attrs...)
}

// PanicKind says what a panic was about without its words, which may hold anything,
// unless they are the runtime's.
func PanicKind(broke any) string {
	if err, ok := broke.(runtime.Error); ok {
		return err.Error()
	}
	return "panic"
}

// method is the request's, if it is one: anything may be sent for it.
func method(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	}
	return "other"
}

// cleanPath refuses what another program on the way may have read otherwise.
func cleanPath(r *http.Request) bool {
	p := r.URL.Path
	if r.Method == http.MethodConnect || r.URL.Host != "" { // for a proxy, which we are not
		return false
	}
	if p == "*" {
		return r.Method == http.MethodOptions
	}
	bad := func(c rune) bool { return c < 0x20 || c == 0x7f || c == '\\' }
	clean := path.Clean(p)
	return strings.HasPrefix(p, "/") && (p == clean || p == clean+"/") && utf8.ValidString(p) && !strings.ContainsFunc(p, bad) && !strings.Contains(strings.ToLower(r.URL.EscapedPath()), "%2f")
}

// clientOf is the address that a request comes from: the last one in
// X-Forwarded-For that is not a proxy of ours, if a proxy of ours sent it.
func clientOf(r *http.Request, proxies []netip.Prefix) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	from := at.Addr().Unmap()
	ours := func(a netip.Addr) bool {
		return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && ours(from); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		from = hop.Unmap().WithZone("")
	}
	return from
}

// JSON writes an answer. A client that has left is no error of ours.
func JSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // an answer is made of our own types
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
}

// A Problem is the body of every answer that says no.
type Problem struct {
	Detail string `json:"detail"`
}

// Error answers with a problem.
func Error(w http.ResponseWriter, status int, detail string) {
	JSON(w, status, Problem{detail})
}

// See sends a browser on to another page.
func See(w http.ResponseWriter, r *http.Request, address string) error {
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, address, http.StatusSeeOther)
	return nil
}

// A Stream answers with server-sent events.
type Stream struct {
	*http.ResponseController
	w http.ResponseWriter
}

// NewStream begins to answer. The exchange may then take any time; each event has a
// limit of its own.
func NewStream(w http.ResponseWriter, r *http.Request) *Stream {
	if e, found := r.Context().Value(exchangeKey).(*exchange); found {
		e.timer.Stop()
		e.streamed = true
		if e.body != nil {
			http.NewResponseController(w).SetReadDeadline(time.Time{})
		}
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy shall not wait for more
	return &Stream{http.NewResponseController(w), w}
}

// Send sends the text of an event, which the client must read within a time.
func (s *Stream) Send(text string, limit time.Duration) error {
	s.SetWriteDeadline(time.Now().Add(limit)) // not supported by a test's recorder
	if _, err := io.WriteString(s.w, text); err != nil {
		return err
	}
	return s.Flush()
}

// RetryAfter is the header of that name for a database that cannot be used, in
// seconds.
const RetryAfter = "30"

// TooMany answers that a client asks too often.
func TooMany(w http.ResponseWriter, wait time.Duration) {
	seconds := max(1, int((wait+time.Second-1)/time.Second))
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	Error(w, http.StatusTooManyRequests, "too many requests; try again in "+strconv.Itoa(seconds)+" s")
}

// LogCost is how many requests one for the log of a run counts as: it may cost two
// requests to Buildkite.
const LogCost = 10

// defaultBurst is how much a client may ask at once. popcorn-cli asks every 5 s.
const defaultBurst = 60

// addressFactor is how much more an address may ask than one client: many people
// may stand behind it.
const addressFactor = 10

// maxClients bounds the memory: of more, those who asked longest ago are forgotten,
// which gives them their burst back.
const maxClients = 50_000

// A Limiter holds clients to a rate; nil is no limit.
type Limiter struct {
	PerSecond float64 // of one client
	Burst     int     // 0: 60

	mu      sync.Mutex
	buckets map[string]*list.Element
	recent  *list.List // of *bucket, the latest asked first
}

type bucket struct {
	name  string
	limit *rate.Limiter
}

// Ask takes n requests from a client's allowance, and returns how long the client
// must wait when there are none; 0: it may go on.
func (l *Limiter) Ask(client string, n int) time.Duration { return l.ask(client, 1, n) }

// address counts what comes from an address before anybody knows who it is.
func (l *Limiter) address(a netip.Addr) time.Duration {
	return l.ask("from "+Network(a), addressFactor, 1)
}

// Network is an address as one client: of IPv6, the network that one gets.
func Network(a netip.Addr) string {
	if a.Is6() && !a.Is4In6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.Unmap().String()
}

func (l *Limiter) ask(name string, factor float64, n int) time.Duration {
	if l == nil {
		return 0
	}
	now := time.Now()
	bucket := l.bucket(name, factor)
	reserved := bucket.ReserveN(now, min(n, bucket.Burst()))
	wait := reserved.DelayFrom(now)
	if wait > 0 {
		reserved.CancelAt(now)
	}
	if wait == rate.InfDuration {
		wait = time.Minute
	}
	return wait
}

func (l *Limiter) bucket(name string, factor float64) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buckets == nil {
		l.buckets, l.recent = map[string]*list.Element{}, list.New()
	}
	if e, found := l.buckets[name]; found {
		l.recent.MoveToFront(e)
		return e.Value.(*bucket).limit
	}
	burst := float64(cmp.Or(l.Burst, defaultBurst))
	b := &bucket{name, rate.NewLimiter(rate.Limit(l.PerSecond*factor), int(math.Ceil(burst*factor)))}
	l.buckets[name] = l.recent.PushFront(b)
	if l.recent.Len() > maxClients {
		oldest := l.recent.Back()
		delete(l.buckets, oldest.Value.(*bucket).name)
		l.recent.Remove(oldest)
	}
	return b.limit
}
