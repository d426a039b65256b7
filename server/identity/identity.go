// Package identity says who is asking: by a CLI id, by a browser's session, by the
// admin's token. It logs people in through GitHub and Discord and hands CLI ids to
// popcorn-cli.
//
// It knows nothing of what anybody may do; that is package backend's. No log line
// and no answer of it has a token, a client's secret or a CLI id, but for the one
// answer that hands a CLI id out.
//
// # Why a person confirms a CLI id
//
// popcorn-cli asks for an id (GET /auth/init), keeps it, and opens the provider's
// page with a state that it made itself. In Kernelbot nothing ties the browser that
// comes back to the terminal that began: whoever sends somebody else such a link
// gets an id for their account. The protocol is the client's and cannot be changed,
// so the tie is a person: before an id is attached, the browser shows whose account
// it would speak for and how the id begins and ends, and asks. The answer is a POST
// with a token bound to that browser. An id must come from /auth/init and is taken
// once. No browser is spared the question: /auth/init is called by a program, so no
// browser that comes back is known to have begun. Somebody who is logged in here
// makes an id on a page instead, where nobody else has seen it.
package identity

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/httpx"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/verdict/view"
)

// HeaderCLI carries popcorn-cli's id.
const HeaderCLI = "X-Popcorn-Cli-Id"

// ErrCredentials is a credential that was given and is nobody's.
var ErrCredentials = errors.New("unknown or expired credentials")

// Options are what an Identity stands on.
type Options struct {
	Store   *store.Store
	Signing []byte // 32 bytes that all instances share

	// PublicURL is how browsers reach this server, https://HOST. With https, cookies
	// are for that host and for https alone.
	PublicURL string

	AdminToken string   // "" admits nobody
	Admins     []string // ids of users who are admins in a browser's session
	Providers  []Provider

	// Enclose puts the content of a page into the frame of the site's pages, which has
	// its styles at this host. nil: a plain page without a frame.
	Enclose func(title string, content template.HTML) ([]byte, error)

	Log    *slog.Logger     // nil: nowhere
	Now    func() time.Time // nil: the clock
	Client *http.Client     // to providers; nil: one with a limit of 10 s
}

// An Identity may be used from many goroutines.
type Identity struct {
	o      Options
	secure bool
	admin  [sha256.Size]byte
	used   used
	origin *http.CrossOriginProtection
}

// New makes an identity.
//
// Errors: a signing key that is too short, a public URL or a provider that cannot
// be used.
func New(o Options) (*Identity, error) {
	if len(o.Signing) < 32 {
		return nil, fmt.Errorf("signing key: got %d bytes, want 32", len(o.Signing))
	}
	public, err := url.Parse(o.PublicURL)
	if err != nil || public.Host == "" || public.Scheme != "https" && public.Scheme != "http" || strings.Trim(public.Path, "/") != "" || public.RawQuery != "" || public.User != nil {
		return nil, fmt.Errorf("public URL: got %q, want https://HOST", o.PublicURL)
	}
	o.PublicURL = public.Scheme + "://" + public.Host
	o.Providers = slices.Clone(o.Providers)
	for i := range o.Providers {
		if err := o.Providers[i].complete(); err != nil {
			return nil, err
		}
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Client == nil {
		o.Client = &http.Client{Timeout: 10 * time.Second}
	}
	i := &Identity{o: o, secure: public.Scheme == "https", admin: sha256.Sum256([]byte(o.AdminToken)), origin: http.NewCrossOriginProtection()}
	return i, i.origin.AddTrustedOrigin(o.PublicURL)
}

// A Who is somebody who asks, and by what we know them.
type Who struct {
	backend.Viewer
	Cookie bool // by a browser's session alone: what changes something must pass [Identity.CheckOrigin]
}

// Who returns who sent a request; nobody is no error. An admin's token and a CLI id
// may come together: an admin who is also a user.
//
// Only the admin's token and the session of a user listed in Options.Admins make an
// admin. A CLI id does not: it never expires, lies in a file on other machines, and
// needs no page of ours. A banned user is not an admin.
//
// Errors: [ErrCredentials] for a CLI id or a token that is not valid. A session
// that has ended is nobody.
func (i *Identity) Who(r *http.Request) (Who, error) {
	var w Who
	for _, name := range []string{"Authorization", HeaderCLI} {
		if len(r.Header.Values(name)) > 1 {
			return Who{}, fmt.Errorf("%s comes twice: %w", name, ErrCredentials)
		}
	}
	if header := r.Header.Get("Authorization"); header != "" {
		if !i.isAdmin(header) {
			return Who{}, ErrCredentials
		}
		w.Admin = true
	}
	var user store.User
	var err error
	if id := r.Header.Get(HeaderCLI); id != "" {
		user, err = i.o.Store.UserByCLIID(r.Context(), id)
		if errors.Is(err, store.ErrNotFound) {
			return Who{}, ErrCredentials
		}
	} else if token := i.cookie(r, sessionCookie); token != "" {
		user, err = i.o.Store.UserBySession(r.Context(), token)
		if errors.Is(err, store.ErrNotFound) {
			return w, nil
		}
		w.Cookie = !w.Admin
		w.Admin = w.Admin || err == nil && !user.Banned && slices.Contains(i.o.Admins, user.ID)
	}
	if err != nil {
		return Who{}, err
	}
	w.ID, w.Name = user.ID, user.Name
	return w, nil
}

// Viewer is Who for pages: whoever cannot be told is nobody.
func (i *Identity) Viewer(r *http.Request) backend.Viewer {
	w, err := i.Who(r)
	if err != nil {
		return backend.Viewer{}
	}
	return w.Viewer
}

func (i *Identity) isAdmin(header string) bool {
	scheme, token, _ := strings.Cut(header, " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	same := subtle.ConstantTimeCompare(sum[:], i.admin[:]) == 1
	return same && i.o.AdminToken != "" && strings.EqualFold(scheme, "Bearer")
}

// key derives a key for one purpose from the shared one.
func (i *Identity) key(purpose string) []byte {
	mac := hmac.New(sha256.New, i.o.Signing)
	mac.Write([]byte("identity: " + purpose))
	return mac.Sum(nil)
}

// Providers lists the names of the providers that somebody can log in with.
func (i *Identity) Providers() []string {
	names := make([]string, len(i.o.Providers))
	for n, p := range i.o.Providers {
		names[n] = p.Name
	}
	return names
}

// Names of cookies, before the prefix that https adds.
const (
	sessionCookie = "kbserve_session"
	loginCookie   = "kbserve_login"   // binds a log-in that has begun to its browser
	confirmCookie = "kbserve_confirm" // what a person is asked to confirm, sealed
)

// sessionLife is how long a browser stays logged in.
const sessionLife = 30 * 24 * time.Hour

func (i *Identity) cookieName(name string) string {
	if i.secure {
		return "__Host-" + name
	}
	return name
}

// cookie returns a cookie's value; of several with the name none.
func (i *Identity) cookie(r *http.Request, name string) string {
	found := r.CookiesNamed(i.cookieName(name))
	if len(found) != 1 || len(found[0].Value) > 4096 {
		return ""
	}
	return found[0].Value
}

// setCookie sets a cookie for a time; 0 removes it.
func (i *Identity) setCookie(w http.ResponseWriter, name, value string, life time.Duration) {
	c := &http.Cookie{Name: i.cookieName(name), Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: i.secure, MaxAge: int(life.Seconds())}
	if life == 0 {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// ErrCrossOrigin is a request that a page of another site sent.
var ErrCrossOrigin = errors.New("this was not sent by a page of ours; load the page again")

// CheckOrigin refuses a request that changes something and that a browser sent for
// a page of another site.
//
// Errors: [ErrCrossOrigin].
func (i *Identity) CheckOrigin(r *http.Request) error {
	if i.origin.Check(r) != nil {
		return ErrCrossOrigin
	}
	return nil
}

// head opens a page without a frame. It takes nothing from elsewhere.
const head = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<style>body{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem}code{font-size:1.1em}button{font:inherit;padding:.4rem 1rem}</style>
`

var (
	confirmPage = template.Must(template.New("confirm").Parse(`<h1>Let a terminal submit for you?</h1>
<p>You are logged in with {{.Provider}} as <strong>{{.Account}}</strong> ({{.ID}}).</p>
<p>A popcorn-cli whose id begins with <code>{{.First}}</code> and ends with <code>{{.Last}}</code> asks to submit in this name.
{{if .Reset}}The id that you have now stops working.{{end}}</p>
<p>Did you start this yourself, in a terminal, a moment ago? The id stands in <code>~/.popcorn.yaml</code> there. If somebody sent you a link, close this page.</p>
<form method="post" action="/auth/cli/confirm"><button class="primary">Yes, that is my terminal</button></form>
`))
	donePage = template.Must(template.New("done").Parse(`<h1>Done</h1>
<p>popcorn-cli may submit for <strong>{{.Account}}</strong> now. You can close this page.</p>
`))
	problemPage = template.Must(template.New("problem").Parse(`<h1>That did not work</h1>
<p>{{.Text}}</p>
<p><a class="button" href="/">Back to the start</a></p>
`))
)

// titles are those of pages, by the names of their templates.
var titles = map[string]string{"link": "Log in?", "confirm": "Let a terminal submit for you?", "done": "Done", "problem": "That did not work"}

// page answers with a page.
func (i *Identity) page(w http.ResponseWriter, status int, t *template.Template, data any) {
	var content bytes.Buffer
	if err := t.Execute(&content, data); err != nil {
		i.o.Log.Error("a page to log in", "error", err)
	}
	title, styles := titles[t.Name()], "'self'; img-src 'self' data:"
	enclose := i.o.Enclose
	if enclose == nil {
		styles = "'unsafe-inline'"
		enclose = func(title string, content template.HTML) ([]byte, error) {
			return []byte(head + "<title>" + title + "</title>\n" + string(content)), nil
		}
	}
	page, err := enclose(title, template.HTML(content.String()))
	if err != nil {
		i.o.Log.Error("a page to log in", "error", err)
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src "+styles+"; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("Referrer-Policy", "same-origin") // no-referrer would make the Origin of its form null
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(page) // the client may have left
}

// problem answers a browser with a page and everybody else with JSON.
func (i *Identity) problem(w http.ResponseWriter, r *http.Request, status int, what string) {
	if wantsPage(r) {
		i.page(w, status, problemPage, map[string]any{"Text": view.Sentence(what)})
		return
	}
	httpx.JSON(w, status, map[string]any{"detail": what})
}

func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }
