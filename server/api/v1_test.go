package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/gpu-mode/kbgen/internal/popcorn"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/api"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/httpx"
	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/store"
)

// A description holds answers to what openapi.json says of them.
type description struct {
	Paths map[string]map[string]struct {
		Responses map[string]struct {
			Content map[string]struct{ Schema json.RawMessage }
		}
	}
	Components struct{ Schemas map[string]json.RawMessage }
}

func readDescription(t *testing.T) *description {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var d description
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// check holds an answer to the schema of its status. No answer may have a member
// that is not described.
func (d *description) check(t *testing.T, pattern string, a answer) {
	t.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	op, found := d.Paths[path][strings.ToLower(method)]
	if !found {
		t.Fatalf("%s is not described", pattern)
	}
	r, found := op.Responses[fmt.Sprint(a.status)]
	if !found {
		if r, found = op.Responses[fmt.Sprintf("%dXX", a.status/100)]; !found {
			t.Errorf("%s: status %d is not described", pattern, a.status)
			return
		}
	}
	content, found := r.Content["application/json"]
	if !found {
		return
	}
	closed := map[string]any{}
	for name, s := range d.Components.Schemas {
		var m map[string]any
		if err := json.Unmarshal(s, &m); err != nil {
			t.Fatal(err)
		}
		if m["type"] == "object" {
			m["additionalProperties"] = false
		}
		closed[name] = m
	}
	var top map[string]any
	if err := json.Unmarshal(content.Schema, &top); err != nil {
		t.Fatal(err)
	}
	top["$defs"] = closed
	text, err := json.Marshal(top)
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), "#/components/schemas/", "#/$defs/")), &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatalf("%s: %v", pattern, err)
	}
	var v any
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Errorf("%s: %d %s: %v", pattern, a.status, a.body, err)
		return
	}
	if err := resolved.Validate(v); err != nil {
		t.Errorf("%s: %d %s: %v", pattern, a.status, a.body, err)
	}
}

// Every route answers as it is described, for a user, an admin and nobody.
func TestAnswersAreAsDescribed(t *testing.T) {
	d := readDescription(t)
	both(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		ranked := decode[api.Receipt](t, r.ask(t, "ann", "POST", "/api/v1/submissions?board=sort&gpu=H100&mode=leaderboard", upload("a.py", "x = 1\n")))
		servertest.Evaluate(t, r.s, nil)
		wrong := decode[api.Receipt](t, r.ask(t, "ann", "POST", "/api/v1/submissions?board=sort&gpu=H100&mode=leaderboard", upload("a.py", "x = 2\n")))
		servertest.Evaluate(t, r.s, fails)
		waiting := decode[api.Receipt](t, r.ask(t, "ann", "POST", "/api/v1/submissions?mode=test", upload("a.py", "#!POPCORN leaderboard sort\n#!POPCORN gpu B200\n")))
		if ranked.ID != 1 || wrong.ID != 2 || waiting.ID != 3 {
			t.Fatal(ranked, wrong, waiting)
		}
		r.q.Waits[3] = backend.Wait{GPU: "B200", Place: 2, Expected: time.Minute}
		r.q.Lines = []backend.GPUStatus{{GPU: "H100", Queue: "h100", Known: true, Agents: 2, Typical: time.Minute, Runs: []backend.QueuedRun{{Submission: 3, Board: "sort", UserID: "7", Mode: "test", Since: time.Now()}}}, {GPU: "T4", Off: "not lent"}}
		codes, err := r.s.NewInvites(ctx, []string{"dark"}, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			as, pattern, path string
			body              any
			status            int
		}{
			{"", "GET /api/v1/boards", "/api/v1/boards", nil, 200},
			{"", "GET /api/v1/boards/{board}", "/api/v1/boards/Sort", nil, 200},
			{"", "GET /api/v1/boards/{board}", "/api/v1/boards/dark", nil, 404},
			{"", "GET /api/v1/boards/{board}/ranking", "/api/v1/boards/sort/ranking?gpu=H100", nil, 200},
			{"", "GET /api/v1/boards/{board}/ranking", "/api/v1/boards/sort/ranking?gpu=T4", nil, 400},
			{"", "GET /api/v1/boards/{board}/ranking", "/api/v1/boards/sort/ranking?gpu=H100&limit=-1", nil, 400},
			{"", "GET /api/v1/boards/{board}/ranking", "/api/v1/boards/sort/ranking?gpu=H100&offset=x", nil, 422},
			{"", "GET /api/v1/boards/{board}/history", "/api/v1/boards/sort/history?gpu=H100", nil, 200},
			{"", "GET /api/v1/boards/{board}/history", "/api/v1/boards/sort/history?gpu=H100&user=7", nil, 200},
			{"", "GET /api/v1/queue", "/api/v1/queue", nil, 200},
			{"", "GET /api/v1/me", "/api/v1/me", nil, 200},
			{"ann", "GET /api/v1/me", "/api/v1/me", nil, 200},
			{"", "GET /api/v1/submissions", "/api/v1/submissions", nil, 401},
			{"ann", "GET /api/v1/submissions", "/api/v1/submissions?limit=2", nil, 200},
			{"admin", "GET /api/v1/submissions", "/api/v1/submissions?user=7&before=3&board=sort&gpu=H100&status=failed", nil, 200},
			{"", "GET /api/v1/submissions/{id}", "/api/v1/submissions/1", nil, 200},
			{"bob", "GET /api/v1/submissions/{id}", "/api/v1/submissions/2", nil, 404},
			{"ann", "GET /api/v1/submissions/{id}", "/api/v1/submissions/2", nil, 200},
			{"ann", "GET /api/v1/submissions/{id}", "/api/v1/submissions/3", nil, 200},
			{"ann", "GET /api/v1/submissions/{id}", "/api/v1/submissions/03", nil, 422},
			{"ann", "GET /api/v1/submissions/{id}/reports", "/api/v1/submissions/1/reports", nil, 200},
			{"bob", "GET /api/v1/submissions/{id}/reports", "/api/v1/submissions/1/reports", nil, 403},
			{"ann", "GET /api/v1/submissions/{id}/log", "/api/v1/submissions/1/log", nil, 200},
			{"bob", "GET /api/v1/submissions/{id}/log", "/api/v1/submissions/1/log", nil, 403},
			{"ann", "GET /api/v1/submissions/{id}/profile", "/api/v1/submissions/1/profile", nil, 404},
			{"bob", "GET /api/v1/submissions/{id}/profile", "/api/v1/submissions/1/profile", nil, 403},
			{"", "GET /user/submissions/{id}", "/user/submissions/1", nil, 400},
			{"ann", "GET /user/submissions/{id}", "/user/submissions/1", nil, 200},
			{"bob", "GET /user/submissions/{id}", "/user/submissions/1", nil, 403},
			{"ann", "GET /user/submissions", "/user/submissions", nil, 200},
			{"ann", "GET /user/submissions", "/user/submissions?limit=101", nil, 400},
			{"", "GET /leaderboards", "/leaderboards", nil, 200},
			{"", "GET /gpus/{board}", "/gpus/SORT", nil, 200},
			{"", "GET /submissions/{board}/{gpu}", "/submissions/sort/H100", nil, 200},
			{"", "GET /submission_count/{board}/{gpu}", "/submission_count/sort/H100", nil, 200},
			{"", "GET /runner_queue/{gpu}", "/runner_queue/H100", nil, 200},
			{"", "GET /runner_queue/{gpu}", "/runner_queue/none", nil, 404},
			{"ann", "POST /submission/{board}/{gpu}/{mode}", "/submission/sort/H100/test", upload("a.py", "x"), 202},
			{"ann", "POST /submission/{board}/{gpu}/{mode}", "/submission/sort/H100/test", form{"text/plain", "x"}, 422},
			{"bob", "POST /api/v1/submissions/{id}/rerun", "/api/v1/submissions/1/rerun", nil, 403},
			{"ann", "POST /api/v1/submissions/{id}/rerun", "/api/v1/submissions/1/rerun", nil, 202},
			{"ann", "POST /api/v1/submissions/{id}/cancel", "/api/v1/submissions/3/cancel", nil, 204},
			{"ann", "POST /api/v1/submissions/{id}/cancel", "/api/v1/submissions/3/cancel", nil, 409},
			{"ann", "POST /api/v1/join", "/api/v1/join", map[string]string{"code": codes[0]}, 200},
			{"ann", "POST /user/join", "/user/join", map[string]string{"code": codes[0]}, 200},
			{"ann", "DELETE /api/v1/submissions/{id}", "/api/v1/submissions/3", nil, 204},
			{"admin", "GET /api/v1/admin/stats", "/api/v1/admin/stats", nil, 200},
			{"ann", "GET /api/v1/admin/stats", "/api/v1/admin/stats", nil, 403},
			{"admin", "GET /api/v1/admin/users", "/api/v1/admin/users", nil, 200},
			{"admin", "PUT /api/v1/admin/users/{user}/banned", "/api/v1/admin/users/8/banned", map[string]bool{"banned": true}, 204},
			{"admin", "PUT /api/v1/admin/users/{user}/banned", "/api/v1/admin/users/88/banned", map[string]bool{"banned": true}, 404},
			{"admin", "DELETE /api/v1/admin/users/{user}/sessions", "/api/v1/admin/users/8/sessions", nil, 204},
			{"admin", "DELETE /api/v1/admin/users/{user}/sessions", "/api/v1/admin/users/88/sessions", nil, 404},
			{"admin", "POST /api/v1/admin/submissions/{id}/verify", "/api/v1/admin/submissions/1/verify", map[string]string{"gpu": "B200"}, 204},
			{"admin", "POST /api/v1/admin/submissions/{id}/decision", "/api/v1/admin/submissions/1/decision", map[string]string{"decision": "accept"}, 409},
			{"admin", "POST /api/v1/admin/submissions/{id}/decision", "/api/v1/admin/submissions/1/decision", map[string]string{"decision": "hold"}, 400},
			{"ann", "POST /api/v1/admin/submissions/{id}/decision", "/api/v1/admin/submissions/1/decision", map[string]string{"decision": "accept"}, 403},
			{"admin", "POST /api/v1/admin/boards/{board}/rejudge", "/api/v1/admin/boards/sort/rejudge", nil, 200},
			{"admin", "POST /api/v1/admin/submissions/{id}/hacked", "/api/v1/admin/submissions/1/hacked", map[string]string{"why": "it cheats"}, 204},
			{"admin", "DELETE /api/v1/admin/submissions/{id}/hacked", "/api/v1/admin/submissions/1/hacked", nil, 204},
			{"admin", "DELETE /api/v1/admin/submissions/{id}/hacked", "/api/v1/admin/submissions/1/hacked", nil, 400},
			{"admin", "POST /api/v1/admin/boards/{board}/rejudge", "/api/v1/admin/boards/sort/rejudge", map[string]any{"all": true, "dry_run": true, "until": "2100-01-01T00:00:00Z"}, 200},
			{"admin", "POST /api/v1/admin/boards/{board}/rejudge", "/api/v1/admin/boards/sort/rejudge", map[string]any{"status": "good"}, 400},
			{"admin", "GET /api/v1/admin/boards/{board}/rejudge", "/api/v1/admin/boards/sort/rejudge", nil, 200},
			{"admin", "GET /api/v1/admin/boards/{board}/rejudge", "/api/v1/admin/boards/dark/rejudge", nil, 404},
			{"admin", "PATCH /api/v1/admin/boards/{board}", "/api/v1/admin/boards/sort", map[string]any{"limits": []map[string]any{{"gpu": "H100", "category": "test", "per_hour": 5}}, "ties": true, "reason": "as in the finals"}, 200},
			{"admin", "PATCH /api/v1/admin/boards/{board}", "/api/v1/admin/boards/sort", map[string]any{"limits": []map[string]any{{"gpu": "T4", "category": "test", "per_hour": 5}}}, 400},
			{"admin", "PATCH /api/v1/admin/boards/{board}", "/api/v1/admin/boards/sort", map[string]any{"deadline": "2020-01-01T00:00:00Z"}, 200},
			{"admin", "PATCH /api/v1/admin/boards/{board}", "/api/v1/admin/boards/sort", map[string]any{"gpus": []string{"H1000"}}, 400},
			{"admin", "PATCH /api/v1/admin/boards/{board}", "/api/v1/admin/boards/sort", map[string]any{"visibility": ""}, 400},
			{"admin", "PATCH /api/v1/admin/boards/{board}", "/api/v1/admin/boards/none", map[string]any{"ties": true}, 404},
			{"ann", "PATCH /api/v1/admin/boards/{board}", "/api/v1/admin/boards/sort", map[string]any{"ties": true}, 403},
			{"ann", "GET /api/v1/boards/{board}/changes", "/api/v1/boards/sort/changes", nil, 200},
			{"bob", "GET /api/v1/boards/{board}/changes", "/api/v1/boards/dark/changes", nil, 404},
			{"admin", "PUT /api/v1/admin/about", "/api/v1/admin/about", map[string]string{"text": "# Rules"}, 200},
			{"admin", "PUT /api/v1/admin/about", "/api/v1/admin/about", map[string]string{"text": strings.Repeat("x", 60_000)}, 400},
			{"ann", "PUT /api/v1/admin/about", "/api/v1/admin/about", map[string]string{"text": "mine"}, 403},
			{"", "GET /api/v1/about", "/api/v1/about", nil, 200},
			{"admin", "GET /api/v1/admin/accepting", "/api/v1/admin/accepting", nil, 200},
			{"admin", "PUT /api/v1/admin/accepting", "/api/v1/admin/accepting", map[string]bool{"accepting": false}, 200},
			{"admin", "POST /api/v1/admin/invites", "/api/v1/admin/invites", map[string]any{"boards": []string{"dark"}, "count": 1}, 200},
			{"admin", "GET /api/v1/admin/invites", "/api/v1/admin/invites?board=dark", nil, 200},
			{"admin", "DELETE /api/v1/admin/invites/{code}", "/api/v1/admin/invites/" + codes[1], nil, 204},
			{"admin", "GET /admin/submissions/{id}", "/admin/submissions/1", nil, 200},
			{"admin", "GET /admin/stats", "/admin/stats", nil, 200},
			{"admin", "GET /admin/leaderboards/{board}/invites", "/admin/leaderboards/dark/invites", nil, 200},
			{"admin", "GET /admin/leaderboards/{board}/rate-limits", "/admin/leaderboards/sort/rate-limits", nil, 200},
			{"admin", "POST /admin/export-hf", "/admin/export-hf", nil, 501},
		} {
			method, _, _ := strings.Cut(c.pattern, " ")
			got := r.ask(t, c.as, method, c.path, c.body)
			if got.status != c.status {
				t.Errorf("%s %s as %q: %d %s, want %d", method, c.path, c.as, got.status, got.body, c.status)
				continue
			}
			d.check(t, c.pattern, got)
			if got.header.Get("X-Request-Id") == "" {
				t.Errorf("%s %s: no X-Request-Id", method, c.path)
			}
		}
	})
}

// What one may see of a submission, and what not.
func TestSubmissionForOthers(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	r.ask(t, "ann", "POST", "/api/v1/submissions?board=sort&gpu=H100&mode=leaderboard", upload("a.py", "x = 1\n"))
	servertest.Evaluate(t, r.s, nil)
	for as, want := range map[string]struct{ code, secret, score bool }{"": {}, "bob": {}, "ann": {true, true, false}, "admin": {true, true, true}} {
		s := decode[api.Submission](t, r.ask(t, as, "GET", "/api/v1/submissions/1", nil))
		secret, score := false, false
		for _, run := range s.Runs {
			secret = secret || run.Secret
			score = score || run.Secret && run.Score != nil
		}
		if (s.Code != nil) != want.code || secret != want.secret || score != want.score || !s.Verdicts[0].Ranks {
			t.Errorf("as %q: %+v, want code %t, secret rows %t, their scores %t", as, s, want.code, want.secret, want.score)
		}
	}
}

// A browser's session changes nothing for pages of other sites.
func TestSessionsActForOurPagesOnly(t *testing.T) {
	s := servertest.SQLite(t)
	r := newRig(t, s, nil)
	token, err := s.NewSession(context.Background(), "7", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	send := func(method, path string, body form, more ...string) answer {
		req, err := http.NewRequest(method, r.URL+path, strings.NewReader(body.body))
		if err != nil {
			t.Fatal(err)
		}
		req.AddCookie(&http.Cookie{Name: "kbserve_session", Value: token})
		req.Header.Set("Content-Type", body.kind)
		for i := 0; i < len(more); i += 2 {
			req.Header.Set(more[i], more[i+1])
		}
		return r.send(t, req)
	}
	if me := decode[api.Me](t, send("GET", "/api/v1/me", form{})); me.ID != "7" || me.Name != "ann" {
		t.Errorf("me = %+v", me)
	}
	file := upload("a.py", "x = 1\n")
	for _, c := range []struct {
		name string
		got  answer
		want int
	}{
		{"a cross-site request", send("POST", "/submission/sort/H100/test", file, "Sec-Fetch-Site", "cross-site"), 403},
		{"another origin", send("POST", "/submission/sort/H100/test", file, "Origin", "https://evil.example"), 403},
		{"our own page", send("POST", "/submission/sort/H100/test", file, "Sec-Fetch-Site", "same-origin"), 202},
		{"a cross-site deletion", send("DELETE", "/api/v1/submissions/1", form{}, "Sec-Fetch-Site", "cross-site"), 403},
	} {
		if c.got.status != c.want {
			t.Errorf("%s: %d %s, want %d", c.name, c.got.status, c.got.body, c.want)
		}
	}
}

// Who asks too often is told when to come back, each on their own.
func TestRates(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), func(o *api.Options) { o.Limit = &httpx.Limiter{PerSecond: 0.001, Burst: 3} })
	for i := range 4 {
		got := r.ask(t, "ann", "GET", "/api/v1/me", nil)
		if want := []int{200, 200, 200, 429}[i]; got.status != want || want == 429 && got.header.Get("Retry-After") == "" {
			t.Errorf("request %d: %d, want %d", i, got.status, want)
		}
	}
	if got := r.ask(t, "bob", "GET", "/api/v1/me", nil); got.status != 200 {
		t.Errorf("somebody else: %d", got.status)
	}
	if got := r.ask(t, "", "GET", "/auth/init?provider=none", nil); got.status != 400 { // counts as several
		t.Errorf("a log-in: %d, want 400", got.status)
	}
	if _, err := (&popcorn.Client{URL: r.URL, CLIID: "guess"}).Leaderboards(context.Background()); err == nil || !strings.Contains(err.Error(), "429") {
		t.Errorf("a guess at a CLI id after others: %v, want 429", err)
	}
}

// teapot has one page, PUT /admin/teapot, and answers everything with 418.
type teapot struct{}

func (teapot) ServeHTTP(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }
func (teapot) Has(r *http.Request) bool                         { return r.Method == "PUT" && r.URL.Path == "/admin/teapot" }

// Programs get JSON for what no route takes, below /api/ and on Kernelbot's paths. The
// other paths are the pages'.
func TestMethods(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	pages := newRig(t, servertest.SQLite(t), func(o *api.Options) { o.Next = teapot{} })
	for _, c := range []struct {
		method, path string
		alone, pages int
		allow        string
	}{
		{"HEAD", "/api/v1/boards", 200, 200, ""},
		{"HEAD", "/api/v1/submissions/1/events", 404, 404, ""},
		{"OPTIONS", "/api/v1/boards", 204, 204, "GET, HEAD, OPTIONS"},
		{"OPTIONS", "/user/submissions/1", 204, 204, "DELETE, GET, HEAD, OPTIONS"},
		{"PATCH", "/api/v1/boards", 405, 405, "GET, HEAD"},
		{"GET", "/submission/sort/H100/test", 405, 405, "POST"},
		{"POST", "/leaderboards", 405, 405, "GET, HEAD"},
		{"POST", "/api/v1/boards", 405, 405, "GET, HEAD"},
		{"POST", "/user/not/there", 404, 404, ""},
		{"PUT", "/leaderboards", 405, 405, "GET, HEAD"},
		{"GET", "/api/v1/nothing", 404, 404, ""},
		{"GET", "/api/", 404, 404, ""},
		{"GET", "/admin/nothing", 404, 404, ""},
		{"GET", "/user/nothing/at/all", 404, 404, ""},
		{"PUT", "/admin/teapot", 404, 418, ""},
		{"GET", "/sort/H100/test", 405, 405, "POST"},
		{"GET", "/", 404, 418, ""},
		{"POST", "/s/5/cancel", 400, 418, ""},
		{"POST", "/sort/H100/test", 400, 400, ""},
		{"GET", "/boards/sort", 404, 418, ""},
		{"BREW", "/nothing", 404, 418, ""},
	} {
		if got := r.ask(t, "", c.method, c.path, nil); got.status != c.alone || got.header.Get("Allow") != c.allow || got.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %s: %d, Allow %q, want %d, %q", c.method, c.path, got.status, got.header.Get("Allow"), c.alone, c.allow)
		}
		if got := pages.ask(t, "", c.method, c.path, nil); got.status != c.pages || got.status != 418 && got.header.Get("Allow") != c.allow {
			t.Errorf("%s %s with pages: %d, Allow %q, want %d", c.method, c.path, got.status, got.header.Get("Allow"), c.pages)
		} else if (got.status == 404 || got.status == 405) && c.method != "HEAD" && !strings.HasPrefix(got.body, `{"detail":`) {
			t.Errorf("%s %s with pages: %s, want a detail", c.method, c.path, got.body)
		}
	}
	if got := r.ask(t, "", "GET", "/api/v1/openapi.json", nil); got.status != 200 || !json.Valid([]byte(got.body)) || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("the description: %d, %s", got.status, got.header.Get("Content-Type"))
	}
}

// A submission that waits for the organizers' check says so until an admin decides.
func TestAnAdminDecidesAboutASubmission(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	for i, c := range []struct{ decision, want string }{{"reject", `"status":"failed","error":"rejected by the organizers: no sockets"`}, {"accept", `"status":"pending","error":""`}} {
		out, err := r.s.Accept(t.Context(), store.Submission{Board: "sort", GPU: "H100", Mode: schema.ModeTest, UserID: "7", FileName: "a.py", Code: fmt.Append(nil, i), Time: time.Now(), Check: true})
		if err != nil {
			t.Fatal(err)
		}
		path := fmt.Sprintf("/submissions/%d", out.ID)
		if got := r.ask(t, "ann", "GET", "/api/v1"+path, nil); !strings.Contains(got.body, `"wait":{"gpu":"H100","place":0,"running":false,"check":true,`) {
			t.Errorf("while it waits: %s", got.body)
		}
		if got := r.ask(t, "admin", "POST", "/api/v1/admin"+path+"/decision", map[string]string{"decision": c.decision, "reason": "no sockets"}); got.status != 204 {
			t.Errorf("%s: %d %s", c.decision, got.status, got.body)
		}
		if got := r.ask(t, "ann", "GET", "/api/v1"+path, nil); !strings.Contains(got.body, c.want) || strings.Contains(got.body, `"check":true`) {
			t.Errorf("after %s: %s, want %s", c.decision, got.body, c.want)
		}
	}
}
