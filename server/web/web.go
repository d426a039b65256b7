// Package web is the pages of a competition: boards, submissions, the queue, users,
// and what admins do. They need no script and no other host; an optional script
// loads parts of a page again when something has changed.
//
// It decides nothing about who may see or do what: package backend does, and what
// that refuses is an error page here. How somebody logs in it does not know
// either, but for where that begins. Everything foreign is made printable, bounded
// and escaped.
package web

import (
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/verdict/view"
)

// Identity says who asks; package identity has one.
type Identity interface {
	// Viewer returns who sent a request; the zero Viewer is nobody.
	Viewer(r *http.Request) backend.Viewer
	// CheckOrigin returns an error for a request that a page of another site sent.
	CheckOrigin(r *http.Request) error
	// Providers are the names of who vouches for users.
	Providers() []string
}

// Where somebody logs in, with provider=NAME and next=/PATH, and where a form posts
// to that logs out: package identity's.
const (
	logInPath  = "/auth/login"
	logOutPath = "/auth/logout"
)

// Options say what pages stand on. Nothing may be left out but what says so.
type Options struct {
	Backend   *backend.Backend
	Identity  Identity
	PublicURL string           // "https://kernels.example.org", for commands that people copy
	Name      string           // of the competition; "" is "Kernel competition"
	Log       *slog.Logger     // nil: nowhere
	Now       func() time.Time // nil: time.Now
}

// site is what all pages share.
type site struct {
	Options
	assets    *assets
	templates map[string]*template.Template
	streams   atomic.Int64
}

// New returns the pages.
//
// A stream of events lasts until its client leaves or its request's context ends:
// to stop a server, cancel its base context.
func New(opts Options) http.Handler {
	if opts.Name == "" {
		opts.Name = "Kernel competition"
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	opts.PublicURL = strings.TrimRight(opts.PublicURL, "/")
	s := &site{Options: opts, templates: map[string]*template.Template{}}
	var err error
	if s.assets, err = newAssets(); err != nil {
		panic(err) // a fault of the build: what is embedded cannot be read
	}
	functions := template.FuncMap{"asset": s.assets.path, "inc": func(i int) int { return i + 1 }}
	for _, page := range []string{"start", "board", "submission", "log", "queue", "user", "admin", "login", "error"} {
		s.templates[page] = template.Must(view.NewTemplate(page).Funcs(functions).
			ParseFS(templateFiles, "templates/frame.html", "templates/parts.html", "templates/"+page+".html"))
	}
	return s.guard(s.routes())
}

func (s *site) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, show := range map[string]func(*request) error{
		"GET /{$}":             s.start,
		"GET /b/{board}":       s.board,
		"GET /b/{board}/{gpu}": s.board,
		"GET /s/{id}":          s.submission,
		"GET /s/{id}/log":      s.log,
		"GET /queue":           s.queue,
		"GET /u/{id}":          s.user,
		"GET /admin":           s.admin,
		"GET /login":           s.logIn,

		"GET /templates/{board}/{n}": s.template,
		"GET /code/{id}":             s.code,

		"GET /events/board/{board}":   s.boardEvents,
		"GET /events/submission/{id}": s.submissionEvents,
		"GET /events/queue":           s.queueEvents,

		"GET /robots.txt":  s.robots,
		"GET /favicon.ico": s.favicon,
		"GET /assets/":     s.asset,
		"/":                s.nothing,
	} {
		mux.HandleFunc(pattern, s.answer(show))
	}
	for pattern, act := range map[string]func(*request) error{
		"POST /b/{board}":    s.submit,
		"POST /s/{id}/{act}": s.actOnSubmission,
		"POST /u/{id}":       s.actOnSelf,
		"POST /admin":        s.actAsAdmin,
	} {
		mux.HandleFunc(pattern, s.answer(s.form(act)))
	}
	return mux
}

func (s *site) robots(r *request) error {
	r.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	r.w.Header().Set("Cache-Control", "public, max-age=3600")
	_, _ = fmt.Fprint(r.w, "User-agent: *\nDisallow: /admin\nDisallow: /events/\nDisallow: /s/\nDisallow: /u/\nDisallow: /login\n") // the client may have left
	return nil
}

func (s *site) favicon(r *request) error {
	at, err := s.assets.path("icon.svg")
	if err == nil {
		http.Redirect(r.w, r.Request, at, http.StatusFound)
	}
	return err
}

func (s *site) asset(r *request) error {
	if !s.assets.serve(r.w, r.Request) {
		return s.nothing(r)
	}
	return nil
}

func (s *site) nothing(*request) error {
	return &refusal{http.StatusNotFound, "There is no such page."}
}
