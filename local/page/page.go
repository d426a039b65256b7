// Package page serves the stand-in's web pages: the list of builds, a build, a
// job with its log. The server renders them, so they work without JavaScript;
// with it they follow the engine's events.
//
// It knows no token and shows no value of a build's env, where payloads and seeds
// are. Whatever jobs and agents wrote (labels, annotations, logs, names) is
// foreign text: it is cleaned and escaped.
package page

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/verdict/view"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// Options configure the pages. Every field may be left out.
type Options struct {
	// Blob knows where an artifact's bytes are served; without it artifacts
	// are listed but not linked.
	Blob interface{ DownloadURL(id string) string }

	// Hosts are names, besides those of loopback, on which the pages answer.
	Hosts []string

	// Key lets a browser act, see [EnterPath]; without one the pages only show.
	Key string
	// KeyHint says to those without it where the key is, in a few words.
	KeyHint string

	Version  string         // of the stand-in, for the foot of the page
	Location *time.Location // of the times shown, time.Local
	Logger   *slog.Logger   // for pages that could not be rendered; nil: none
}

// pages holds what the handlers share.
type pages struct {
	engine      *engine.Engine
	opts        Options
	templates   map[string]*template.Template // by name of the page
	resultFiles resultFiles
}

// New returns the handler of the pages. It answers on loopback names only, and
// takes a POST from its own pages only.
//
// A stream of events lasts until its client leaves or its request's context
// ends. To stop a server, cancel its base context or close its connections.
func New(e *engine.Engine, opts Options) http.Handler {
	opts.Location = cmp.Or(opts.Location, time.Local)
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	p := &pages{engine: e, opts: opts, templates: map[string]*template.Template{}}
	for _, name := range []string{"index", "build", "job", "artifact", "error"} {
		p.templates[name] = template.Must(view.NewTemplate(name).Funcs(template.FuncMap{"inc": func(i int) int { return i + 1 }}).
			ParseFS(templateFiles, "templates/frame.html", "templates/"+name+".html"))
	}
	return guard(opts.Hosts, p.routes())
}

func (p *pages) routes() http.Handler {
	const build = "/{org}/{pipeline}/builds/{number}"
	const job = build + "/jobs/{job}"
	const artifact = build + "/artifacts/{artifact}"
	mux := http.NewServeMux()
	for pattern, show := range map[string]func(*http.Request) (*frame, error){
		"GET /{$}":                         p.index,
		"GET /{org}/{pipeline}":            p.index,
		"GET /{org}/{pipeline}/{$}":        p.index,
		"GET /{org}/{pipeline}/builds":     p.index,
		"GET " + build:                     p.build,
		"GET " + job:                       p.job,
		"GET " + artifact:                  p.artifact,
		"GET /":                            p.nothing,
		"GET /{org}/{pipeline}/builds/{$}": p.index,
	} {
		mux.HandleFunc(pattern, p.show(show))
	}
	mux.HandleFunc("GET /events", p.serve(p.indexEvents))
	mux.HandleFunc("GET "+build+"/events", p.serve(p.buildEvents))
	mux.HandleFunc("GET "+job+"/events", p.serve(p.jobEvents))
	mux.HandleFunc("GET "+job+"/log.txt", p.serve(p.rawLog))
	mux.HandleFunc("GET "+artifact+"/image", p.serve(p.image))
	mux.HandleFunc("POST "+build+"/cancel", p.onBuild(p.cancelBuild))
	mux.HandleFunc("POST "+build+"/rebuild", p.onBuild(p.rebuild))
	mux.HandleFunc("POST "+build+"/retry", p.onBuild(p.retryFailed))
	mux.HandleFunc("POST "+job+"/retry", p.act(p.retryJob))
	mux.HandleFunc("POST "+job+"/unblock", p.onBuild(p.unblockJob))
	mux.HandleFunc("GET "+EnterPath, p.serve(p.enter))
	mux.HandleFunc("GET /assets/terminal.css", terminalStyle)
	mux.HandleFunc("GET /assets/report.css", reportStyle)
	mux.HandleFunc("GET /assets/{file}", p.asset)
	return mux
}

// A frame is one page: what surrounds its content, and the content.
type frame struct {
	Page    string // name of the template
	Title   string
	Events  string // path of the page's events; empty: it never changes
	Refresh bool   // something runs: without JavaScript, reload every few seconds
	Crumbs  []link
	Content any

	MayAct  bool // filled in by render, as what follows
	KeyHint string
	Version string // the stand-in's
	Now     int64  // the engine's time, Unix milliseconds
}

type link struct{ Text, Path string }

// serve answers with what fn writes, or with a page that says why it cannot.
func (p *pages) serve(fn func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := fn(w, r); err != nil {
			p.fail(w, r, err)
		}
	}
}

// show answers with the page that fn makes.
func (p *pages) show(fn func(*http.Request) (*frame, error)) http.HandlerFunc {
	return p.serve(func(w http.ResponseWriter, r *http.Request) error {
		f, err := fn(r)
		if err == nil {
			p.render(w, r, http.StatusOK, f)
		}
		return err
	})
}

// act does what fn does and sends the browser to the path it returns.
func (p *pages) act(fn func(*http.Request) (string, error)) http.HandlerFunc {
	return p.serve(func(w http.ResponseWriter, r *http.Request) error {
		if !p.mayAct(r) {
			return engine.Refuse(http.StatusForbidden, "This browser may only look. %s", p.opts.KeyHint)
		}
		to, err := fn(r)
		if err == nil {
			http.Redirect(w, r, to, http.StatusSeeOther)
		}
		return err
	})
}

// render writes a whole page or, when the template fails, none of it.
func (p *pages) render(w http.ResponseWriter, r *http.Request, status int, f *frame) {
	f.Version, f.Now = p.opts.Version, p.engine.Now().UnixMilli()
	f.MayAct, f.KeyHint = p.mayAct(r), p.opts.KeyHint
	var buf bytes.Buffer
	if err := p.templates[f.Page].ExecuteTemplate(&buf, "frame", f); err != nil {
		p.opts.Logger.ErrorContext(r.Context(), "rendering page", "page", f.Page, "error", err)
		http.Error(w, "the page could not be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(buf.Bytes()) // the client may have left
}

// errorPage is the content of a page that says what went wrong.
type errorPage struct {
	Status  int
	Heading string
	Message string
}

// fail answers with an error page. Only refusals are quoted.
func (p *pages) fail(w http.ResponseWriter, r *http.Request, err error) {
	refused, ok := errors.AsType[*engine.Error](err)
	if !ok {
		p.opts.Logger.ErrorContext(r.Context(), "answering", "error", err)
		refused = engine.Refuse(http.StatusInternalServerError, "Something went wrong in the stand-in itself.")
	}
	status := int(refused.Kind)
	page := errorPage{Status: status, Heading: http.StatusText(status), Message: refused.Message}
	p.render(w, r, status, &frame{Page: "error", Title: page.Heading, Content: page})
}

func (p *pages) nothing(*http.Request) (*frame, error) {
	return nil, engine.Refuse(engine.NotFound, "There is no such page.")
}

func (p *pages) asset(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeFileFS(w, r, assetFiles, "assets/"+r.PathValue("file"))
}

// pipelinePath, buildPath and jobPath are the paths of pages.
func (p *pages) pipelinePath(slug string) string {
	return "/" + p.engine.Organization() + "/" + slug
}

func (p *pages) buildPath(slug string, number int) string {
	return p.pipelinePath(slug) + "/builds/" + strconv.Itoa(number)
}

func (p *pages) jobPath(j *engine.Job) string {
	return p.buildPath(j.Pipeline, j.Number) + "/jobs/" + j.ID
}

// findBuild returns the build that the request's path names.
func (p *pages) findBuild(r *http.Request) (engine.Build, error) {
	if err := p.checkOrganization(r); err != nil {
		return engine.Build{}, err
	}
	number, err := strconv.Atoi(r.PathValue("number"))
	if err != nil {
		return engine.Build{}, engine.Refuse(engine.NotFound, "Builds have numbers, %q is none.", r.PathValue("number"))
	}
	return p.engine.Build(r.PathValue("pipeline"), number)
}

// findJob returns the job that the request's path names, and its build.
func (p *pages) findJob(r *http.Request) (engine.Job, engine.Build, error) {
	b, err := p.findBuild(r)
	if err != nil {
		return engine.Job{}, engine.Build{}, err
	}
	if j := jobOf(&b, r.PathValue("job")); j != nil && j.Type == engine.TypeScript {
		return *j, b, nil
	}
	return engine.Job{}, engine.Build{}, engine.Refuse(engine.NotFound, "Build %d has no such job.", b.Number)
}

// jobOf returns a job of the build; nil when it has no such job.
func jobOf(b *engine.Build, id string) *engine.Job {
	if at := slices.IndexFunc(b.Jobs, func(j engine.Job) bool { return j.ID == id }); at >= 0 {
		return &b.Jobs[at]
	}
	return nil
}

func (p *pages) checkOrganization(r *http.Request) error {
	if org := r.PathValue("org"); org != p.engine.Organization() {
		return engine.Refuse(engine.NotFound, "There is no organization %q here, only %q.", org, p.engine.Organization())
	}
	return nil
}
