// Package server is the competition's backend as one handler and what works behind
// it: the HTTP API, the pages, webhooks, health and metrics over a store, and the
// reconciler that evaluates what was submitted. It reads no environment and opens
// no port; package main does both.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/server/announce"
	"github.com/gpu-mode/kbgen/server/api"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/hook"
	"github.com/gpu-mode/kbgen/server/httpx"
	"github.com/gpu-mode/kbgen/server/identity"
	"github.com/gpu-mode/kbgen/server/reconciler"
	"github.com/gpu-mode/kbgen/server/web"
	"github.com/gpu-mode/kbgen/server/webhook"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/database"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Options are what a server stands on.
type Options struct {
	Store    *store.Store
	Launcher *launcher.Client
	Fleet    pipelines.Table
	Version  string

	PublicURL  string // as browsers and clients reach it, "https://kernels.example.org"
	Name       string // of the competition, for its pages
	AdminToken string // "" admits nobody by token
	Admins     []string
	Providers  []identity.Provider
	Proxies    []string // addresses and networks whose X-Forwarded-For is believed

	Rate float64 // requests a second of one client; 0: no limit

	WebhookToken string             // "" refuses all webhooks
	AnnounceURL  string             // the chat's webhook for what changes at the top; "" announces nothing
	HookURL      string             // the organizer's program that is asked about submissions; "": none, they run at once
	HookSecret   string             // that requests to it are signed with
	Reconciler   reconciler.Options // Store, Launcher, Fleet, Log and Observe are filled in

	Log *slog.Logger
}

// A Server serves once [Server.Serve] is called.
type Server struct {
	o          Options
	backend    *backend.Backend
	identity   *identity.Identity
	reconciler *reconciler.Reconciler
	webhook    *webhook.Handler
	announcer  *announce.Announcer // nil: none
	hook       *hook.Hook          // nil: none
	metrics    *metrics
	health     health
	handler    http.Handler
	recheck    time.Duration // between two looks at the database's version

	streams    context.Context // ends when the server stops
	endStreams context.CancelFunc
}

// signingKey is the name of the key that all instances on a database share.
const signingKey = "signing key"

// New puts a server together. It makes no request but to the database.
func New(ctx context.Context, o Options) (*Server, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	signing, err := o.Store.Secret(ctx, signingKey)
	if err != nil {
		return nil, err
	}
	s := &Server{o: o, recheck: 10 * time.Second}
	s.streams, s.endStreams = context.WithCancel(context.Background())
	s.metrics = newMetrics(s)
	r := o.Reconciler
	r.Store, r.Launcher, r.Fleet, r.Log, r.Observe = o.Store, o.Launcher, o.Fleet, o.Log, s.metrics.observe
	s.reconciler = reconciler.New(r)
	s.backend = backend.New(backend.Options{Store: o.Store, Queue: s.reconciler, Fleet: o.Fleet, Check: o.HookURL != ""})
	s.identity, err = identity.New(identity.Options{Store: o.Store, Signing: signing, PublicURL: o.PublicURL, AdminToken: o.AdminToken, Admins: o.Admins, Providers: o.Providers, Enclose: web.Enclose(o.Name), Log: o.Log})
	if err != nil {
		return nil, err
	}
	s.webhook = webhook.New(webhook.Options{Token: o.WebhookToken, Hint: s.reconciler.Hint, Seen: s.sawEvent, Log: o.Log})
	if o.AnnounceURL != "" {
		if s.announcer, err = announce.New(announce.Options{Store: o.Store, URL: o.AnnounceURL, Log: o.Log}); err != nil {
			return nil, err
		}
	}
	if err := s.addHook(ctx); err != nil {
		return nil, err
	}
	s.health = health{s: s}
	s.handler, err = s.routes()
	return s, err
}

// addHook makes the hook, if there is one. Without one, submissions that wait for a
// decision go on waiting: a variable that is missing must not let them pass.
func (s *Server) addHook(ctx context.Context) (err error) {
	if s.o.HookURL != "" {
		s.hook, err = hook.New(hook.Options{Store: s.o.Store, URL: s.o.HookURL, Secret: s.o.HookSecret, Log: s.o.Log})
		return err
	}
	waits, err := s.o.Store.HookWaits(ctx)
	if len(waits) > 0 && !waits[0].Done {
		s.o.Log.Warn("submissions wait for a hook, and this server has none: kbserve submission accept --all lets them run", "first", waits[0].Submission)
	}
	return err
}

// sawEvent keeps when an event came, for those who look for silence.
func (s *Server) sawEvent(ctx context.Context, at time.Time) {
	if err := s.o.Store.SawEvent(ctx, at); err != nil {
		s.o.Log.Warn("keeping when an event came", "error", err)
	}
}

// Handler answers everything but metrics.
func (s *Server) Handler() http.Handler { return s.handler }

// Metrics answers with what Prometheus reads. It is for an address that strangers
// do not reach.
func (s *Server) Metrics() http.Handler {
	return promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{})
}

// signal hands a signal of the store's to those who work beside the handler.
func (s *Server) signal(signal store.Signal) {
	s.reconciler.Signal(signal)
	if s.announcer != nil {
		s.announcer.Signal(signal)
	}
	if s.hook != nil {
		s.hook.Signal(signal)
	}
}

// stopTime is how long requests that are being answered have when a server stops.
const stopTime = 20 * time.Second

// dropTime is how long the builds of cancelled submissions have to be cancelled then.
const dropTime = 10 * time.Second

// Serve answers on the listeners and evaluates, until ctx ends. Then requests that
// are being answered are finished, streams end, and the reconciler leaves its builds
// alone. ready is called just before the first request is answered; with its error
// nothing is.
//
// Errors: that of ready; [database.ErrIncompatible], after a migration by another
// program; a listener that broke.
func (s *Server) Serve(ctx context.Context, listeners, metrics []net.Listener, ready func() error) error {
	// Not after: who has had an answer may look for what ready wrote. The listeners are
	// open, so nobody is turned away meanwhile.
	if ready != nil {
		if err := ready(); err != nil {
			return err
		}
	}
	ctx, stopAll := context.WithCancel(ctx)
	defer stopAll()
	var beside sync.WaitGroup
	beside.Go(func() { s.backend.Run(ctx, s.signal) })
	if s.announcer != nil {
		beside.Go(func() { s.announcer.Run(ctx) })
	}
	if s.hook != nil {
		beside.Go(func() { s.hook.Run(ctx) })
	}
	beside.Go(func() { s.reconciler.Run(ctx) })
	incompatible := make(chan error, 1)
	beside.Go(func() { incompatible <- s.watchVersion(ctx) })
	f := newFront(s.o.Log)
	for _, l := range listeners {
		f.answer(l, s.handler)
	}
	for _, l := range metrics {
		f.answer(l, s.Metrics())
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-f.failed:
	case err = <-incompatible:
	}
	s.health.stopping.Store(true)
	s.endStreams()
	stopping, stop := context.WithTimeout(context.Background(), stopTime)
	defer stop()
	f.close(stopping)
	stopAll()
	beside.Wait()
	dropping, stop := context.WithTimeout(context.Background(), dropTime)
	defer stop()
	s.reconciler.Dropped(dropping)
	return err
}

// watchVersion looks at the database's version from time to time, and returns why this
// program cannot use the database any more; nil when ctx ends.
func (s *Server) watchVersion(ctx context.Context) error {
	for seen := int64(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(s.recheck):
		}
		other, err := s.o.Store.Recheck(ctx)
		if errors.Is(err, database.ErrIncompatible) {
			return err
		}
		if err == nil && other != nil && other.Got != seen {
			seen = other.Got
			s.o.Log.Warn("another program has migrated the database; this one can go on, and should be upgraded soon", "version", other.Got, "want", other.Want)
		}
	}
}

// routes puts the parts on their paths: what is no route of the API's is a page.
func (s *Server) routes() (http.Handler, error) {
	proxies, err := networks(s.o.Proxies)
	if err != nil {
		return nil, err
	}
	var limit *httpx.Limiter
	if s.o.Rate > 0 {
		limit = &httpx.Limiter{PerSecond: s.o.Rate}
	}
	streams := httpx.NewStreamQuota()
	pages := web.New(web.Options{Backend: s.backend, Identity: s.identity, PublicURL: s.o.PublicURL, Name: s.o.Name, Log: s.o.Log, Limit: limit, Streams: streams})
	mux := http.NewServeMux()
	mux.Handle("/", api.New(api.Options{Backend: s.backend, Identity: s.identity, Log: s.o.Log, Next: pages, Limit: limit, Streams: streams, Stopping: s.streams.Done()}))
	mux.HandleFunc("GET /health", s.health.alive)
	mux.HandleFunc("GET /ready", s.health.ready)
	mux.Handle("/webhooks/buildkite", s.webhook)
	return httpx.Wrap(s.untilStop(mux), httpx.Options{Log: s.o.Log, Proxies: proxies, HTTPS: strings.HasPrefix(s.o.PublicURL, "https://"), Limit: limit,
		Quiet: []string{"GET /health", "GET /ready", "/webhooks/buildkite"}, Observe: s.metrics.request}), nil
}

// networks reads addresses and networks.
func networks(texts []string) (all []netip.Prefix, err error) {
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if a, aerr := netip.ParseAddr(text); aerr == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("proxies: got %q, want an address or a network, as 10.0.0.0/8", text)
		}
		all = append(all, p)
	}
	return all, nil
}

// untilStop ends streams of events when the server stops: who reads them asks again,
// and gets the next process.
func (s *Server) untilStop(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Programs such as curl do not name the type that they accept.
		stream := strings.Contains(r.Header.Get("Accept"), "text/event-stream") || strings.HasPrefix(r.URL.Path, "/events/")
		if r.Method == http.MethodGet && stream {
			ctx, stop := context.WithCancel(r.Context())
			defer stop()
			defer context.AfterFunc(s.streams, stop)()
			r = r.WithContext(ctx)
		}
		h.ServeHTTP(w, r)
	})
}

// A front answers on listeners until it is closed.
type front struct {
	log       *slog.Logger
	listeners []net.Listener
	servers   []*http.Server
	accepting sync.WaitGroup
	drain     drain
	failed    chan error // 1 deep: why one of them does not answer any more
}

func newFront(log *slog.Logger) *front {
	return &front{log: log, drain: drain{busy: map[net.Conn]time.Time{}}, failed: make(chan error, 1)}
}

// answer begins to answer on a listener.
func (f *front) answer(l net.Listener, h http.Handler) {
	hs := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		ErrorLog:  slog.NewLogLogger(f.log.Handler(), slog.LevelDebug),
		ConnState: f.drain.state,
	}
	f.listeners, f.servers = append(f.listeners, l), append(f.servers, hs)
	f.accepting.Go(func() {
		err := hs.Serve(l)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		select {
		case f.failed <- fmt.Errorf("serving on %s: %w", l.Addr(), err):
		default:
		}
	})
}

// close stops taking connections and returns when everything that has begun is
// answered; what is not when ctx ends is broken off.
func (f *front) close(ctx context.Context) {
	for _, l := range f.listeners {
		l.Close()
	}
	f.accepting.Wait()
	for _, hs := range f.servers {
		hs.SetKeepAlivesEnabled(false)
	}
	f.drain.wait(ctx)
	for _, hs := range f.servers {
		if hs.Shutdown(ctx) != nil {
			hs.Close()
		}
	}
}
