package server

import (
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

	"github.com/gpu-mode/kbgen/server/api"
	"github.com/gpu-mode/kbgen/server/httpx"
	"github.com/gpu-mode/kbgen/server/web"
)

// routes puts the parts on their paths: what is no route of the API's is a page.
func (s *Server) routes() (http.Handler, error) {
	proxies, err := networks(s.o.Proxies)
	if err != nil {
		return nil, err
	}
	pages := web.New(web.Options{Backend: s.backend, Identity: s.identity, PublicURL: s.o.PublicURL, Name: s.o.Name, Log: s.o.Log})
	var limit *httpx.Limiter
	if s.o.Rate > 0 {
		limit = &httpx.Limiter{PerSecond: s.o.Rate}
	}
	mux := http.NewServeMux()
	mux.Handle("/", api.New(api.Options{Backend: s.backend, Identity: s.identity, Log: s.o.Log, Next: pages, Limit: limit, Stopping: s.streams.Done()}))
	mux.HandleFunc("GET /health", s.health.alive)
	mux.HandleFunc("GET /ready", s.health.ready)
	mux.Handle("/webhooks/buildkite", s.webhook)
	return httpx.Wrap(s.untilStop(mux), httpx.Options{Log: s.o.Log, Proxies: proxies, Limit: limit, Observe: s.metrics.request}), nil
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
		if r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
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
