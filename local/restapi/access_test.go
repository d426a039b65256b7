package restapi_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/restapi"
)

func TestAuthentication(t *testing.T) {
	w := newRig(t, oneStep, func(o *restapi.Options) {
		o.Tokens = append(o.Tokens, restapi.Token{Value: "old", ExpiresAt: time.Unix(1, 0)}, restapi.Token{Value: ""})
	})
	for _, value := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "Bearer old", "Basic " + token, "Token " + token, token} {
		got := w.send("GET", pipe+"/builds", "", "Authorization", value)
		if got.status != 401 || !strings.Contains(got.body, `"message"`) || strings.Contains(got.body, token) {
			t.Errorf("Authorization %q = %d %s, want 401", value, got.status, got.body)
		}
	}
	w.want(200, "GET", pipe+"/builds", "", "Authorization", "bearer "+token)
	w.want(401, "GET", "/v2/access-token", "", "Authorization", "")
	if got := w.want(200, "GET", "/v2/meta", "", "Authorization", ""); !strings.Contains(got.body, "127.0.0.0/8") {
		t.Errorf("meta = %s", got.body)
	}
}

// TestScopes asks every endpoint with a token of all scopes but its own.
func TestScopes(t *testing.T) {
	endpoints := map[string]string{
		"GET /v2/user":                                            "read_user",
		"GET /v2/organizations":                                   "read_organizations",
		"GET " + orgURL:                                           "read_organizations",
		"GET " + orgURL + "/rate_limit":                           "read_accounts",
		"GET /v2/builds":                                          "read_builds",
		"GET " + orgURL + "/builds":                               "read_builds",
		"GET " + pipe + "/builds":                                 "read_builds",
		"POST " + pipe + "/builds":                                "write_builds",
		"GET " + pipe + "/builds/1":                               "read_builds",
		"PUT " + pipe + "/builds/1/cancel":                        "write_builds",
		"PUT " + pipe + "/builds/1/rebuild":                       "write_builds",
		"PUT " + pipe + "/builds/1/retry_failed_jobs":             "write_builds",
		"GET " + pipe + "/builds/1/artifacts":                     "read_artifacts",
		"GET " + pipe + "/builds/1/annotations":                   "read_builds",
		"POST " + pipe + "/builds/1/annotations":                  "write_builds",
		"DELETE " + pipe + "/builds/1/annotations/x":              "write_builds",
		"GET " + pipe + "/builds/1/jobs":                          "read_builds",
		"GET " + pipe + "/builds/1/jobs/x":                        "read_builds",
		"GET " + orgURL + "/jobs/x":                               "read_builds",
		"PUT " + orgURL + "/jobs/x/retry":                         "write_builds",
		"PUT " + orgURL + "/jobs/x/reprioritize":                  "write_builds",
		"PUT " + orgURL + "/jobs/x/unblock":                       "write_builds",
		"GET " + orgURL + "/jobs/x/log":                           "read_build_logs",
		"GET " + orgURL + "/jobs/x/log.txt":                       "read_build_logs",
		"GET " + orgURL + "/jobs/x/log.html":                      "read_build_logs",
		"GET " + orgURL + "/jobs/x/env":                           "read_job_env",
		"GET " + orgURL + "/jobs/x/annotations":                   "read_builds",
		"GET " + orgURL + "/jobs/x/artifacts":                     "read_artifacts",
		"GET " + orgURL + "/jobs/x/artifacts/y":                   "read_artifacts",
		"GET " + orgURL + "/jobs/x/artifacts/y/download":          "read_artifacts",
		"DELETE " + orgURL + "/jobs/x/artifacts/y":                "write_artifacts",
		"GET " + orgURL + "/pipelines":                            "read_pipelines",
		"POST " + orgURL + "/pipelines":                           "write_pipelines",
		"GET " + pipe:                                             "read_pipelines",
		"PATCH " + pipe:                                           "write_pipelines",
		"PUT " + pipe:                                             "write_pipelines",
		"DELETE " + pipe:                                          "write_pipelines",
		"GET " + orgURL + "/agents":                               "read_agents",
		"GET " + orgURL + "/agents/x":                             "read_agents",
		"PUT " + orgURL + "/agents/x/stop":                        "write_agents",
		"PUT " + orgURL + "/agents/x/pause":                       "write_agents",
		"PUT " + orgURL + "/agents/x/resume":                      "write_agents",
		"GET " + orgURL + "/clusters":                             "read_clusters",
		"GET " + orgURL + "/clusters/x":                           "read_clusters",
		"GET " + orgURL + "/clusters/x/queues":                    "read_clusters",
		"POST " + orgURL + "/clusters/x/queues":                   "write_clusters",
		"GET " + orgURL + "/clusters/x/queues/y":                  "read_clusters",
		"POST " + orgURL + "/clusters/x/queues/y/pause_dispatch":  "write_clusters",
		"POST " + orgURL + "/clusters/x/queues/y/resume_dispatch": "write_clusters",
	}
	w := newRig(t, oneStep, func(o *restapi.Options) {
		for _, scope := range restapi.Scopes {
			without := slices.DeleteFunc(slices.Clone(restapi.Scopes), func(s string) bool { return s == scope })
			o.Tokens = append(o.Tokens, restapi.Token{Value: "without-" + scope, Scopes: without}, restapi.Token{Value: "only-" + scope, Scopes: []string{scope}})
		}
	})
	for endpoint, scope := range endpoints {
		method, path, _ := strings.Cut(endpoint, " ")
		got := w.send(method, path, "", "Authorization", "Bearer without-"+scope)
		if got.status != 403 || got.body != `{"message":"Forbidden"}` {
			t.Errorf("%s without %s = %d %s, want 403 Forbidden", endpoint, scope, got.status, got.body)
		}
	}
	for endpoint, scope := range endpoints { // in the second pass, as some delete
		method, path, _ := strings.Cut(endpoint, " ")
		if got := w.send(method, path, "", "Authorization", "Bearer only-"+scope); got.status == 401 || got.status == 403 {
			t.Errorf("%s with only %s = %d %s, want another answer", endpoint, scope, got.status, got.body)
		}
	}
}

func TestAccount(t *testing.T) {
	w := newRig(t, oneStep, func(o *restapi.Options) {
		o.Tokens = append(o.Tokens, restapi.Token{Value: "few", Scopes: []string{"read_builds"}, User: engine.Person{ID: "u-1", Name: "Bob"}, Description: "poller", ExpiresAt: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)})
	})
	own, _, err := w.client.AccessTokens.Get()
	if err != nil || len(*own.Scopes) != len(restapi.Scopes) || *own.UUID == "" {
		t.Errorf("AccessTokens.Get = %v, %v", own, err)
	}
	got := w.want(200, "GET", "/v2/access-token", "", "Authorization", "Bearer few")
	for _, part := range []string{`"scopes":["read_builds"]`, `"description":"poller"`, `"expires_at":"2030-01-02T03:04:05.000Z"`, `"name":"Bob"`} {
		if !strings.Contains(got.body, part) {
			t.Errorf("access-token = %s, want %s in it", got.body, part)
		}
	}
	user, _, err := w.client.User.Get()
	if err != nil || *user.Name != "Ada" || *user.ID == "" {
		t.Errorf("User.Get = %v, %v", user, err)
	}
	orgs, _, err := w.client.Organizations.List(nil)
	if err != nil || len(orgs) != 1 || *orgs[0].Slug != "gpu-mode" {
		t.Errorf("Organizations.List = %v, %v", orgs, err)
	}
	_, _, err = w.client.Organizations.Get("gpu-mode")
	w.ok(err)
	w.want(404, "GET", "/v2/organizations/other", "")
}

func TestRateLimits(t *testing.T) {
	w := newRig(t, oneStep, func(o *restapi.Options) {
		o.RateLimits = &restapi.Limits{Organization: 5, User: 3}
		o.Tokens = append(o.Tokens, restapi.Token{Value: "bob", User: engine.Person{Name: "Bob"}}, restapi.Token{Value: "ada-2", User: o.Tokens[0].User})
	})
	check := func(got reply, status int, org, user string) {
		t.Helper()
		read := func(prefix string) string {
			h := func(name string) string { return got.header.Get(prefix + name) }
			return h("Scope") + " " + h("Remaining") + "/" + h("Limit") + " " + h("Reset")
		}
		if o, u := read("RateLimit-"), read("RateLimit-User-"); got.status != status || o != org || u != user {
			t.Errorf("answer %d, %s, %s, want %d, %s, %s", got.status, o, u, status, org, user)
		}
		for prefix, state := range map[string]string{"RateLimit-": org, "RateLimit-User-": user} {
			remaining, _ := strconv.Atoi(strings.Split(strings.Fields(state)[1], "/")[0])
			if warned := got.header.Get(prefix+"Warning") != ""; warned != (remaining <= 0) {
				t.Errorf("%sWarning is there: %t, with %d remaining", prefix, warned, remaining)
			}
		}
		if got.header.Get("Retry-After") != "" {
			t.Error("the answer has Retry-After")
		}
	}
	get := func(token string) reply { return w.send("GET", pipe, "", "Authorization", "Bearer "+token) }
	check(get(token), 200, "rest 4/5 60", "rest_user 2/3 60")
	w.clock.advance(20*time.Second + time.Millisecond)
	check(get("bob"), 200, "rest 3/5 40", "rest_user 2/3 60") // a window of its own
	check(get("ada-2"), 200, "rest 2/5 40", "rest_user 1/3 40")
	check(get(token), 200, "rest 1/5 40", "rest_user 0/3 40")
	over := get(token)
	check(over, 429, "rest 0/5 40", "rest_user -1/3 40")
	if want := `"scope":"rest_user","limit":3,"current":4,"reset":40}`; !strings.HasSuffix(over.body, want) {
		t.Errorf("429 = %s, want it to end in %s", over.body, want)
	}
	over = get("bob") // rejected requests have used the organization up
	check(over, 429, "rest -1/5 40", "rest_user 1/3 60")
	if want := `"scope":"rest","limit":5,"current":6,"reset":40}`; !strings.HasSuffix(over.body, want) {
		t.Errorf("429 = %s, want it to end in %s", over.body, want)
	}
	if got := w.want(401, "GET", pipe, "", "Authorization", ""); got.header.Get("RateLimit-Remaining") != "-1" {
		t.Errorf("401 has RateLimit-Remaining %q, want -1: it does not count", got.header.Get("RateLimit-Remaining"))
	}
	w.clock.advance(40 * time.Second)
	check(get("bob"), 200, "rest 4/5 60", "rest_user 0/3 20") // still in the old window
	w.clock.advance(20 * time.Second)
	check(get("bob"), 200, "rest 3/5 40", "rest_user 2/3 60")
	got := w.want(200, "GET", orgURL+"/rate_limit", "")
	if want := `"rest":{"limit":5,"current":3,"reset":40,"reset_at":"2026-03-01T12:02:00.251Z","enforced":true}`; !strings.Contains(got.body, want) {
		t.Errorf("rate_limit = %s, want %s in it", got.body, want)
	}
}

func TestNoRateLimits(t *testing.T) {
	w := newRig(t, oneStep, nil)
	got := w.want(200, "GET", orgURL+"/rate_limit", "")
	if got.header.Get("RateLimit-Limit") != "1000000" || got.header.Get("RateLimit-User-Remaining") != "999999" || !strings.Contains(got.body, `"enforced":false`) {
		t.Errorf("without limits: %v %s, want headers of 1000000 and not enforced", got.header, got.body)
	}
}

func TestGetWithBody(t *testing.T) {
	w := newRig(t, oneStep, nil)
	w.want(403, "GET", pipe, `{}`)
	req, err := http.NewRequest("GET", w.url+pipe, struct{ *strings.Reader }{strings.NewReader("x")}) // chunked
	w.ok(err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	w.ok(err)
	defer resp.Body.Close()
	if resp.StatusCode != 403 {
		t.Errorf("GET with a chunked body = %d, want 403", resp.StatusCode)
	}
}

func TestUnknownEndpoints(t *testing.T) {
	w := newRig(t, oneStep, nil)
	for endpoint, status := range map[string]int{
		"GET " + orgURL + "/teams":                        422,
		"GET " + orgURL + "/clusters/x/tokens":            422,
		"POST " + pipe + "/archive":                       422,
		"DELETE " + orgURL + "/jobs/x/log":                422,
		"GET /v2/nothing":                                 404,
		"DELETE /v2/access-token":                         404,
		"POST /v2/meta":                                   404,
		"GET /v2/analytics/organizations/gpu-mode/suites": 404,
	} {
		method, path, _ := strings.Cut(endpoint, " ")
		if got := w.want(status, method, path, ""); !strings.Contains(got.body, `"message":`) || !strings.Contains(got.body, "kblocal does not implement") {
			t.Errorf("%s = %s, want a message that says so", endpoint, got.body)
		}
	}
}
