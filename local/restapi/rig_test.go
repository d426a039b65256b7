package restapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildkite/go-buildkite/v3/buildkite"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/restapi"
)

const (
	token  = "test-token"
	pipe   = "/v2/organizations/gpu-mode/pipelines/eval"
	orgURL = "/v2/organizations/gpu-mode"
)

// twoSteps has a job, a waiter and a job behind it.
const twoSteps = `
steps:
  - {command: "first", key: "first", label: "First", agents: {queue: "cpu"}, artifact_paths: ["a/*", "b"]}
  - wait
  - {command: "second", key: "second", agents: {queue: "cpu"}}
`

const oneStep = `steps: [{command: "run", key: "run", agents: {queue: "cpu"}}]`

// A clock is set by tests.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

type blobAt string

func (b blobAt) DownloadURL(id string) string { return string(b) + "/" + id }

// A rig is an engine with its API on a test server.
type rig struct {
	*testing.T
	engine *engine.Engine
	clock  *clock
	url    string
	client *buildkite.Client // with all scopes
}

func newRig(t *testing.T, configuration string, change func(*restapi.Options)) *rig {
	t.Helper()
	w := &rig{T: t, clock: &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 250e6, time.UTC)}}
	var err error
	w.engine, err = engine.New(engine.Options{Dir: t.TempDir(), Now: w.clock.Now})
	w.ok(err)
	t.Cleanup(func() { w.ok(w.engine.Close()) })
	opts := restapi.Options{
		Tokens: []restapi.Token{{Value: token, User: engine.Person{Name: "Ada", Email: "ada@example.com"}}},
		Blob:   func(string) restapi.Blob { return blobAt("http://blob.example") },
	}
	if change != nil {
		change(&opts)
	}
	server := httptest.NewServer(restapi.New(w.engine, opts))
	t.Cleanup(server.Close)
	w.url = server.URL
	w.client, err = buildkite.NewOpts(buildkite.WithBaseURL(server.URL+"/"), buildkite.WithTokenAuth(token), buildkite.WithHTTPClient(server.Client()))
	w.ok(err)
	_, err = w.engine.CreatePipeline(engine.Pipeline{Slug: "eval", Name: "Eval", Repository: "https://github.com/example/eval", Configuration: configuration})
	w.ok(err)
	return w
}

func (w *rig) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// A reply is an answer, read.
type reply struct {
	status int
	header http.Header
	body   string
}

// decode reads the reply's JSON into v.
func (r reply) decode(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.body), v); err != nil {
		t.Fatalf("answer %d %q: %v", r.status, r.body, err)
	}
}

// send makes a request with the all-powerful token; headers come in pairs and
// an empty value removes one. Redirects are not followed.
func (w *rig) send(method, path, body string, headers ...string) reply {
	w.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, w.url+path, reader)
	w.ok(err)
	req.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	w.ok(err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	w.ok(err)
	return reply{status: resp.StatusCode, header: resp.Header, body: string(data)}
}

// want sends and checks the status.
func (w *rig) want(status int, method, path, body string, headers ...string) reply {
	w.Helper()
	got := w.send(method, path, body, headers...)
	if got.status != status {
		w.Fatalf("%s %s %s = %d %s, want %d", method, path, body, got.status, got.body, status)
	}
	return got
}

// build creates a build through the engine.
func (w *rig) build(in engine.NewBuild) engine.Build {
	w.Helper()
	b, err := w.engine.CreateBuild("eval", in)
	w.ok(err)
	return b
}

// agent connects an agent to the queue cpu.
func (w *rig) agent(name string) engine.Agent {
	w.Helper()
	a, _, err := w.engine.Register(engine.AgentInfo{
		Name: name, Hostname: name + ".host", Version: "3.138.0", Tags: []string{"queue=cpu", "gpu=0"}, Priority: "1", OS: "linux", Arch: "amd64",
	})
	w.ok(err)
	w.ok(w.engine.Connect(a.ID))
	return a
}

// take lets an agent start the next job, whose id is returned.
func (w *rig) take(a engine.Agent) string {
	w.Helper()
	order, err := w.engine.Ping(a.ID)
	w.ok(err)
	if order.Action != engine.ActionJob {
		w.Fatalf("Ping(%s) = %v, want a job", a.Name, order)
	}
	_, err = w.engine.Accept(a.ID, order.JobID)
	w.ok(err)
	w.ok(w.engine.Start(order.JobID))
	return order.JobID
}

// run lets an agent run the next job to an end.
func (w *rig) run(a engine.Agent, f engine.Finish) string {
	w.Helper()
	id := w.take(a)
	w.ok(w.engine.FinishJob(id, f))
	return id
}
