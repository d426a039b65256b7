package identity

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"regexp"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/gpu-mode/kbgen/server/httpx"
	"github.com/gpu-mode/kbgen/store"
)

// A Route is one of this package's, all below /auth/.
type Route struct {
	Pattern, About string
	serve          func(*Identity, http.ResponseWriter, *http.Request) error
}

// Routes are all there are.
var Routes = []Route{
	{"GET /auth/login", "A browser begins to log in: provider, and next for where it goes on to.", (*Identity).login},
	{"GET /auth/web/{provider}", "A provider sends a browser back.", (*Identity).loggedIn},
	{"POST /auth/logout", "A browser logs out.", (*Identity).logout},
	{"GET " + LinkPath, "A browser shows whom an operator's link would log in: token.", (*Identity).askLink},
	{"POST " + LinkPath, "Somebody takes such a link, which is then used up.", (*Identity).useLink},
	{"GET /auth/init", "popcorn-cli begins to log in: provider. The answer's state is its id.", (*Identity).beginCLI},
	{"GET /auth/cli/confirm", "A browser shows whose account a CLI id would be for.", (*Identity).askCLI},
	{"POST /auth/cli/confirm", "Somebody says that the terminal is theirs.", (*Identity).confirmCLI},
	{"GET /auth/cli/{provider}", "A provider sends the browser back that popcorn-cli opened.", (*Identity).returnedCLI},
}

// Register adds them to a mux.
func (i *Identity) Register(mux *http.ServeMux) {
	for _, route := range Routes {
		mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) {
			err := route.serve(i, w, r)
			if refused, ok := errors.AsType[*refusal](err); ok {
				i.problem(w, r, refused.status, refused.text)
			} else if err != nil {
				i.o.Log.Error("log-in", "route", route.Pattern, "error", err)
				status := http.StatusInternalServerError
				if store.Unavailable(err) {
					status = http.StatusServiceUnavailable
					w.Header().Set("Retry-After", httpx.RetryAfter)
				}
				i.problem(w, r, status, "logging in or out did not work; try again")
			}
		})
	}
}

// A refusal is an error that a browser or a program is told.
type refusal struct {
	status int
	text   string
}

func (f *refusal) Error() string { return f.text }

func (i *Identity) redirectURL(kind, provider string) string {
	return i.o.PublicURL + "/auth/" + kind + "/" + provider
}

// login sends a browser to a provider: GET /auth/login?provider=github&next=/path.
func (i *Identity) login(w http.ResponseWriter, r *http.Request) error {
	p, found := i.provider(r.FormValue("provider"))
	if !found {
		return &refusal{http.StatusBadRequest, "provider: want one of " + i.choices()}
	}
	nonce := newNonce()
	i.setCookie(w, loginCookie, nonce, stateLife)
	s := i.seal("state", state{Provider: p.Name, Browser: i.browser(nonce), Next: localPath(r.FormValue("next")), Until: i.o.Now().Add(stateLife).Unix()})
	return httpx.See(w, r, p.config(i.redirectURL("web", p.Name)).AuthCodeURL(s, oauth2.S256ChallengeOption(i.verifier(nonce))))
}

func (i *Identity) choices() string {
	if len(i.o.Providers) == 0 {
		return "none: log-in is not set up here"
	}
	return strings.Join(i.Providers(), ", ")
}

// loggedIn is where the provider sends the browser back to.
func (i *Identity) loggedIn(w http.ResponseWriter, r *http.Request) error {
	p, found := i.provider(r.PathValue("provider"))
	if !found {
		return &refusal{http.StatusNotFound, "there is no such provider"}
	}
	nonce := i.cookie(r, loginCookie)
	i.setCookie(w, loginCookie, "", 0)
	s, err := i.verify(r.FormValue("state"), p.Name, nonce)
	if err != nil {
		return &refusal{http.StatusBadRequest, err.Error()}
	}
	who, err := i.account(r, p, i.redirectURL("web", p.Name), oauth2.VerifierOption(i.verifier(nonce)))
	if err != nil {
		return err
	}
	// The session is one of its own, in place of one that the browser had: what
	// somebody may have put there before the log-in is worth nothing after it.
	user, err := i.o.Store.LogIn(r.Context(), p.Name, who.id, who.name)
	if refused, ok := errors.AsType[*store.Refusal](err); ok {
		return &refusal{http.StatusConflict, refused.Text}
	} else if err != nil {
		return err
	}
	token, err := i.o.Store.NewSession(r.Context(), user.ID, i.o.Now().Add(sessionLife))
	if err != nil {
		return err
	}
	if err := i.session(w, r, token); err != nil {
		return err
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	return httpx.See(w, r, s.Next)
}

// session gives the browser a session, and ends one that it had.
func (i *Identity) session(w http.ResponseWriter, r *http.Request, token string) error {
	if old := i.cookie(r, sessionCookie); old != "" {
		if err := i.o.Store.EndSession(r.Context(), old); err != nil {
			return err
		}
	}
	i.setCookie(w, sessionCookie, token, sessionLife)
	return nil
}

// logout ends a browser's session.
func (i *Identity) logout(w http.ResponseWriter, r *http.Request) error {
	if err := i.CheckOrigin(r); err != nil {
		return &refusal{http.StatusForbidden, err.Error()}
	}
	session := i.cookie(r, sessionCookie)
	if session == "" {
		return &refusal{http.StatusForbidden, "you are not logged in"}
	}
	if err := i.o.Store.EndSession(r.Context(), session); err != nil {
		return err
	}
	i.setCookie(w, sessionCookie, "", 0)
	return httpx.See(w, r, "/")
}

// localPath is a path on this server, "/" for anything else.
func localPath(next string) string {
	if !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || len(next) > 1000 ||
		strings.ContainsFunc(next, func(r rune) bool { return r < 0x21 || r == '\\' || r > 0x7e }) {
		return "/"
	}
	return next
}

// LinkPath is where a link leads that an operator makes for a user; LinkField names
// its token there. LinkLife is how long it can be used, once.
const (
	LinkPath  = "/auth/link"
	LinkField = "token"
	LinkLife  = 10 * time.Minute
)

var linkPage = template.Must(template.New("link").Parse(`<h1>Log in as {{.Name}}?</h1>
<p>This link logs this browser in as <strong>{{.Name}}</strong> ({{.ID}}). If somebody sent it to you whom you did not ask, close this page.</p>
<form method="post" action="` + LinkPath + `"><input type="hidden" name="` + LinkField + `" value="{{.Token}}"><button class="primary">Log in</button></form>
`))

// askLink shows whom a link is for. Looking uses nothing up: programs look at links
// before people do.
func (i *Identity) askLink(w http.ResponseWriter, r *http.Request) error {
	token := r.URL.Query().Get(LinkField)
	user, err := i.o.Store.UserByLink(r.Context(), token)
	if errors.Is(err, store.ErrNotFound) {
		return errLink
	} else if err != nil {
		return err
	}
	i.page(w, http.StatusOK, linkPage, map[string]any{"Name": cmp.Or(user.Name, "user "+user.ID), "ID": user.ID, "Token": token})
	return nil
}

// useLink logs the browser in; the link is worth nothing after that.
func (i *Identity) useLink(w http.ResponseWriter, r *http.Request) error {
	if err := i.CheckOrigin(r); err != nil {
		return &refusal{http.StatusForbidden, err.Error()}
	}
	token, err := i.o.Store.UseLink(r.Context(), r.PostFormValue(LinkField), i.o.Now().Add(sessionLife))
	if errors.Is(err, store.ErrNotFound) {
		return errLink
	} else if err != nil {
		return err
	}
	if err := i.session(w, r, token); err != nil {
		return err
	}
	return httpx.See(w, r, "/")
}

var errLink = &refusal{http.StatusForbidden, "this link was used, or is older than ten minutes; ask for another"}

// A pending is what a person is asked to confirm. Their browser keeps it, sealed.
type pending struct {
	CLIID    string
	Provider string
	ID, Name string // of the account
	Reset    bool
	Until    int64 // Unix seconds
}

// beginCLI hands out an id that is nobody's yet: GET /auth/init?provider=github.
func (i *Identity) beginCLI(w http.ResponseWriter, r *http.Request) error {
	p, found := i.provider(r.FormValue("provider"))
	if !found {
		httpx.JSON(w, http.StatusBadRequest, map[string]any{"detail": "provider: want one of " + i.choices()})
		return nil
	}
	id, err := i.o.Store.BeginLogin(r.Context(), p.Name)
	if err != nil {
		return err
	}
	httpx.JSON(w, http.StatusOK, map[string]any{"state": id})
	return nil
}

// cliState is what popcorn-cli sends through the provider.
type cliState struct {
	CLIID string `json:"cli_id"`
	Reset bool   `json:"is_reset"`
}

var cliID = regexp.MustCompile(`^[A-Za-z0-9-]{16,64}$`)

// parseCLIState reads the client's state: base64url of JSON, padded or not.
//
// Errors: errState.
func parseCLIState(text string) (cliState, error) {
	var s cliState
	if len(text) > 4096 {
		return cliState{}, errState
	}
	body, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil || json.Unmarshal(body, &s) != nil || !cliID.MatchString(s.CLIID) {
		return cliState{}, errState
	}
	return s, nil
}

// returnedCLI is where the provider sends the browser that popcorn-cli opened. It
// attaches nothing yet.
func (i *Identity) returnedCLI(w http.ResponseWriter, r *http.Request) error {
	p, found := i.provider(r.PathValue("provider"))
	if !found {
		return &refusal{http.StatusNotFound, "there is no such provider"}
	}
	s, err := parseCLIState(r.FormValue("state"))
	if err != nil {
		return &refusal{http.StatusBadRequest, "state: want what popcorn-cli sends"}
	}
	who, err := i.account(r, p, i.redirectURL("cli", p.Name))
	if err != nil {
		return err
	}
	confirmation := pending{CLIID: s.CLIID, Provider: p.Name, ID: who.id, Name: who.name, Reset: s.Reset, Until: i.o.Now().Add(stateLife).Unix()}
	i.setCookie(w, confirmCookie, i.seal("confirm", confirmation), stateLife)
	w.Header().Set("Referrer-Policy", "no-referrer")
	return httpx.See(w, r, "/auth/cli/confirm") // away from an address that holds the id
}

// pending returns what this browser is asked to confirm.
func (i *Identity) pending(r *http.Request) (confirmation pending, err error) {
	if err := i.open("confirm", i.cookie(r, confirmCookie), &confirmation); err != nil {
		return pending{}, err
	}
	if i.o.Now().After(time.Unix(confirmation.Until, 0)) {
		return pending{}, errState
	}
	return confirmation, nil
}

// askCLI shows what would be attached to what.
func (i *Identity) askCLI(w http.ResponseWriter, r *http.Request) error {
	confirmation, err := i.pending(r)
	if err != nil {
		return &refusal{http.StatusBadRequest, err.Error()}
	}
	i.page(w, http.StatusOK, confirmPage, map[string]any{"Account": confirmation.Name, "ID": confirmation.ID, "Provider": confirmation.Provider, "Reset": confirmation.Reset,
		"First": confirmation.CLIID[:4], "Last": confirmation.CLIID[len(confirmation.CLIID)-4:]})
	return nil
}

// confirmCLI attaches the id, and answers as Kernelbot does.
func (i *Identity) confirmCLI(w http.ResponseWriter, r *http.Request) error {
	confirmation, err := i.pending(r)
	if err != nil {
		return &refusal{http.StatusBadRequest, err.Error()}
	}
	if err := i.CheckOrigin(r); err != nil {
		return &refusal{http.StatusForbidden, err.Error()}
	}
	i.setCookie(w, confirmCookie, "", 0)
	var refused *store.Refusal
	switch err := i.o.Store.FinishLogin(r.Context(), confirmation.CLIID, confirmation.Provider, confirmation.ID, confirmation.Name, confirmation.Reset); {
	case errors.Is(err, store.ErrNotFound):
		return &refusal{http.StatusBadRequest, "this CLI id is unknown or was used; run popcorn-cli register again"}
	case errors.As(err, &refused):
		return &refusal{http.StatusConflict, refused.Text}
	case err != nil:
		return err
	case wantsPage(r):
		i.page(w, http.StatusOK, donePage, map[string]any{"Account": confirmation.Name})
	default:
		httpx.JSON(w, http.StatusOK, map[string]any{"status": "success", "message": "popcorn-cli may submit for " + confirmation.Name + " now",
			"user_id": confirmation.ID, "user_name": confirmation.Name, "is_reset": confirmation.Reset})
	}
	return nil
}
