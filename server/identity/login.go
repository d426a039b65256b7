package identity

import (
	"net/http"
	"strings"

	"golang.org/x/oauth2"

	"github.com/gpu-mode/kbgen/schema/text"
)

// A Route is one of this package's, all below /auth/.
type Route struct {
	Pattern, About string
	serve          func(*Identity, http.ResponseWriter, *http.Request)
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
		mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) { route.serve(i, w, r) })
	}
}

func (i *Identity) redirectURL(kind, provider string) string {
	return i.o.PublicURL + "/auth/" + kind + "/" + provider
}

// login sends a browser to a provider: GET /auth/login?provider=github&next=/path.
func (i *Identity) login(w http.ResponseWriter, r *http.Request) {
	p, found := i.provider(r.FormValue("provider"))
	if !found {
		i.problem(w, r, http.StatusBadRequest, "provider: want one of "+i.choices())
		return
	}
	nonce := newNonce()
	i.setCookie(w, loginCookie, nonce, stateLife)
	s := i.sign(state{Provider: p.Name, Browser: i.browser(nonce), Next: localPath(r.FormValue("next")), Until: i.o.Now().Add(stateLife).Unix()})
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, p.config(i.redirectURL("web", p.Name)).AuthCodeURL(s, oauth2.S256ChallengeOption(i.verifier(nonce))), http.StatusSeeOther)
}

func (i *Identity) choices() string {
	if len(i.o.Providers) == 0 {
		return "none: log-in is not set up here"
	}
	return strings.Join(i.Providers(), ", ")
}

// loggedIn is where the provider sends the browser back to.
func (i *Identity) loggedIn(w http.ResponseWriter, r *http.Request) {
	p, found := i.provider(r.PathValue("provider"))
	if !found {
		i.problem(w, r, http.StatusNotFound, "there is no such provider")
		return
	}
	nonce := i.cookie(r, loginCookie)
	i.setCookie(w, loginCookie, "", 0)
	s, err := i.verify(r.FormValue("state"), p.Name, nonce)
	if err != nil {
		i.problem(w, r, http.StatusBadRequest, err.Error())
		return
	}
	code, ok := i.code(w, r, p)
	if !ok {
		return
	}
	who, err := i.account(r.Context(), p, i.redirectURL("web", p.Name), code, oauth2.VerifierOption(i.verifier(nonce)))
	if err != nil {
		i.trouble(w, r, p, err)
		return
	}
	if err := i.startSession(w, r, p.Name, who); err != nil {
		i.o.Log.Error("log-in", "provider", p.Name, "error", err)
		i.problem(w, r, http.StatusInternalServerError, "logging in did not work; try again")
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r, s.Next, http.StatusSeeOther)
}

// startSession gives the browser a session of its own, in place of one it had: what
// somebody may have put there before the log-in is worth nothing after it.
func (i *Identity) startSession(w http.ResponseWriter, r *http.Request, provider string, who account) error {
	ctx := r.Context()
	user, err := i.o.Store.LogIn(ctx, provider, who.id, who.name)
	if err != nil {
		return err
	}
	return i.session(w, r, user.ID)
}

func (i *Identity) session(w http.ResponseWriter, r *http.Request, user string) error {
	ctx := r.Context()
	if old := i.cookie(r, sessionCookie); old != "" {
		if err := i.o.Store.EndSession(ctx, old); err != nil {
			return err
		}
	}
	token, err := i.o.Store.NewSession(ctx, user, i.o.Now().Add(sessionLife))
	if err != nil {
		return err
	}
	i.setCookie(w, sessionCookie, token, sessionLife)
	return nil
}

// code reads what a provider sent with the browser; false: it has been answered.
func (i *Identity) code(w http.ResponseWriter, r *http.Request, p *Provider) (string, bool) {
	if problem := r.FormValue("error"); problem != "" {
		i.problem(w, r, http.StatusForbidden, p.Name+" says: "+text.Line(problem, 60))
		return "", false
	}
	code := r.FormValue("code")
	if code == "" || len(code) > 2048 {
		i.problem(w, r, http.StatusBadRequest, "code: want what "+p.Name+" sends")
		return "", false
	}
	return code, true
}

// logout ends a browser's session.
func (i *Identity) logout(w http.ResponseWriter, r *http.Request) {
	if err := i.CheckOrigin(r); err != nil {
		i.problem(w, r, http.StatusForbidden, err.Error())
		return
	}
	session := i.cookie(r, sessionCookie)
	if session == "" {
		i.problem(w, r, http.StatusForbidden, "you are not logged in")
		return
	}
	if err := i.o.Store.EndSession(r.Context(), session); err != nil {
		i.o.Log.Error("log-out", "error", err)
		i.problem(w, r, http.StatusInternalServerError, "logging out did not work; try again")
		return
	}
	i.setCookie(w, sessionCookie, "", 0)
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// localPath is a path on this server, "/" for anything else.
func localPath(next string) string {
	if !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || len(next) > 1000 ||
		strings.ContainsFunc(next, func(r rune) bool { return r < 0x21 || r == '\\' || r > 0x7e }) {
		return "/"
	}
	return next
}
