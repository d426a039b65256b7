package identity

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/store"
)

const (
	clientSecret  = "canary-client-secret"
	providerToken = "canary-provider-token"
	adminToken    = "canary-admin-token"
)

// A provider plays GitHub: it sends every browser straight back, as whoever user is.
type provider struct {
	*httptest.Server
	mu         sync.Mutex
	user       string            // JSON
	codes      map[string]string // code to PKCE challenge
	exchanges  int
	refuseCode bool
}

func newProvider(t *testing.T) *provider {
	p := &provider{user: `{"id": 7, "login": "ann"}`, codes: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		code := fmt.Sprintf("code-%d", len(p.codes))
		p.codes[code] = r.FormValue("code_challenge")
		back := r.FormValue("redirect_uri") + "?" + url.Values{"code": {code}, "state": {r.FormValue("state")}}.Encode()
		http.Redirect(w, r, back, http.StatusFound)
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.exchanges++
		challenge, found := p.codes[r.FormValue("code")]
		delete(p.codes, r.FormValue("code"))
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		proved := challenge == "" || challenge == base64.RawURLEncoding.EncodeToString(sum[:])
		if !found || !proved || r.FormValue("client_secret") != clientSecret || p.refuseCode {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			json.NewEncoder(w).Encode(map[string]string{"error": "bad_verification_code", "error_description": "canary-description"})
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]string{"access_token": providerToken, "token_type": "bearer"})
	})
	mux.HandleFunc("GET /user", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+providerToken {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		io.WriteString(w, p.user)
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// A rig is a site that people log in to.
type rig struct {
	*Identity
	s    *store.Store
	p    *provider
	site *httptest.Server
	log  *bytes.Buffer
	now  time.Time
}

func newRig(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	r := &rig{s: servertest.SQLite(t), p: newProvider(t), log: &bytes.Buffer{}, now: time.Now()}
	mux := http.NewServeMux()
	r.site = httptest.NewServer(mux)
	t.Cleanup(r.site.Close)
	o := Options{Store: r.s, Signing: bytes.Repeat([]byte{1}, 32), PublicURL: r.site.URL, AdminToken: adminToken, Log: slog.New(slog.NewTextHandler(r.log, nil)), Now: func() time.Time { return r.now },
		Providers: []Provider{{Name: "github", ClientID: "client", ClientSecret: clientSecret, AuthURL: r.p.URL + "/authorize", TokenURL: r.p.URL + "/token", UserURL: r.p.URL + "/user"}}}
	if change != nil {
		change(&o)
	}
	var err error
	if r.Identity, err = New(o); err != nil {
		t.Fatal(err)
	}
	r.Register(mux)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, req *http.Request) {
		v := r.Viewer(req)
		fmt.Fprintf(w, "%s %s\n", v.ID, v.Name)
	})
	mux.HandleFunc("POST /form", func(w http.ResponseWriter, req *http.Request) {
		if err := r.CheckOrigin(req); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
		}
	})
	t.Cleanup(func() {
		for _, canary := range []string{clientSecret, providerToken, adminToken, "canary-description"} {
			if strings.Contains(r.log.String(), canary) {
				t.Errorf("the log has %s:\n%s", canary, r.log)
			}
		}
	})
	return r
}

// browser is a client with cookies, that says what it wants as browsers do.
func browser(t *testing.T) *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, Transport: accepting{}}
}

type accepting struct{}

func (accepting) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Accept", "text/html,*/*")
	return http.DefaultTransport.RoundTrip(r)
}

func get(t *testing.T, c *http.Client, address string) (int, string) {
	t.Helper()
	resp, err := c.Get(address)
	return read(t, resp, err)
}

func post(t *testing.T, c *http.Client, address string, form url.Values) (int, string) {
	t.Helper()
	resp, err := c.PostForm(address, form)
	return read(t, resp, err)
}

func read(t *testing.T, resp *http.Response, err error) (int, string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestLogInAndOut(t *testing.T) {
	r := newRig(t, nil)
	c := browser(t)
	status, body := get(t, c, r.site.URL+"/auth/login?provider=github&next=/boards")
	if status != http.StatusOK || !strings.HasPrefix(body, "7 ann\n") {
		t.Fatalf("after the log-in the page says %d %q, want ann's", status, body)
	}
	if status := postFrom(t, c, r.site.URL+"/auth/logout", "Sec-Fetch-Site: cross-site"); status != http.StatusForbidden {
		t.Errorf("logging out from elsewhere: %d, want 403", status)
	}
	if status, _ := post(t, c, r.site.URL+"/auth/logout", nil); status != http.StatusOK {
		t.Errorf("logging out: %d", status)
	}
	if _, body := get(t, c, r.site.URL+"/"); body != " \n" {
		t.Errorf("after logging out the page says %q", body)
	}
}

// crossOrigin are headers that browsers send for pages of other sites.
var crossOrigin = []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: https://evil.example", "Origin: null"}

// postFrom posts an empty form with a header and returns the status.
func postFrom(t *testing.T, c *http.Client, url, header string) int {
	t.Helper()
	name, value, _ := strings.Cut(header, ": ")
	req, err := http.NewRequest("POST", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set(name, value)
	resp, err := c.Do(req)
	status, _ := read(t, resp, err)
	return status
}

// A form that a page of another site sends is refused.
func TestFormsFromElsewhereAreRefused(t *testing.T) {
	r := newRig(t, nil)
	c := browser(t)
	get(t, c, r.site.URL+"/auth/login?provider=github")
	for _, header := range crossOrigin {
		if status := postFrom(t, c, r.site.URL+"/form", header); status != http.StatusForbidden {
			t.Errorf("with %s: %d, want 403", header, status)
		}
	}
	for _, header := range []string{"Sec-Fetch-Site: same-origin", "Origin: " + r.site.URL} {
		if status := postFrom(t, c, r.site.URL+"/form", header); status != http.StatusOK {
			t.Errorf("with %s: %d, want 200", header, status)
		}
	}
}

// A state counts once, for the browser that got it, at the provider it was for, and
// for ten minutes.
func TestStateIsBoundToItsBrowser(t *testing.T) {
	r := newRig(t, nil)
	stop := func(c *http.Client) *http.Client {
		c.CheckRedirect = func(req *http.Request, _ []*http.Request) error {
			if strings.HasPrefix(req.URL.Path, "/auth/web/") {
				return http.ErrUseLastResponse
			}
			return nil
		}
		return c
	}
	begin := func(c *http.Client) (back string) {
		resp, err := stop(c).Get(r.site.URL + "/auth/login?provider=github")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.Header.Get("Location")
	}
	victim, attacker := browser(t), browser(t)
	back := begin(attacker)
	if status, body := get(t, victim, back); status != http.StatusBadRequest || !strings.Contains(body, "begun elsewhere") {
		t.Errorf("another browser's state: %d %q, want 400", status, body)
	}
	if r.p.exchanges != 0 {
		t.Error("a code was exchanged for a state that does not count")
	}
	back = begin(victim)
	forged, err := url.Parse(back)
	if err != nil {
		t.Fatal(err)
	}
	q := forged.Query()
	state := []byte(q.Get("state"))
	state[10] ^= 'A' ^ 'B' // stays a letter of base64, or becomes another character
	q.Set("state", string(state))
	forged.RawQuery = q.Encode()
	jar := victim.Jar.Cookies(forged)
	for name, address := range map[string]string{"forged": forged.String(), "none": r.site.URL + "/auth/web/github?code=x", "two parts": r.site.URL + "/auth/web/github?code=x&state=.", "other provider": strings.Replace(back, "/github", "/discord", 1)} {
		victim.Jar.SetCookies(forged, jar)
		if status, _ := get(t, victim, address); status < 400 || status > 499 {
			t.Errorf("%s state: %d, want 4xx", name, status)
		}
	}
	victim.Jar.SetCookies(forged, jar)
	if status, _ := get(t, victim, back); status != http.StatusSeeOther && status != http.StatusOK {
		t.Errorf("the right state: %d", status)
	}
	victim.Jar.SetCookies(forged, jar) // as if the browser had kept it
	if status, _ := get(t, victim, back); status != http.StatusBadRequest {
		t.Errorf("the same state again: %d, want 400", status)
	}
	back = begin(victim)
	r.now = r.now.Add(stateLife + time.Second)
	if status, _ := get(t, victim, back); status != http.StatusBadRequest {
		t.Errorf("after ten minutes: %d, want 400", status)
	}
}

func TestProvidersTrouble(t *testing.T) {
	r := newRig(t, nil)
	for _, user := range []string{`{"id": 0, "login": "x"}`, `{"id": "../7"}`, `{"login": "x"}`, `[]`, `{"id": 1.5}`, `not JSON`} {
		r.p.user = user
		if status, body := get(t, browser(t), r.site.URL+"/auth/login?provider=github"); status != http.StatusBadGateway || strings.Contains(body, user) {
			t.Errorf("a provider that says %s: %d %q, want 502", user, status, body)
		}
	}
	r.p.refuseCode = true
	if status, body := get(t, browser(t), r.site.URL+"/auth/login?provider=github"); status != http.StatusBadRequest || !strings.Contains(body, "bad_verification_code") || strings.Contains(body, "canary") {
		t.Errorf("a code that is refused: %d %q, want 400 with the provider's code alone", status, body)
	}
	if status, _ := get(t, browser(t), r.site.URL+"/auth/login?provider=gitlab"); status != http.StatusBadRequest {
		t.Errorf("an unknown provider: %d, want 400", status)
	}
	if users, err := r.s.Users(context.Background()); err != nil || len(users) != 0 {
		t.Errorf("users after all that: %v, %v", users, err)
	}
}

func TestReadAccount(t *testing.T) {
	for _, c := range []struct{ body, id, name string }{
		{`{"id": 184017, "login": "ann", "name": null}`, "184017", "ann"},
		{`{"id": "80351110224678912", "username": "nelly", "global_name": null}`, "80351110224678912", "nelly"},
		{`{"id": "80351110224678912", "username": "nelly", "global_name": "Nelly\u202e"}`, "80351110224678912", "Nelly"},
		{`{"id": 5}`, "5", "5"},
	} {
		if got, err := readAccount("x", []byte(c.body)); err != nil || got != (account{c.id, c.name}) {
			t.Errorf("readAccount(%s) = %+v, %v, want %s, %s", c.body, got, err, c.id, c.name)
		}
	}
}

func TestWho(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Admins = []string{"9"} })
	ctx := context.Background()
	ids := map[string]string{}
	for id, name := range map[string]string{"7": "ann", "9": "boss"} {
		var err error
		if ids[name], err = r.s.NewCLIID(ctx, id, name); err != nil {
			t.Fatal(err)
		}
	}
	session, err := r.s.NewSession(ctx, "7", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	bossSession, err := r.s.NewSession(ctx, "9", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	ann := backend.Viewer{ID: "7", Name: "ann"}
	for _, c := range []struct {
		name    string
		headers []string // pairs
		want    Who
		fault   bool
	}{
		{"nobody", nil, Who{}, false},
		{"a CLI id", []string{HeaderCLI, ids["ann"]}, Who{Viewer: ann}, false},
		{"an unknown CLI id", []string{HeaderCLI, "x"}, Who{}, true},
		{"its hash", []string{HeaderCLI, fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(ids["ann"])))}, Who{}, true},
		{"an admin's CLI id", []string{HeaderCLI, ids["boss"]}, Who{Viewer: backend.Viewer{ID: "9", Name: "boss"}}, false},
		{"an admin's session", []string{"Cookie", sessionCookie + "=" + bossSession}, Who{Viewer: backend.Viewer{ID: "9", Name: "boss", Admin: true}, Cookie: true}, false},
		{"the admin's token", []string{"Authorization", "Bearer " + adminToken}, Who{Viewer: backend.Viewer{Admin: true}}, false},
		{"the admin's token, lower case", []string{"Authorization", "bearer " + adminToken}, Who{Viewer: backend.Viewer{Admin: true}}, false},
		{"another token", []string{"Authorization", "Bearer x"}, Who{}, true},
		{"no token", []string{"Authorization", "Bearer "}, Who{}, true},
		{"another scheme", []string{"Authorization", "Basic " + adminToken}, Who{}, true},
		{"both", []string{"Authorization", "Bearer " + adminToken, HeaderCLI, ids["ann"]}, Who{Viewer: backend.Viewer{ID: "7", Name: "ann", Admin: true}}, false},
		{"two CLI ids", []string{HeaderCLI, ids["ann"], HeaderCLI, ids["boss"]}, Who{}, true},
		{"a session", []string{"Cookie", sessionCookie + "=" + session}, Who{Viewer: ann, Cookie: true}, false},
		{"two sessions", []string{"Cookie", sessionCookie + "=" + session + "; " + sessionCookie + "=x"}, Who{}, false},
		{"a forged session", []string{"Cookie", sessionCookie + "=x"}, Who{}, false},
	} {
		req := httptest.NewRequest("GET", "/", nil)
		for i := 0; i < len(c.headers); i += 2 {
			req.Header.Add(c.headers[i], c.headers[i+1])
		}
		if got, err := r.Who(req); got != c.want || (err != nil) != c.fault {
			t.Errorf("%s: Who = %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
	none := newRig(t, func(o *Options) { o.AdminToken = "" })
	for _, header := range []string{"Bearer ", "Bearer None", "Bearer"} {
		req := httptest.NewRequest("GET", "/", nil)
		req.Header.Set("Authorization", header)
		if got, err := none.Who(req); err == nil || got.Admin {
			t.Errorf("%q with no admin's token set: %+v, %v", header, got, err)
		}
	}
}

// With https, cookies are for one host and no script.
func TestCookies(t *testing.T) {
	r := newRig(t, func(o *Options) { o.PublicURL = "https://kb.example" })
	w := httptest.NewRecorder()
	r.login(w, httptest.NewRequest("GET", "/auth/login?provider=github", nil))
	c := w.Result().Cookies()[0]
	if c.Name != "__Host-"+loginCookie || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" || c.MaxAge != 600 {
		t.Errorf("the cookie is %+v", c)
	}
	to, err := url.Parse(w.Header().Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	q := to.Query()
	if q.Get("redirect_uri") != "https://kb.example/auth/web/github" || q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" || strings.Contains(to.String(), c.Value) || strings.Contains(to.String(), clientSecret) {
		t.Errorf("the browser is sent to %s", to)
	}
}

func TestLocalPath(t *testing.T) {
	for next, want := range map[string]string{"": "/", "/boards?x=1": "/boards?x=1", "//evil.example": "/", "https://evil.example": "/", `/\evil.example`: "/", "/a\nb": "/", "/a b": "/", "boards": "/", "/" + strings.Repeat("a", 2000): "/"} {
		if got := localPath(next); got != want {
			t.Errorf("localPath(%.40q) = %q, want %q", next, got, want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	good := Options{Signing: make([]byte, 32), PublicURL: "https://kb.example"}
	for name, change := range map[string]func(*Options){
		"a short key":           func(o *Options) { o.Signing = o.Signing[:16] },
		"no host":               func(o *Options) { o.PublicURL = "https://" },
		"another scheme":        func(o *Options) { o.PublicURL = "ftp://kb.example" },
		"a path":                func(o *Options) { o.PublicURL = "https://kb.example/kb" },
		"an unknown provider":   func(o *Options) { o.Providers = []Provider{{Name: "gitlab", ClientID: "x", ClientSecret: "y"}} },
		"a provider, no secret": func(o *Options) { o.Providers = []Provider{{Name: "github", ClientID: "x"}} },
	} {
		o := good
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("New with %s is no error", name)
		}
	}
}

func FuzzStates(f *testing.F) {
	i, err := New(Options{Signing: make([]byte, 32), PublicURL: "https://kb.example"})
	if err != nil {
		f.Fatal(err)
	}
	good := i.seal("state", state{Provider: "github", Browser: i.browser("n"), Next: "/", Until: time.Now().Add(time.Hour).Unix()})
	f.Add(good)
	f.Add(base64.RawURLEncoding.EncodeToString([]byte(`{"cli_id":"0123456789abcdef","is_reset":true}`)))
	f.Add(".")
	f.Add(good[:40] + "\n" + good[40:])
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := i.verify(text, "github", "n"); err == nil && text != good {
			t.Errorf("verify(%q) accepts a state that was not sealed", text)
		}
		if s, err := parseCLIState(text); err == nil && !cliID.MatchString(s.CLIID) {
			t.Errorf("parseCLIState(%q) = %+v", text, s)
		}
		var p pending
		if i.open("confirm", text, &p) == nil {
			t.Errorf("open(%q) accepts what was not sealed", text)
		}
	})
}
