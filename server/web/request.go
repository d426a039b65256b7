package web

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/httpx"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/verdict/view"
)

// A request is one request and who sent it.
type request struct {
	*http.Request
	w      http.ResponseWriter
	viewer backend.Viewer
	now    time.Time

	keep bool // the page is rendered into kept, and sent later
	kept *rendered
}

// A frame is one page: what surrounds its content, and the content.
type frame struct {
	Page    string // name of the template
	Title   string
	Here    string // which link of the navigation this is
	Events  string // path of the page's events; "": it does not change by itself
	Beats   bool   // it also changes with time alone, as places in line do
	Refresh int    // without a script, load again after so many seconds; 0: never
	Content any

	Site   string // these are filled in by render
	Viewer backend.Viewer
	Self   string // path of the viewer's own page; "" without
	LogIn  string // path, for nobody
	Year   int
}

// A refusal is an error that a page of ours tells.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

// policy lets a page load its own styles and script and nothing else.
const policy = "default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// guard sets what every answer has.
func (s *site) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin") // with no-referrer, forms would send "Origin: null"
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// answer turns what a function returns, or its panic, into an answer.
func (s *site) answer(fn func(*request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, in *http.Request) {
		r := &request{Request: in, w: w, now: s.Now()}
		defer func() {
			switch p := recover(); {
			case p == http.ErrAbortHandler:
				panic(p)
			case p != nil:
				s.fail(r, fmt.Errorf("%s\n%s", httpx.PanicKind(p), debug.Stack()))
			}
		}()
		r.viewer = s.Identity.Viewer(in)
		httpx.Note(in.Context(), in.Pattern, r.viewer.ID)
		err := s.admit(r)
		if err == nil {
			err = fn(r)
		}
		if err != nil {
			s.fail(r, err)
		}
	}
}

// admit holds clients to a rate. Files of the pages themselves are free: a browser
// asks for them once.
func (s *site) admit(r *request) error {
	cost := 1
	switch r.Pattern {
	case "GET /assets/", "GET /favicon.ico", "GET /robots.txt":
		return nil
	case "GET /s/{id}/log":
		cost = httpx.LogCost
	}
	wait := s.Limit.Ask(r.caller(), cost)
	if wait == 0 {
		return nil
	}
	httpx.Outcome(r.Context(), "rate")
	seconds := int(math.Ceil(wait.Seconds()))
	r.w.Header().Set("Retry-After", strconv.Itoa(seconds))
	return &refusal{http.StatusTooManyRequests, "You load pages too often. Try again in " + format.Count(seconds, "second") + "."}
}

// caller names the client that rates and quotas apply to.
func (r *request) caller() string {
	return httpx.Caller(r.Context(), r.viewer.ID, r.viewer.Admin)
}

// uploadTime is how long a browser may take to send a file.
const uploadTime = 60 * time.Second

// form accepts a POST only if one of these pages sent it. It checks the sender and the
// origin before it reads any of the body.
func (s *site) form(act func(*request) error) func(*request) error {
	return func(r *request) error {
		switch {
		case !r.viewer.Known():
			return &refusal{http.StatusForbidden, "You are not logged in."}
		case s.Identity.CheckOrigin(r.Request) != nil:
			return &refusal{http.StatusForbidden, "The form was not sent by a page of ours. Load the page again and send it once more."}
		}
		limit := int64(httpx.MaxBody)
		if r.PathValue("board") != "" {
			limit += store.MaxCode
			httpx.Expect(r.Request, limit, uploadTime)
		}
		err := r.ParseMultipartForm(limit) // all of it in memory
		if errors.Is(err, http.ErrNotMultipart) {
			err = nil // ParseForm has been called
		}
		_, large := errors.AsType[*http.MaxBytesError](err)
		switch {
		case large:
			return &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("That is too much: a file may have %s bytes.", format.Number(store.MaxCode))}
		case err != nil:
			return &refusal{http.StatusBadRequest, "The form could not be read."}
		}
		return act(r)
	}
}

// render writes a whole page or, when the template fails, none of it.
func (s *site) render(r *request, status int, f frame) error {
	f.Site, f.Viewer, f.Year = s.Name, r.viewer, r.now.Year()
	if !r.viewer.Known() {
		f.LogIn = logInFrom(r)
	}
	if r.viewer.ID != "" {
		f.Self = userPath(r.viewer.ID)
	}
	var page bytes.Buffer
	if err := s.templates[f.Page].ExecuteTemplate(&page, "frame", f); err != nil {
		return fmt.Errorf("rendering the page %s: %w", f.Page, err)
	}
	made := newRendered(page.Bytes())
	if r.keep && status == http.StatusOK {
		r.kept = made
		return nil
	}
	made.send(r, status)
	return nil
}

// logInFrom is where somebody logs in who then comes back to this page.
func logInFrom(r *request) string {
	if r.Method != http.MethodGet || r.URL.Path == "/" || r.URL.Path == "/login" || len(r.URL.RequestURI()) > 1000 {
		return "/login"
	}
	return "/login?next=" + url.QueryEscape(r.URL.RequestURI())
}

// An errorPage says what went wrong.
type errorPage struct {
	Status  int
	Heading string
	Text    string
	LogIn   string // path, where that may help
	Request string // its id, where the fault is ours
}

// fail answers with an error page. What is not a refusal is logged and not told.
func (s *site) fail(r *request, err error) {
	status, words := s.explain(r, err)
	if r.Context().Err() != nil && !httpx.TimedOut(r.Context()) {
		httpx.Outcome(r.Context(), "client left")
		return
	}
	page := errorPage{Status: status, Heading: headings[status], Text: words}
	page.Heading = cmp.Or(page.Heading, http.StatusText(status))
	id := httpx.RequestID(r.Context())
	if status >= 500 {
		page.Request = id
		s.Log.ErrorContext(r.Context(), "answering", "request", id, "route", r.Pattern, "error", err)
	}
	if !r.viewer.Known() && (status == http.StatusForbidden || errors.Is(err, store.ErrNotFound)) {
		page.LogIn = logInFrom(r)
	}
	if err := s.render(r, status, frame{Page: "error", Title: page.Heading, Content: page}); err != nil {
		s.Log.ErrorContext(r.Context(), "rendering an error", "request", id, "error", err)
		http.Error(r.w, "the page could not be rendered; request "+id, http.StatusInternalServerError)
	}
}

var headings = map[int]string{
	http.StatusNotFound:              "Nothing here",
	http.StatusForbidden:             "Not allowed",
	http.StatusTooManyRequests:       "Too many requests",
	http.StatusRequestEntityTooLarge: "Too large",
	http.StatusBadRequest:            "That cannot be done",
	http.StatusConflict:              "That cannot be done",
	http.StatusInternalServerError:   "Something went wrong",
	http.StatusServiceUnavailable:    "Busy",
}

// explain finds the status and the words for an error.
func (s *site) explain(r *request, err error) (status int, words string) {
	var own *refusal
	var refused *store.Refusal
	switch {
	case errors.As(err, &own):
		return own.status, own.text
	case errors.As(err, &refused):
		status = refusedStatus(refused.Why)
		httpx.Outcome(r.Context(), "refused")
		if refused.RetryAfter > 0 {
			r.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(refused.RetryAfter.Seconds()))))
		}
		return status, view.Sentence(refused.Text)
	case httpx.TimedOut(r.Context()):
		httpx.Outcome(r.Context(), "timeout")
		return http.StatusServiceUnavailable, "That took too long. Try again."
	case store.Unavailable(err):
		httpx.Outcome(r.Context(), "database unavailable")
		r.w.Header().Set("Retry-After", httpx.RetryAfter)
		return http.StatusServiceUnavailable, "The database cannot be used at the moment. Nothing was stored. Try again in a minute."
	case errors.Is(err, store.ErrNotFound):
		return http.StatusNotFound, "There is no such page, or it is not for you."
	case errors.Is(err, backend.ErrForbidden):
		if !r.viewer.Known() {
			return http.StatusForbidden, "You have to log in for that."
		}
		return http.StatusForbidden, "That is not yours to do."
	}
	httpx.Outcome(r.Context(), "internal")
	return http.StatusInternalServerError, "The fault is on this side. It has been logged; if it stays, tell those who run the competition the number of this request."
}

func refusedStatus(why store.Why) int {
	switch why {
	case store.UnknownBoard, store.UnknownGPU, store.UnknownUser:
		return http.StatusNotFound
	case store.Banned, store.NotInvited:
		return http.StatusForbidden
	case store.OverLimit:
		return http.StatusTooManyRequests
	}
	return http.StatusBadRequest
}

// see sends the browser on to another page after a form.
func (r *request) see(path string) error { return httpx.See(r.w, r.Request, path) }

func boardPath(board, gpu string) string {
	path := "/b/" + url.PathEscape(board)
	if gpu != "" {
		path += "/" + url.PathEscape(gpu)
	}
	return path
}

func submissionPath(id int64) string { return "/s/" + strconv.FormatInt(id, 10) }

func userPath(id string) string { return "/u/" + url.PathEscape(id) }
