package identity

import (
	"errors"
	"html/template"
	"net/http"
	"time"

	"github.com/gpu-mode/kbgen/store"
)

// LinkPath is where a link leads that an operator makes for a user; LinkField names
// its token there. LinkLife is how long it can be used, once.
const (
	LinkPath  = "/auth/link"
	LinkField = "token"
	LinkLife  = 10 * time.Minute
)

var linkPage = template.Must(template.New("link").Parse(head + `<title>Log in?</title>
<h1>Log in as {{.Name}}?</h1>
<p>This link logs this browser in as <strong>{{.Name}}</strong> ({{.ID}}). If somebody sent it to you whom you did not ask, close this page.</p>
<form method="post" action="` + LinkPath + `"><input type="hidden" name="` + LinkField + `" value="{{.Token}}"><button>Log in</button></form>
`))

// askLink shows whom a link is for. Looking uses nothing up: programs look at links
// before people do.
func (i *Identity) askLink(w http.ResponseWriter, r *http.Request) {
	token := r.URL.Query().Get(LinkField)
	user, ok := i.linked(w, r, token)
	if !ok {
		return
	}
	name := user.Name
	if name == "" {
		name = "user " + user.ID
	}
	i.page(w, http.StatusOK, linkPage, map[string]any{"Name": name, "ID": user.ID, "Token": token})
}

// useLink logs the browser in; the link is worth nothing after that.
func (i *Identity) useLink(w http.ResponseWriter, r *http.Request) {
	if err := i.CheckOrigin(r); err != nil {
		i.problem(w, r, http.StatusForbidden, err.Error())
		return
	}
	token := r.PostFormValue(LinkField)
	user, ok := i.linked(w, r, token)
	if !ok {
		return
	}
	err := i.o.Store.EndSession(r.Context(), token)
	if err == nil {
		err = i.session(w, r, user.ID)
	}
	if err != nil {
		i.o.Log.Error("log-in by a link", "error", err)
		i.problem(w, r, http.StatusInternalServerError, "logging in did not work; try again")
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// linked returns whose link it is; false: it has been answered.
func (i *Identity) linked(w http.ResponseWriter, r *http.Request, token string) (store.User, bool) {
	user, err := i.o.Store.UserBySession(r.Context(), token)
	switch {
	case errors.Is(err, store.ErrNotFound), token == "":
		i.problem(w, r, http.StatusForbidden, "this link was used, or is older than ten minutes; ask for another")
		return user, false
	case err != nil:
		i.o.Log.Error("log-in by a link", "error", err)
		i.problem(w, r, http.StatusInternalServerError, "logging in did not work; try again")
		return user, false
	}
	return user, true
}
