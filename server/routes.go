package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/gpu-mode/kbgen/server/web"
)

// routes puts the parts on their paths. What no page answers is the API's.
func (s *Server) routes() (http.Handler, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", s.health.alive)
	mux.HandleFunc("GET /ready", s.health.ready)
	mux.Handle("POST /webhooks/buildkite", s.metrics.count("webhook", s.webhook))
	pages := http.NewServeMux()
	s.identity.Register(pages)
	pages.Handle("/", web.New(web.Options{Backend: s.backend, Identity: s.identity, PublicURL: s.o.PublicURL, Name: s.o.Name, Log: s.o.Log}))
	mux.Handle("/", s.metrics.count("page", pages))
	return s.ending(mux), nil
}

// ending ends streams of events when the server stops: who reads them asks again,
// and gets the next process.
func (s *Server) ending(h http.Handler) http.Handler {
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
