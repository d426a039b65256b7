package identity

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/store"
)

// A pending is what a person is asked to confirm. Their browser keeps it, sealed.
type pending struct {
	CLIID    string
	Provider string
	ID, Name string // of the account
	Reset    bool
	Until    int64 // Unix seconds
}

// beginCLI hands out an id that is nobody's yet: GET /auth/init?provider=github.
func (i *Identity) beginCLI(w http.ResponseWriter, r *http.Request) {
	p, found := i.provider(r.FormValue("provider"))
	if !found {
		answer(w, http.StatusBadRequest, map[string]any{"detail": "provider: want one of " + i.choices()})
		return
	}
	id, err := i.o.Store.BeginLogin(r.Context(), p.Name)
	if err != nil {
		i.o.Log.Error("beginning a CLI's log-in", "error", err)
		answer(w, http.StatusInternalServerError, map[string]any{"detail": "beginning a log-in did not work; try again"})
		return
	}
	answer(w, http.StatusOK, map[string]any{"state": id})
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
func (i *Identity) returnedCLI(w http.ResponseWriter, r *http.Request) {
	p, found := i.provider(r.PathValue("provider"))
	if !found {
		i.problem(w, r, http.StatusNotFound, "there is no such provider")
		return
	}
	s, err := parseCLIState(r.FormValue("state"))
	if err != nil {
		i.problem(w, r, http.StatusBadRequest, "state: want what popcorn-cli sends")
		return
	}
	code, ok := i.code(w, r, p)
	if !ok {
		return
	}
	who, err := i.account(r.Context(), p, i.redirectURL("cli", p.Name), code)
	if err != nil {
		i.trouble(w, r, p, err)
		return
	}
	confirmation := pending{CLIID: s.CLIID, Provider: p.Name, ID: who.id, Name: who.name, Reset: s.Reset, Until: i.o.Now().Add(stateLife).Unix()}
	i.setCookie(w, confirmCookie, i.seal("confirm", confirmation), stateLife)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r, "/auth/cli/confirm", http.StatusSeeOther) // away from an address that holds the id
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
func (i *Identity) askCLI(w http.ResponseWriter, r *http.Request) {
	confirmation, err := i.pending(r)
	if err != nil {
		i.problem(w, r, http.StatusBadRequest, err.Error())
		return
	}
	i.page(w, http.StatusOK, confirmPage, map[string]any{"Account": confirmation.Name, "ID": confirmation.ID, "Provider": confirmation.Provider, "Reset": confirmation.Reset,
		"First": confirmation.CLIID[:4], "Last": confirmation.CLIID[len(confirmation.CLIID)-4:]})
}

// confirmCLI attaches the id, and answers as Kernelbot does.
func (i *Identity) confirmCLI(w http.ResponseWriter, r *http.Request) {
	confirmation, err := i.pending(r)
	if err != nil {
		i.problem(w, r, http.StatusBadRequest, err.Error())
		return
	}
	if err := i.CheckOrigin(r); err != nil {
		i.problem(w, r, http.StatusForbidden, err.Error())
		return
	}
	i.setCookie(w, confirmCookie, "", 0)
	var refused *store.Refusal
	switch err := i.o.Store.FinishLogin(r.Context(), confirmation.CLIID, confirmation.Provider, confirmation.ID, confirmation.Name, confirmation.Reset); {
	case errors.Is(err, store.ErrNotFound):
		i.problem(w, r, http.StatusBadRequest, "this CLI id is unknown or was used; run popcorn-cli register again")
	case errors.As(err, &refused):
		i.problem(w, r, http.StatusConflict, refused.Text)
	case err != nil:
		i.o.Log.Error("a CLI's log-in", "provider", confirmation.Provider, "error", err)
		i.problem(w, r, http.StatusInternalServerError, "logging in did not work; try again")
	case wantsPage(r):
		i.page(w, http.StatusOK, donePage, map[string]any{"Account": confirmation.Name})
	default:
		answer(w, http.StatusOK, map[string]any{"status": "success", "message": "popcorn-cli may submit for " + confirmation.Name + " now",
			"user_id": confirmation.ID, "user_name": confirmation.Name, "is_reset": confirmation.Reset})
	}
}
