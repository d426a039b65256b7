package identity

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// An operator's link logs one browser in, once: looking at it uses nothing up, and
// neither a second browser nor another site gets anything by it.
func TestLink(t *testing.T) {
	r := newRig(t, nil)
	if _, err := r.s.NewCLIID(t.Context(), "1001", "<b>ann</b>"); err != nil {
		t.Fatal(err)
	}
	link := func() string {
		token, err := r.s.NewLink(t.Context(), "1001", time.Now().Add(LinkLife))
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	token := link()
	c := browser(t)
	for range 2 {
		status, body := get(t, c, r.site.URL+LinkPath+"?"+LinkField+"="+token)
		if status != http.StatusOK || !strings.Contains(body, "Log in as &lt;b&gt;ann") || !strings.Contains(body, token) {
			t.Fatalf("the link's page: %d\n%s", status, body)
		}
	}
	if _, body := get(t, c, r.site.URL+"/"); !strings.HasPrefix(body, " \n") {
		t.Errorf("a look logged in: %q", body)
	}
	if status, body := post(t, c, r.site.URL+LinkPath, url.Values{LinkField: {token}}); status != http.StatusOK || !strings.HasPrefix(body, "1001 <b>ann</b>") {
		t.Errorf("taking the link: %d %q, want ann's page", status, body)
	}
	other := browser(t)
	if status, _ := post(t, other, r.site.URL+LinkPath, url.Values{LinkField: {token}}); status != http.StatusForbidden {
		t.Errorf("taking it again: %d, want 403", status)
	}
	if status, _ := get(t, other, r.site.URL+LinkPath+"?"+LinkField+"="+token); status != http.StatusForbidden {
		t.Errorf("looking at it again: %d, want 403", status)
	}
	for _, bad := range []string{"", "x", strings.Repeat("a", 5000)} {
		if status, _ := post(t, other, r.site.URL+LinkPath, url.Values{LinkField: {bad}}); status != http.StatusForbidden {
			t.Errorf("a token of %d characters: %d, want 403", len(bad), status)
		}
	}
	request, err := http.NewRequest(http.MethodPost, r.site.URL+LinkPath, strings.NewReader(url.Values{LinkField: {link()}}.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Sec-Fetch-Site", "cross-site")
	answer, err := other.Do(request)
	if status, _ := read(t, answer, err); status != http.StatusForbidden {
		t.Errorf("from another site: %d, want 403", status)
	}
	if strings.Contains(r.log.String(), token) {
		t.Error("the log has the link's token")
	}
}

// 30 requests at once with one link get one session, and the link is no session cookie.
func TestLinkIsUsedOnce(t *testing.T) {
	r := newRig(t, nil)
	if _, err := r.s.NewCLIID(t.Context(), "1001", "ann"); err != nil {
		t.Fatal(err)
	}
	token, err := r.s.NewLink(t.Context(), "1001", time.Now().Add(LinkLife))
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.AddCookie(&http.Cookie{Name: sessionCookie, Value: token})
	if who, err := r.Who(req); err != nil || who != (Who{}) {
		t.Errorf("a link as a session cookie: %+v, %v; want nobody", who, err)
	}
	var wait sync.WaitGroup
	var sessions atomic.Int32
	for range 30 {
		c := browser(t)
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		wait.Go(func() {
			answer, err := c.PostForm(r.site.URL+LinkPath, url.Values{LinkField: {token}})
			if err != nil {
				t.Error(err)
				return
			}
			answer.Body.Close()
			if len(answer.Cookies()) > 0 {
				sessions.Add(1)
			}
		})
	}
	wait.Wait()
	if sessions.Load() != 1 {
		t.Errorf("30 requests with one link got %d sessions, want 1", sessions.Load())
	}
}

// A log-in for an id that the command made is refused with a text for the user.
func TestLogInIsRefusedForAnothersID(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Admins = []string{"7"} })
	if _, err := r.s.NewCLIID(t.Context(), "7", "ann"); err != nil {
		t.Fatal(err)
	}
	c := browser(t)
	if status, body := get(t, c, r.site.URL+"/auth/login?provider=github"); status != http.StatusConflict || !strings.Contains(body, "made by the organizers") {
		t.Errorf("the log-in: %d %q, want 409", status, body)
	}
	if _, body := get(t, c, r.site.URL+"/"); !strings.HasPrefix(body, " \n") {
		t.Errorf("after the refusal the page says %q, want nobody", body)
	}
	if err := r.s.TieUser(t.Context(), "7", "", "github"); err != nil {
		t.Fatal(err)
	}
	if status, body := get(t, c, r.site.URL+"/auth/login?provider=github"); status != http.StatusOK || !strings.HasPrefix(body, "7 ann") {
		t.Errorf("the log-in after the tie: %d %q, want ann's page", status, body)
	}
	if err := r.s.Ban(t.Context(), "7", true); err != nil {
		t.Fatal(err)
	}
	if _, body := get(t, c, r.site.URL+"/"); !strings.HasPrefix(body, " \n") {
		t.Errorf("after the ban the page says %q, want nobody", body)
	}
	token, err := r.s.NewSession(t.Context(), "7", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.AddCookie(&http.Cookie{Name: sessionCookie, Value: token})
	if who, err := r.Who(req); err != nil || who.ID != "7" || who.Admin {
		t.Errorf("a banned admin who logs in again: %+v, %v; want a user without admin rights", who, err)
	}
}
