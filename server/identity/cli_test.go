package identity

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// popcorn-cli's log-in, as it runs it: an id, a browser, a person who says yes.
func TestCLILogsIn(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	begin := func() string {
		status, body := get(t, http.DefaultClient, r.site.URL+"/auth/init?provider=github")
		var answer struct{ State string }
		if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK || answer.State == "" {
			t.Fatalf("/auth/init = %d %s", status, body)
		}
		return answer.State
	}
	open := func(c *http.Client, id string, reset bool) (int, string) {
		state := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"cli_id":%q,"is_reset":%t}`, id, reset))
		return get(t, c, r.p.URL+"/authorize?"+url.Values{"redirect_uri": {r.site.URL + "/auth/cli/github"}, "state": {state}}.Encode())
	}
	c, id := browser(t), begin()
	status, page := open(c, id, false)
	if status != http.StatusOK || !strings.Contains(page, "ann") || !strings.Contains(page, id[:4]) || !strings.Contains(page, id[len(id)-4:]) || strings.Contains(page, id) {
		t.Fatalf("the page to confirm = %d %s, want ann and the ends of the id alone", status, page)
	}
	if _, err := r.s.UserByCLIID(ctx, id); err == nil {
		t.Error("the id counts before anybody has confirmed it")
	}
	for _, header := range crossOrigin {
		if status := postFrom(t, c, r.site.URL+"/auth/cli/confirm", header); status != http.StatusForbidden {
			t.Errorf("confirming with %s: %d, want 403", header, status)
		}
	}
	if status, _ := post(t, browser(t), r.site.URL+"/auth/cli/confirm", nil); status != http.StatusBadRequest {
		t.Errorf("confirming in another browser: %d, want 400", status)
	}
	plain := &http.Client{Jar: c.Jar} // not a browser: gets Kernelbot's answer
	status, body := post(t, plain, r.site.URL+"/auth/cli/confirm", nil)
	var answer map[string]any
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK || answer["status"] != "success" || answer["user_id"] != "7" || answer["user_name"] != "ann" || answer["is_reset"] != false || answer["message"] == "" {
		t.Errorf("confirming = %d %s, want Kernelbot's answer", status, body)
	}
	if u, err := r.s.UserByCLIID(ctx, id); err != nil || u.ID != "7" {
		t.Errorf("the id is %+v's, %v, want ann's", u, err)
	}
	if status, _ := post(t, plain, r.site.URL+"/auth/cli/confirm", nil); status != http.StatusBadRequest {
		t.Errorf("confirming once more: %d, want 400", status)
	}

	confirm := func(c *http.Client) (int, string) {
		return post(t, c, r.site.URL+"/auth/cli/confirm", nil)
	}
	second := begin()
	open(c, second, false)
	if status, body := confirm(c); status != http.StatusConflict {
		t.Errorf("a second id without reset: %d %s, want 409", status, body)
	}
	open(c, second, true)
	if status, body := confirm(c); status != http.StatusOK || !strings.Contains(body, "ann") {
		t.Errorf("a second id with reset: %d %s", status, body)
	}
	if _, err := r.s.UserByCLIID(ctx, id); err == nil {
		t.Error("the first id still counts after a reset")
	}
	for name, id := range map[string]string{"one that was used": second, "one that we did not make": "0123456789abcdef"} {
		open(c, id, true)
		if status, body := confirm(c); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s, want 400", name, status, body)
		}
	}
	for name, state := range map[string]string{"no JSON": "AAAA", "no base64": "%%%", "none": "", "short id": base64.RawURLEncoding.EncodeToString([]byte(`{"cli_id":"x"}`))} {
		if status, _ := get(t, c, r.site.URL+"/auth/cli/github?code=x&state="+url.QueryEscape(state)); status != http.StatusBadRequest {
			t.Errorf("state with %s: %d, want 400", name, status)
		}
	}
	if status, _ := get(t, c, r.site.URL+"/auth/cli/github?error=access_denied&state="+base64.RawURLEncoding.EncodeToString([]byte(`{"cli_id":"0123456789abcdef"}`))); status != http.StatusForbidden {
		t.Errorf("somebody who said no at the provider: %d, want 403", status)
	}
}
