package page

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// policy lets a page load its own styles, script and events and nothing else.
// Logs may carry inline images, which are data URLs.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// guard keeps other origins out. The pages have no login, so a browser on this
// machine is all that an attacker needs. A foreign name that resolves to
// 127.0.0.1 (DNS rebinding) is refused for every method, but for the hosts given, and a POST must come
// from one of these pages.
func guard(hosts []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "same-origin") // with no-referrer, forms would send "Origin: null"
		h.Set("Cache-Control", "no-store")
		switch {
		case !isLoopback(r.Host) && !slices.Contains(hosts, hostname(r.Host)):
			http.Error(w, "these pages answer on localhost, 127.0.0.1, [::1] and hosts named with --reach only", http.StatusForbidden)
		case r.Method != http.MethodGet && r.Method != http.MethodHead && !sameOrigin(r):
			http.Error(w, "this request does not come from one of these pages", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isLoopback reports whether a Host header names this machine by an address
// that no name server can hand out.
func isLoopback(hostport string) bool {
	host := hostname(hostport)
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// hostname is a Host header without its port.
func hostname(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return strings.ToLower(host)
}

// sameOrigin reports whether the browser says that a page of this origin sent
// the request. A request without either header is refused.
func sameOrigin(r *http.Request) bool {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	if site != "" && site != "same-origin" || site == "" && origin == "" {
		return false
	}
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host == r.Host
}

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
func (p *pages) enter(w http.ResponseWriter, r *http.Request) error {
	if p.opts.Key == "" || subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("key")), []byte(p.opts.Key)) != 1 {
		return refuse(http.StatusForbidden, "This is not the key of this stand-in; a new one comes with every start.")
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: p.pass(), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(w, r, "/", http.StatusSeeOther)
	return nil
}
