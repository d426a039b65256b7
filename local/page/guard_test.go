package page

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/local/engine"
)

func TestGuard(t *testing.T) {
	w := newRig(t)
	w.pipeline("p", "steps: [{label: x, command: x}]")
	w.create("p", engine.NewBuild{})
	own := w.server.URL
	host := strings.TrimPrefix(own, "http://")
	port := host[strings.LastIndex(host, ":"):]
	const cancel = "/gpu-mode/p/builds/1/cancel"
	for _, tt := range []struct {
		name, method, path string
		headers            []string
		want               int
	}{
		{"no word of where it comes from", "POST", cancel, nil, 403},
		{"cross-site", "POST", cancel, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"same site, other port", "POST", cancel, []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"typed in", "POST", cancel, []string{"Sec-Fetch-Site", "none"}, 403},
		{"other origin", "POST", cancel, []string{"Origin", "http://example.com"}, 403},
		{"null origin", "POST", cancel, []string{"Origin", "null"}, 403},
		{"other port", "POST", cancel, []string{"Origin", "http://127.0.0.1:1"}, 403},
		{"no URL", "POST", cancel, []string{"Origin", "::"}, 403},
		{"headers that disagree", "POST", cancel, []string{"Sec-Fetch-Site", "same-origin", "Origin", "http://example.com"}, 403},
		{"rebound name, same origin by its own lights", "POST", cancel, []string{"Host", "evil.test", "Origin", "http://evil.test", "Sec-Fetch-Site", "same-origin"}, 403},
		{"other method", "DELETE", "/", nil, 403},
		{"rebound name reads", "GET", "/", []string{"Host", "evil.test"}, 403},
		{"rebound name streams", "GET", "/events", []string{"Host", "evil.test"}, 403},
		{"name that looks local", "GET", "/", []string{"Host", "localhost.evil.test"}, 403},
		{"address that is not local", "GET", "/", []string{"Host", "192.168.0.1" + port}, 403},
		{"unspecified address", "GET", "/", []string{"Host", "0.0.0.0" + port}, 403},
		{"localhost", "GET", "/", []string{"Host", "LocalHost" + port}, 200},
		{"IPv6", "GET", "/", []string{"Host", "[::1]" + port}, 200},
		{"IPv6 without a port", "GET", "/", []string{"Host", "[::1]"}, 200},
		{"another address of the loopback net", "GET", "/", []string{"Host", "127.1.2.3"}, 200},
		{"a GET from elsewhere is a link", "GET", "/", []string{"Sec-Fetch-Site", "cross-site"}, 200},
		{"a button needs a POST", "GET", cancel, nil, 404},
		{"own origin and no key", "POST", cancel, []string{"Origin", own}, 403},
		{"every header forged", "POST", cancel, []string{"Origin", own, "Sec-Fetch-Site", "same-origin", "Cookie", "kblocal" + strings.Replace(port, ":", "-", 1) + "=" + key}, 403},
		{"the key and another origin", "POST", cancel, []string{"Origin", "http://example.com", "Cookie", w.cookie}, 403},
		{"wrong key", "GET", EnterPath + "?key=wrong", nil, 403},
		{"own origin, older browser", "POST", cancel, []string{"Origin", own, "Cookie", w.cookie}, 303},
	} {
		status, body, _ := w.request(tt.method, tt.path, tt.headers...)
		if status != tt.want {
			t.Errorf("%s: %s %s %q = %d, want %d\n%s", tt.name, tt.method, tt.path, tt.headers, status, tt.want, body)
		}
	}
}

// A browser without the key reads everything and sees no button.
func TestButtonsNeedTheKey(t *testing.T) {
	w := newRig(t)
	w.pipeline("p", "steps: [{label: x, command: x}]")
	w.create("p", engine.NewBuild{})
	const path = "/gpu-mode/p/builds/1"
	if status, body, _ := w.request("GET", path); status != 200 || strings.Contains(body, "<button") || !strings.Contains(body, "may only look") {
		t.Errorf("without the key, GET %s = %d:\n%s", path, status, body)
	}
	wants(t, "with the key, the build", w.get(path), "<button>Cancel</button>")
	status, body, header := w.request("GET", EnterPath+"?key="+key)
	got := header.Get("Set-Cookie")
	if status != 303 || header.Get("Location") != "/" || !strings.Contains(got, "HttpOnly") || !strings.Contains(got, "SameSite=Strict") || strings.Contains(got+body, key) {
		t.Errorf("entering = %d to %q, cookie %q, want 303 to / and a strict cookie without the key", status, header.Get("Location"), got)
	}
}

func TestHeaders(t *testing.T) {
	w := newRig(t)
	for _, path := range []string{"/", "/nothing", "/assets/style.css"} {
		_, _, header := w.request("GET", path)
		policy := header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("GET %s: policy %q lacks %q", path, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") {
			t.Errorf("GET %s: policy %q allows inline code", path, policy)
		}
		if got := header.Get("X-Content-Type-Options"); got != "nosniff" {
			t.Errorf("GET %s: X-Content-Type-Options = %q, want nosniff", path, got)
		}
		if got := header.Values("Set-Cookie"); len(got) != 0 {
			t.Errorf("GET %s sets cookies", path)
		}
		if got := header.Get("Referrer-Policy"); got == "no-referrer" {
			t.Error("with no-referrer, browsers send Origin: null with forms")
		}
	}
	if status, body, _ := w.request(http.MethodHead, "/"); status != 200 || body != "" {
		t.Errorf("HEAD / = %d %q, want 200 and nothing", status, body)
	}
}
