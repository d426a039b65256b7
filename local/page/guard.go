package page

import (
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
