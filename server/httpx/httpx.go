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
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"path"
	"regexp"
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

	// Limit holds each client to a rate; nil: none.
	Limit *Limiter

	// Observe, when not nil, is told of every answer: the route's pattern, "" for
	// none, the status, and how long it took, 0 for a stream of events.
	Observe func(route string, status int, took time.Duration)
}

type key int

const (
	requestKey key = iota
	clientKey
	noteKey
)

// A note is what a handler tells the log about a request.
type note struct{ route, user string }

// Note tells the log which route serves a request and who asks.
func Note(ctx context.Context, route, user string) {
	if n, found := ctx.Value(noteKey).(*note); found {
		n.route, n.user = route, user
	}
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

var sane = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

// Wrap puts a handler into what every request gets.
func Wrap(h http.Handler, o Options) http.Handler {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		id := r.Header.Get("X-Request-Id")
		if !sane.MatchString(id) {
			var b [16]byte
			rand.Read(b[:]) // never fails
			id = hex.EncodeToString(b[:])
		}
		n := &note{}
		from := clientOf(r, o.Proxies)
		ctx := context.WithValue(context.WithValue(context.WithValue(r.Context(), requestKey, id), clientKey, from), noteKey, n)
		ctx, end := trace.Request(ctx, r.Header)
		w.Header().Set("X-Request-Id", id)
		seen := &recorder{ResponseWriter: w}
		http.NewResponseController(w).SetWriteDeadline(time.Time{}) // of an earlier request on the connection
		defer func() {
			broke := recover()
			if broke != nil && broke != http.ErrAbortHandler {
				o.Log.Error("a handler broke", "request", id, "route", n.route, "what", PanicKind(broke), "stack", string(debug.Stack()))
				if seen.status == 0 {
					Error(seen, http.StatusInternalServerError, "internal error; request "+id)
				}
			}
			o.Log.Info("request", "request", id, "method", method(r), "route", n.route, "user", n.user, "client", from, "status", seen.status, "bytes", seen.bytes, "took", time.Since(begun).Round(time.Microsecond))
			end(method(r), n.route, seen.status)
			if o.Observe != nil {
				took := time.Since(begun)
				if strings.HasPrefix(seen.Header().Get("Content-Type"), "text/event-stream") {
					took = 0
				}
				o.Observe(n.route, seen.status, took)
			}
			if broke != nil && seen.status != http.StatusInternalServerError {
				panic(http.ErrAbortHandler) // the answer has begun: end the connection, so that nobody takes it for whole
			}
		}()
		switch wait := o.Limit.address(from); {
		case wait > 0:
			TooMany(seen, wait)
		case !cleanPath(r):
			Error(seen, http.StatusBadRequest, "path: want a plain one")
		default:
			h.ServeHTTP(seen, r.WithContext(ctx))
		}
	})
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

// A recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	w.status = cmp.Or(w.status, http.StatusOK)
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets [http.ResponseController] reach what it needs.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

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

// NewStream begins to answer.
func NewStream(w http.ResponseWriter) *Stream {
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

// TooMany answers that a client asks too often.
func TooMany(w http.ResponseWriter, wait time.Duration) {
	seconds := max(1, int((wait+time.Second-1)/time.Second))
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	Error(w, http.StatusTooManyRequests, "too many requests; try again in "+strconv.Itoa(seconds)+" s")
}

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
