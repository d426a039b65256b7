package page

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
)

// Headers can be forged by whoever is no browser, so they start nothing: the
// buttons work in browsers that have been opened with the page's key, which only
// the person who started the stand-in is shown. Reading needs none.

// EnterPath is where the key is taken, as the query "key".
const EnterPath = "/enter"

// cookieName differs by port: browsers keep one set of cookies for all ports of a
// host.
func cookieName(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		return "kblocal"
	}
	return "kblocal-" + port
}

// pass is what the cookie holds. Browsers send it to every port of this machine,
// so it is not the key.
func (p *pages) pass() string {
	mac := hmac.New(sha256.New, []byte(p.opts.Key))
	mac.Write([]byte("kblocal page"))
	return hex.EncodeToString(mac.Sum(nil))
}

// mayAct reports whether the request comes from a browser that was opened with
// the key. Without a key nobody may.
func (p *pages) mayAct(r *http.Request) bool {
	cookie, err := r.Cookie(cookieName(r))
	return err == nil && p.opts.Key != "" && subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(p.pass())) == 1
}

// enter takes the key and goes on to the list of builds.
func (p *pages) enter(w http.ResponseWriter, r *http.Request) {
	if p.opts.Key == "" || subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("key")), []byte(p.opts.Key)) != 1 {
		p.fail(w, r, &refusal{http.StatusForbidden, "This is not the key of this stand-in; a new one comes with every start."})
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: p.pass(), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// A refusal is the pages' own.
type refusal struct {
	status  int
	message string
}

func (e *refusal) Error() string { return e.message }
