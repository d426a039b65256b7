package agentapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/local/engine"
)

func TestAgentLife(t *testing.T) {
	w := newRig(t, Options{})
	reg := w.want(200, "bkaa_", regToken, "POST", "/v3/register", `{"name":"gpu","meta_data":["queue=b200","gpu=B200"],"pid":7,"new_field":1}`)
	for name, want := range map[string]any{"name": "gpu", "ping_interval": 1.0, "heartbeat_interval": 60.0, "job_status_interval": 1.0} {
		if got := reg.get(name); got != want {
			t.Errorf("register: %s = %v, want %v", name, got, want)
		}
	}
	second := w.want(200, "", regToken, "POST", "/v3/register", `{"name":"gpu"}`)
	if second.get("name") == "gpu" {
		t.Errorf("two workers have the name gpu")
	}
	token := reg.get("access_token").(string)
	w.want(200, "", token, "POST", "/v3/connect", "")
	w.want(200, `"received_at":"`, token, "POST", "/v3/heartbeat", `{"sent_at":"x"}`)
	w.want(200, "{}", token, "GET", "/v3/ping", "")

	id := reg.get("id").(string)
	w.want(200, "", token, "POST", "/v3/pause", `{"note":"lunch"}`)
	w.want(200, `{"action":"pause","message":"lunch"}`, token, "GET", "/v3/ping", "")
	w.want(422, "already paused", token, "POST", "/v3/pause", `{}`)
	w.want(422, "timeout_in_minutes", token, "POST", "/v3/pause", `{"timeout_in_minutes":5}`)
	w.want(200, "", token, "POST", "/v3/resume", "")
	w.want(422, "not paused", token, "POST", "/v3/resume", "")
	if err := w.engine.StopAgent(id, false); err != nil {
		t.Fatal(err)
	}
	w.want(200, `"action":"disconnect"`, token, "GET", "/v3/ping", "")
	w.want(200, "", token, "POST", "/v3/stop", `{}`)
	w.want(200, "", token, "POST", "/v3/disconnect", "")
	w.want(401, "not known or no longer", token, "GET", "/v3/ping", "")

	for kind, body := range map[string]string{"registration": regToken, "session": second.get("access_token").(string)} {
		w.want(200, `"token_type":"`+kind, body, "GET", "/v3/token", "")
	}
}

func TestTokens(t *testing.T) {
	w := newRig(t, Options{})
	mine, job, agent := w.running(w.build(`steps: [{command: "true"}]`))
	foreign := w.build(`steps: [{command: "true"}]`)
	theirs, build := "/v3/jobs/"+foreign.Jobs[0].ID, "/v3/builds/"+foreign.ID
	for _, c := range []struct {
		status              int
		part, token         string
		method, path, body_ string
	}{
		{401, "has no token", "", "POST", "/v3/register", "{}"},
		{401, "not known", "wrong", "POST", "/v3/register", "{}"},
		{401, "got a session token, want the registration token", agent, "POST", "/v3/register", "{}"},
		{401, "got a job token", job, "POST", "/v3/register", "{}"},
		{401, "got the registration token, want a session token", regToken, "GET", "/v3/ping", ""},
		{401, "got a job token, want a session token", job, "GET", "/v3/ping", ""},
		{401, "got a job token", job, "PUT", mine + "/accept", ""},
		{401, "got a session token, want a job token", agent, "PUT", mine + "/finish", `{"exit_status":"0"}`},
		{401, "got a session token", agent, "POST", mine + "/data/get", `{"key":"a"}`},
		{403, "another job", job, "GET", theirs, ""},
		{403, "another job", job, "PUT", theirs + "/finish", `{"exit_status":"0"}`},
		{403, "another job", job, "POST", theirs + "/pipelines?async=true", `{}`},
		{403, "another build", job, "POST", build + "/data/get", `{"key":"a"}`},
		{403, "another build", job, "POST", build + "/cancel", ``},
		{403, "another build", job, "GET", build + "/artifacts/search?query=*", ``},
		{403, "another build", job, "POST", "/v3/steps/x/export", `{"build_id":"` + foreign.ID + `","attribute":"label"}`},
		{403, "another build", job, "PUT", "/v3/steps/x", `{"build_id":"` + foreign.ID + `","attribute":"label","value":"x"}`},
		{403, "another build", job, "POST", "/v3/steps/x/cancel", `{"build_id":"` + foreign.ID + `"}`},
		{404, "kblocal does not implement GET /v3/nothing", job, "GET", "/v3/nothing", ""},
		{404, "kblocal does not implement DELETE /v3/ping", agent, "DELETE", "/v3/ping", ""},
		{404, "there is no secret", job, "GET", mine + "/secrets?key=K", ""},
		{403, "another job", job, "GET", theirs + "/secrets?key=K", ""},
		{422, "OIDC", job, "POST", mine + "/oidc/tokens", "{}"},
		{422, "repository provider", job, "POST", mine + "/repository_access_token", "{}"},
		{422, "cache registries", job, "GET", "/v3/cache_registries/x/peek", ""},
		{400, "not the JSON", job, "PUT", mine + "/finish", "nope"},
		{413, "more than 16777216", job, "POST", mine + "/annotations", strings.Repeat(" ", maxBody+1)},
	} {
		got := w.want(c.status, c.part, c.token, c.method, c.path, c.body_)
		if got.header.Get("Content-Length") == "" || !strings.HasPrefix(got.header.Get("Content-Type"), "application/json") || got.get("message") == nil {
			t.Errorf("%s %s: header %v, body %s", c.method, c.path, got.header, got.text)
		}
	}
	if strings.Contains(w.call("s3cret-guess", "GET", "/v3/ping", "").text, "s3cret") {
		t.Error("a refusal quotes the token")
	}
	none := New(w.engine, Options{})
	rec := httptest.NewRecorder()
	req := httptest.NewRequest("POST", "/v3/register", strings.NewReader("{}"))
	req.Header.Set("Authorization", "Token ")
	none.ServeHTTP(rec, req)
	if rec.Code != 401 {
		t.Errorf("an empty registration token registers: %d", rec.Code)
	}
}

func TestJobLife(t *testing.T) {
	w := newRig(t, Options{})
	b := w.build(`steps: [{command: "true", key: one, env: {A: "1"}, timeout_in_minutes: 5}, wait, {command: "true", key: two}]`)
	agent := w.agent()
	other := w.agent()
	first, second := "/v3/jobs/"+b.Jobs[0].ID, "/v3/jobs/"+b.Jobs[2].ID
	w.want(200, b.Jobs[0].ID, agent, "GET", "/v3/ping", "")
	w.want(422, "not assigned to this agent", other, "PUT", first+"/accept", "")
	w.want(404, "No job found", agent, "PUT", "/v3/jobs/nope/accept", "")
	if got := w.want(423, "Job is waiting", other, "PUT", second+"/acquire", ""); got.header.Get("Retry-After") != "1" {
		t.Errorf("423 with Retry-After %q, want 1", got.header.Get("Retry-After"))
	}
	accepted := w.want(200, "", agent, "PUT", first+"/accept", "")
	if accepted.get("id") != b.Jobs[0].ID || accepted.get("chunks_max_size_bytes") != 102400.0 || accepted.get("step.key") != "one" {
		t.Errorf("accept: %s", accepted.text)
	}
	env, _ := accepted.get("env").(map[string]any)
	for _, name := range []string{
		"BUILDKITE_JOB_ID", "BUILDKITE_REPO", "BUILDKITE_COMMIT", "BUILDKITE_BRANCH", "BUILDKITE_AGENT_NAME",
		"BUILDKITE_ORGANIZATION_SLUG", "BUILDKITE_PIPELINE_SLUG", "BUILDKITE_PIPELINE_PROVIDER", "BUILDKITE_COMMAND", "A",
	} {
		if s, ok := env[name].(string); !ok || s == "" {
			t.Errorf("accept: env %s = %v, want text", name, env[name])
		}
	}
	token := accepted.get("token").(string)
	if again := w.want(200, "", agent, "PUT", first+"/accept", ""); again.text != accepted.text {
		t.Errorf("accept, its answer lost, and again:\n%s\nwant as before:\n%s", again.text, accepted.text)
	}
	w.want(422, "not assigned", other, "PUT", first+"/accept", "")
	w.want(200, `{"state":"accepted"}`, token, "GET", first, "")
	w.want(422, "cannot be acquired", other, "PUT", first+"/acquire", "")
	w.want(422, "want a time", token, "PUT", first+"/start", `{"started_at":"yesterday"}`)
	w.want(200, "", token, "PUT", first+"/start", `{"started_at":"2026-01-02T03:04:05Z"}`)
	began, _ := w.engine.Job(b.Jobs[0].ID)
	w.want(200, "", token, "PUT", first+"/start", `{}`)
	if again, _ := w.engine.Job(b.Jobs[0].ID); again.State != engine.JobRunning || !again.StartedAt.Equal(began.StartedAt) {
		t.Errorf("start said twice: %s since %v, want running since %v", again.State, again.StartedAt, began.StartedAt)
	}
	w.want(200, `{"state":"running"}`, token, "GET", first, "")

	w.want(200, b.Jobs[0].ID, token, "PUT", first, `{"timeout_in_minutes":"7"}`)
	if j, _ := w.engine.Job(b.Jobs[0].ID); j.Timeout != 7*time.Minute {
		t.Errorf("timeout %v, want 7m", j.Timeout)
	}
	w.want(422, "want a whole number", token, "PUT", first, `{"timeout_in_minutes":"x"}`)
	w.want(422, `"priority`, token, "PUT", first, `{"priority":"1"}`)
	w.want(422, "no attribute", token, "PUT", first, `{}`)
	w.want(204, "", token, "PUT", first+"/promise_failure", `{"exit_status":1,"reason":"x"}`)
	w.want(422, "at least 1", token, "PUT", first+"/promise_failure", `{}`)
	w.want(200, "", token, "POST", first+"/header_times", `{"header_times":{"0":"2026-01-02T03:04:05Z"}}`)

	w.want(400, "not the JSON", token, "PUT", first+"/finish", `{"exit_status":0}`)
	w.want(422, "as a string", token, "PUT", first+"/finish", `{"exit_status":"zero"}`)
	w.want(200, "", token, "PUT", first+"/finish", `{"exit_status":"0","finished_at":"2026-01-02T03:04:05Z","chunks_failed_count":2}`)
	w.want(401, "no longer", token, "PUT", first+"/finish", `{"exit_status":"0"}`)
	if j, _ := w.engine.Job(b.Jobs[0].ID); j.State != engine.JobPassed || j.ChunksLost != 2 {
		t.Errorf("job is %s with %d chunks lost", j.State, j.ChunksLost)
	}

	acquired := w.want(200, "bkaj_", other, "PUT", second+"/acquire", "")
	token = acquired.get("token").(string)
	w.want(200, "", token, "PUT", second+"/start", `{}`)
	if _, err := w.engine.CancelBuild(b.ID); err != nil {
		t.Fatal(err)
	}
	w.want(200, `{"state":"canceling"}`, token, "GET", second, "")
	w.want(200, "", token, "PUT", second+"/finish", `{"exit_status":"-1","signal":"SIGTERM","signal_reason":"cancel","ignore_agent_in_dispatches":true}`)
	if b, _ := w.engine.BuildByID(b.ID); b.State != engine.BuildCanceled || *b.Jobs[2].ExitStatus != -1 || b.Jobs[2].SignalReason != "cancel" {
		t.Errorf("build is %s, job %+v", b.State, b.Jobs[2])
	}
}

func TestStopFromAJob(t *testing.T) {
	w := newRig(t, Options{})
	path, token, agent := w.running(w.build(`steps: [{command: "true"}]`))
	w.want(200, "", token, "POST", "/v3/stop", `{"force":true}`)
	w.want(200, "canceling", token, "GET", path, "")
	w.want(200, `"action":"disconnect"`, agent, "GET", "/v3/ping", "")
}

func gzipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, s)
	_ = z.Close()
	return b.String()
}

func TestChunks(t *testing.T) {
	w := newRig(t, Options{})
	b := w.build(`steps: [{command: "true"}]`)
	path, token, _ := w.running(b)
	zip := []string{"Content-Encoding", "gzip"}
	w.want(200, "", token, "POST", path+"/chunks?sequence=2&offset=6&size=5", gzipped("world"), zip...)
	w.want(200, "", token, "POST", path+"/chunks?sequence=1&offset=0&size=6", gzipped("hello "), zip...)
	w.want(200, "", token, "POST", path+"/chunks?sequence=3&offset=11&size=1", "!")
	for _, c := range []struct{ query, body, want string }{
		{"offset=0&size=4", gzipped("hello"), "has 5 bytes, its size says 4"},
		{"offset=0&size=6", gzipped("hello"), "has 5 bytes, its size says 6"},
		{"offset=0&size=5", "hello", "not gzip"},
		{"offset=0&size=102401", gzipped("x"), "want 0 to 102400"},
		{"offset=0&size=5", gzipped(strings.Repeat("x", 10<<20)), "its size says 5"}, // not inflated whole
		{"offset=x&size=5", "", "offset: got"},
		{"size=5", "", "offset: got"},
		{"offset=0", "", "size: got"},
	} {
		w.want(400, c.want, token, "POST", path+"/chunks?sequence=1&"+c.query, c.body, zip...)
	}
	w.want(422, "outside", token, "POST", path+"/chunks?sequence=1&offset=-5&size=5", gzipped("hello"), zip...)
	w.want(400, "want gzip", token, "POST", path+"/chunks?offset=0&size=1", "x", "Content-Encoding", "br")
	log, err := w.engine.Log(b.Jobs[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if got, _ := io.ReadAll(log); string(got) != "hello world!" {
		t.Errorf("log %q", got)
	}
}

func TestPipelineUpload(t *testing.T) {
	w := newRig(t, Options{})
	b := w.build(`steps: [{command: "true", key: first}]`)
	path, token, _ := w.running(b)
	up := path + "/pipelines?async=true"
	good := `{"uuid":"u1","pipeline":{"steps":[{"command":"echo","key":"k"}]}}`
	w.want(200, "{}", token, "POST", up, good)
	w.want(200, "{}", token, "POST", up, good)
	if b, _ := w.engine.BuildByID(b.ID); len(b.Jobs) != 2 {
		t.Errorf("%d jobs after the same upload twice, want 2", len(b.Jobs))
	}
	w.want(200, `{"state":"applied"}`, token, "GET", path+"/pipelines/u1", "")
	w.want(422, `has had no upload`, token, "GET", path+"/pipelines/u9", "")
	for _, c := range []struct{ body, want string }{
		{`{"uuid":"u2","pipeline":{"steps":[{"command":"echo","key":"k"}]}}`, `The key \"k\" has already been used`},
		{`{"uuid":"u3","pipeline":{"steps":[{"command":"x","comand":"y"}]}}`, "comand"},
		{`{"uuid":"u4","pipeline":{"steps":[{"trigger":"nowhere"}]}}`, "which is not there"},
		{`{"uuid":"u5"}`, "pipeline is missing"},
		{`{"pipeline":{"steps":[]}}`, "uuid is missing"},
		{`{"uuid":"u6","pipeline":{"steps":[{"command":"x"}]},"extra":1}`, "unknown field"},
		{`{"uuid":"u7","pipeline":{"steps":[{"command":"x"}]}} {}`, "more than one"},
		{`steps: []`, "pipeline upload"},
		{`{"uuid":"u8","pipeline":{"steps":[{"command":"x","if":"build.brnch == 1"}]}}`, "did you mean build.branch"},
	} {
		w.want(422, c.want, token, "POST", up, c.body)
	}
	got := w.want(200, `"state":"rejected"`, token, "GET", path+"/pipelines/u2", "")
	if message, _ := got.get("message").(string); !strings.Contains(message, "already been used") {
		t.Errorf("status of a refused upload: %s", got.text)
	}
}

func TestMetaData(t *testing.T) {
	w := newRig(t, Options{})
	b := w.build(`steps: [{command: "true"}]`)
	path, token, _ := w.running(b)
	build := "/v3/builds/" + b.ID
	w.want(200, "[]", token, "POST", path+"/data/keys", "")
	w.want(200, "", token, "POST", path+"/data/set", `{"key":"a","value":"1"}`)
	w.want(200, "", token, "POST", path+"/data/set-batch", `{"items":[{"key":"b","value":"2"},{"key":"c","value":"3"}]}`)
	for _, prefix := range []string{path, build} {
		w.want(200, `{"key":"b","value":"2"}`, token, "POST", prefix+"/data/get", `{"key":"b"}`)
		w.want(404, "No key", token, "POST", prefix+"/data/get", `{"key":"z"}`)
		w.want(200, `{"exists":true}`, token, "POST", prefix+"/data/exists", `{"key":"c"}`)
		w.want(200, `{"exists":false}`, token, "POST", prefix+"/data/exists", `{"key":"z"}`)
		w.want(200, `["a","b","c"]`, token, "POST", prefix+"/data/keys", "")
		w.want(422, "key: got none", token, "POST", prefix+"/data/get", `{}`)
	}
	w.want(422, "must not be empty", token, "POST", path+"/data/set", `{"key":"a","value":" "}`)
	w.want(422, "items: got none", token, "POST", path+"/data/set-batch", `{}`)
}

func TestAnnotations(t *testing.T) {
	w := newRig(t, Options{})
	b := w.build(`steps: [{command: "true"}]`)
	path, token, _ := w.running(b)
	w.want(200, "", token, "POST", path+"/annotations", `{"body":"one","context":"my ctx.x","style":"info","scope":"build"}`)
	w.want(200, "", token, "POST", path+"/annotations", `{"body":" two","context":"my ctx.x","append":true}`)
	w.want(200, "", token, "POST", path+"/annotations", `{"context":"my ctx.x","style":"error"}`)
	w.want(422, "style", token, "POST", path+"/annotations", `{"body":"x","style":"loud"}`)
	w.want(422, "scope", token, "POST", path+"/annotations", `{"body":"x","scope":"job"}`)
	got, _ := w.engine.BuildByID(b.ID)
	if len(got.Annotations) != 1 || got.Annotations[0].Body != "one two" || got.Annotations[0].Style != "error" {
		t.Errorf("annotations %+v", got.Annotations)
	}
	w.want(200, "", token, "DELETE", path+"/annotations/my%20ctx%2Ex?scope=build", "")
	w.want(404, "No annotation", token, "DELETE", path+"/annotations/my%20ctx%2Ex", "")
}

func TestSteps(t *testing.T) {
	w := newRig(t, Options{})
	b := w.build(`steps: [{command: "true", key: one, label: ":one:", priority: 3, agents: {queue: default}}, {command: "x", key: two}]`)
	_, token, _ := w.running(b)
	get := func(attribute, format string) string {
		return fmt.Sprintf(`{"attribute":%q,"build_id":%q,"format":%q}`, attribute, b.ID, format)
	}
	w.want(200, `{"output":":one:"}`, token, "POST", "/v3/steps/one/export", get("label", ""))
	w.want(200, `{"output":"\":one:\""}`, token, "POST", "/v3/steps/one/export", get("label", "json"))
	w.want(200, `{"output":"3"}`, token, "POST", "/v3/steps/"+b.Jobs[0].StepID+"/export", get("priority", "json"))
	w.want(200, `{"output":"[\"queue=default\"]"}`, token, "POST", "/v3/steps/one/export", get("agents", "json"))
	w.want(200, `{"output":"running"}`, token, "POST", "/v3/steps/one/export", get("state", ""))
	w.want(200, `{"output":"neutral"}`, token, "POST", "/v3/steps/one/export", get("outcome", ""))
	whole := w.want(200, "", token, "POST", "/v3/steps/one/export", get("", "json"))
	var step map[string]any
	text, _ := whole.get("output").(string)
	if err := json.Unmarshal([]byte(text), &step); err != nil || step["key"] != "one" || step["priority"] != 3.0 || step["type"] != "command" {
		t.Errorf("whole step: %s", whole.text)
	}
	w.want(422, "--format json", token, "POST", "/v3/steps/one/export", get("", ""))
	w.want(422, "want json", token, "POST", "/v3/steps/one/export", get("label", "xml"))
	w.want(422, "not supported", token, "POST", "/v3/steps/one/export", get("colour", ""))
	w.want(404, "No step", token, "POST", "/v3/steps/three/export", get("label", ""))

	update := `{"idempotency_uuid":"i1","attribute":"label","value":"!","append":true}`
	w.want(200, "", token, "PUT", "/v3/steps/one", update)
	w.want(200, "", token, "PUT", "/v3/steps/one", update)
	w.want(200, `{"output":":one:!"}`, token, "POST", "/v3/steps/one/export", get("label", ""))
	w.want(422, "cannot be updated", token, "PUT", "/v3/steps/one", `{"attribute":"command","value":"x"}`)

	w.want(422, "--force", token, "POST", "/v3/steps/two/cancel", `{"force":true}`)
	w.want(200, b.Jobs[1].StepID, token, "POST", "/v3/steps/two/cancel", `{"build_id":"`+b.ID+`","force":false}`)
	if j, _ := w.engine.Job(b.Jobs[1].ID); j.State != engine.JobCanceled {
		t.Errorf("job of the canceled step is %s", j.State)
	}
	w.want(200, `{"uuid":"`+b.ID+`"}`, token, "POST", "/v3/builds/"+b.ID+"/cancel", "")
	w.want(422, "already", token, "POST", "/v3/builds/"+b.ID+"/cancel", "")
}

// TestNothingSecretIsLogged runs a job's life with a log at its chattiest.
func TestNothingSecretIsLogged(t *testing.T) {
	var out testenv.Log
	w := newRig(t, Options{Logger: debugLogger(&out)})
	path, token, agent := w.running(w.build(`steps: [{command: "true", env: {PRIVATE: hunter2}}]`))
	w.want(200, "", token, "PUT", path+"/finish", `{"exit_status":"0"}`)
	for _, secret := range []string{regToken, token, agent, "hunter2"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
	if !strings.Contains(out.String(), "/v3/ping") {
		t.Errorf("the log misses the calls: %s", out.String())
	}
}

func TestTokensOfALostAgentDie(t *testing.T) {
	w := newRig(t, Options{})
	_, token, agent := w.running(w.build(`steps: [{command: "true"}]`))
	if err := w.engine.LoseAgent(w.engine.Agents()[0].ID); err != nil {
		t.Fatal(err)
	}
	w.want(401, "no longer", token, "GET", "/v3/jobs/x", "")
	w.want(401, "no longer", agent, "POST", "/v3/heartbeat", "{}")
}
