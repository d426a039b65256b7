package identity

import (
	"net/http"
	"net/url"
	"strings"
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
		token, err := r.s.NewSession(t.Context(), "1001", time.Now().Add(LinkLife))
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
