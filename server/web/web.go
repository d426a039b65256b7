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
	"cmp"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/httpx"
	"github.com/gpu-mode/kbgen/store"
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

	Limit   *httpx.Limiter // of each user, and of each address that is not logged in; nil: none
	Streams *httpx.Quota   // bounds the open streams of each client; nil: httpx.NewStreamQuota
}

// Pages answer requests for pages.
type Pages struct {
	http.Handler
	mux *http.ServeMux
}

// Has reports whether there is a page for a request.
func (p *Pages) Has(r *http.Request) bool {
	_, pattern := p.mux.Handler(r)
	return pattern != "/"
}

// site is what all pages share.
type site struct {
	Options
	assets    *assets
	templates map[string]*template.Template
	cache     shared
}

// New returns the pages.
//
// A stream of events lasts until its client leaves or its request's context ends:
// to stop a server, cancel its base context.
func New(opts Options) *Pages {
	opts.Name = cmp.Or(opts.Name, "Kernel competition")
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Streams == nil {
		opts.Streams = httpx.NewStreamQuota()
	}
	opts.PublicURL = strings.TrimRight(opts.PublicURL, "/")
	s := &site{Options: opts, templates: map[string]*template.Template{}}
	var err error
	if s.assets, err = newAssets(); err != nil {
		panic(err) // a fault of the build: what is embedded cannot be read
	}
	functions := template.FuncMap{
		"asset": s.assets.path, "boardPath": boardPath, "submissionPath": submissionPath, "userPath": userPath, "settingsPath": settingsPath,
		"when":     func(t time.Time) view.Moment { return newMoment(t, s.Now()) },
		"deadline": func(t time.Time) string { return deadline(t, s.Now()) },
		"open":     func(t time.Time) bool { return s.Now().Before(t) },
		"name":     name,
		"line":     func(s string) string { return text.Line(s, maxName) },
		"list":     func(words []string) string { return text.Line(strings.Join(words, ", "), 300) },
		"summary":  func(markup string) string { return summary(markup, 180) },
		"size":     func(file string) string { return format.Size(int64(len(file))) },
		"sentence": view.Sentence, "mode": view.Mode, "number": format.Number, "micro": format.Microseconds, "duration": format.Duration,
		"rank": rank, "share": share, "behind": behind, "interval": interval, "lasted": lasted, "machine": machineOf, "machines": machines,
		"tally": tally, "templateFile": templateFile,
	}
	for _, page := range []string{"start", "board", "submission", "log", "queue", "user", "admin", "settings", "about", "compare", "login", "error"} {
		s.templates[page] = template.Must(view.NewTemplate(page).Funcs(functions).
			ParseFS(templateFiles, "templates/frame.html", "templates/parts.html", "templates/"+page+".html"))
	}
	mux := s.routes()
	return &Pages{s.guard(mux), mux}
}

func (s *site) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, show := range map[string]func(*request) error{
		"GET /{$}":             s.shared(s.start, store.SignalBoard, store.SignalPlanned),
		"GET /b/{board}":       s.shared(s.board, store.SignalBoard),
		"GET /b/{board}/{gpu}": s.shared(s.board, store.SignalBoard),
		"GET /s/{id}":          s.submission,
		"GET /s/{id}/log":      s.log,
		"GET /s/{id}/profile":  s.profile,
		"GET /compare":         s.compare,
		"GET /about":           s.shared(s.about, store.SignalBoard),
		"GET /queue":           s.shared(s.queue, store.SignalPlanned),
		"GET /u/{id}":          s.user,
		"GET /admin":           s.admin,
		"GET /admin/b/{board}": s.settings,
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
		"POST /b/{board}":       s.submit,
		"POST /s/{id}/{act}":    s.actOnSubmission,
		"POST /u/{id}":          s.actOnSelf,
		"POST /admin":           s.actAsAdmin,
		"POST /about":           s.changeAbout,
		"POST /admin/b/{board}": s.actOnBoard,
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

//go:embed assets
var assetFiles embed.FS

//go:embed templates
var templateFiles embed.FS

// An asset is one file beside the pages. Its name has its digest in it, so that a
// browser may keep it for ever.
type asset struct {
	content     []byte
	contentType string
	tag         string // ETag
}

// assets are the embedded files by their path.
type assets struct {
	byPath map[string]asset
	paths  map[string]string // by the name in the directory
}

func newAssets() (*assets, error) {
	a := &assets{byPath: map[string]asset{}, paths: map[string]string{}}
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		content, err := assetFiles.ReadFile("assets/" + e.Name())
		if err != nil {
			return nil, err
		}
		a.add(e.Name(), content)
	}
	a.add("report.css", view.Style)
	return a, nil
}

// add adds a file; its name in a page's template is name.
func (a *assets) add(name string, content []byte) {
	sum := sha256.Sum256(content)
	digest := fmt.Sprintf("%x", sum[:6])
	stem, ext, _ := strings.Cut(name, ".")
	at := path.Join("/assets", stem+"."+digest+"."+ext)
	a.byPath[at] = asset{content, mime.TypeByExtension("." + ext), `"` + digest + `"`}
	a.paths[name] = at
}

// path returns where a file is; a name that is not there fails the template.
func (a *assets) path(name string) (string, error) {
	if at, ok := a.paths[name]; ok {
		return at, nil
	}
	return "", fmt.Errorf("there is no asset %q", name)
}

// serve answers with an asset, and reports whether there is one.
func (a *assets) serve(w http.ResponseWriter, r *http.Request) bool {
	file, ok := a.byPath[r.URL.Path]
	if !ok {
		return false
	}
	h := w.Header()
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("ETag", file.tag)
	if r.Header.Get("If-None-Match") == file.tag {
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	h.Set("Content-Type", file.contentType)
	_, _ = w.Write(file.content) // the client may have left
	return true
}

const (
	// calm is the shortest time between two events of one stream. With the time that
	// live.js spreads its loads over, a change is seen within 2 s.
	calm = 1500 * time.Millisecond

	// beat is the longest silence of a stream. A beat makes those pages load again that
	// change with time alone, see frame.Beats.
	beat = 15 * time.Second

	// sendTimeout bounds one write to a client that does not read.
	sendTimeout = 10 * time.Second
)

func (s *site) boardEvents(r *request) error {
	b, err := s.Backend.Board(r.Context(), r.viewer, r.PathValue("board"))
	if err != nil {
		return err
	}
	return s.stream(r, store.Signal{Kind: store.SignalBoard, ID: b.Name})
}

func (s *site) submissionEvents(r *request) error {
	id, err := submissionID(r)
	if err != nil {
		return err
	}
	if _, err := s.Backend.Submission(r.Context(), r.viewer, id); err != nil {
		return err
	}
	return s.stream(r, store.Signal{Kind: store.SignalSubmission, ID: strconv.FormatInt(id, 10)})
}

func (s *site) queueEvents(r *request) error {
	return s.stream(r, store.Signal{Kind: store.SignalPlanned})
}

// stream sends a server-sent event whenever something has changed, and now and then
// one without. The client loads the page again to see what.
func (s *site) stream(r *request, signal store.Signal) error {
	end, err := s.Streams.Take(r.Context(), r.caller())
	switch {
	case errors.Is(err, httpx.ErrClientFull):
		r.w.Header().Set("Retry-After", "60")
		return &refusal{http.StatusTooManyRequests, "You follow too many pages at once."}
	case err != nil:
		r.w.Header().Set("Retry-After", "60")
		return &refusal{http.StatusServiceUnavailable, "Too many pages are being followed at the moment."}
	}
	defer end()
	changed, stop := s.Backend.Watch(signal)
	defer stop()
	out := httpx.NewStream(r.w, r.Request)
	if r.Method == http.MethodHead || out.Send("retry: 5000\n\n", sendTimeout) != nil {
		return nil
	}
	for {
		event := "change"
		select {
		case <-r.Context().Done():
			return nil
		case <-changed:
		case <-time.After(beat):
			event = "beat"
		}
		if out.Send("event: "+event+"\ndata: \n\n", sendTimeout) != nil {
			return nil
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-time.After(calm):
		}
	}
}
