package server

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

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
