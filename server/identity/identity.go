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
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/store"
)

// HeaderCLI carries popcorn-cli's id.
const HeaderCLI = "X-Popcorn-Cli-Id"

// ErrCredentials is a credential that was given and is nobody's.
var ErrCredentials = errors.New("unknown or expired credentials")

// Options are what an Identity stands on.
type Options struct {
	Store   *store.Store
	Signing []byte // the backend's: 32 bytes that all instances share

	// PublicURL is how browsers reach this server, https://HOST. With https, cookies
	// are for that host and for https alone.
	PublicURL string

	AdminToken string   // "" admits nobody
	Admins     []string // ids of users who are admins once they are logged in
	Providers  []Provider

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
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
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
	CLI    bool // by a CLI id
	Cookie bool // by a browser's session alone: what changes something must pass [Identity.CheckOrigin]
}

// Who returns who sent a request; nobody is no error. An admin's token and a CLI id
// may come together: an admin who is also a user.
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
		w.CLI = true
	} else if token := i.cookie(r, sessionCookie); token != "" {
		user, err = i.o.Store.UserBySession(r.Context(), token)
		if errors.Is(err, store.ErrNotFound) {
			return w, nil
		}
		w.Cookie = !w.Admin
	}
	if err != nil {
		return Who{}, err
	}
	w.ID, w.Name = user.ID, user.Name
	w.Admin = w.Admin || w.ID != "" && slices.Contains(i.o.Admins, w.ID)
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
