package agentapi

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/local/blob"
	"github.com/gpu-mode/kbgen/local/engine"
)

const regToken = "registration-secret"

// patience bounds every wait; only a hang reaches it.
const patience = 5 * time.Minute

// A clock is the engine's time. It steps on by a microsecond whenever it is
// read, so that nothing is late because the machine is busy, or goes with the
// machine's time; either way a test can let time pass.
type clock struct {
	mu     sync.Mutex
	real   bool
	offset time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real {
		return time.Now().Add(c.offset)
	}
	c.offset += time.Microsecond
	return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(c.offset)
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}

// A rig is an engine with both its origins.
type rig struct {
	t      *testing.T
	engine *engine.Engine
	clock  *clock
	api    *API
	blob   *blob.Store
	url    string // of the API, without /v3
}

// newRig has an engine whose time stands still but for [clock.pass].
func newRig(t *testing.T, opts Options) *rig {
	t.Helper()
	return newRigWith(t, engine.Options{}, &clock{}, opts)
}

func newRigWith(t *testing.T, eo engine.Options, c *clock, opts Options) *rig {
	t.Helper()
	eo.Dir, eo.Now = t.TempDir(), c.now
	e, err := engine.New(eo)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	w := &rig{t: t, engine: e, clock: c, blob: blob.New(e, []byte("0123456789abcdef"))}
	blobServer := httptest.NewServer(w.blob)
	t.Cleanup(blobServer.Close)
	w.blob.SetBase(strings.Replace(blobServer.URL, "127.0.0.1", "localhost", 1))
	opts.RegistrationToken, opts.Links = regToken, func(string) blob.Links { return w.blob.At("") }
	w.api = New(e, opts)
	server := httptest.NewServer(w.api)
	t.Cleanup(server.Close)
	t.Cleanup(w.api.Close)
	w.url = server.URL
	return w
}

// pipelines counts pipelines of all rigs, for their names.
var pipelines atomic.Int64

// build starts a build of steps.
func (w *rig) build(steps string) engine.Build {
	w.t.Helper()
	slug := fmt.Sprintf("p%d", pipelines.Add(1))
	if _, err := w.engine.CreatePipeline(engine.Pipeline{Slug: slug, Configuration: steps, SkipCheckout: true}); err != nil {
		w.t.Fatal(err)
	}
	b, err := w.engine.CreateBuild(slug, engine.NewBuild{})
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

type answer struct {
	status int
	header http.Header
	text   string
}

// get reads a member of a JSON answer, "a.b".
func (a answer) get(path string) any {
	var v any
	_ = json.Unmarshal([]byte(a.text), &v)
	for _, name := range strings.Split(path, ".") {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func (w *rig) call(token, method, path, body string, header ...string) answer {
	w.t.Helper()
	req, err := http.NewRequest(method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Token "+token)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(data)}
}

// want calls and checks status and a part of the answer.
func (w *rig) want(status int, part, token, method, path, body string, header ...string) answer {
	w.t.Helper()
	got := w.call(token, method, path, body, header...)
	if got.status != status || !strings.Contains(got.text, part) {
		w.t.Errorf("%s %s %.100s = %d %s; want %d with %q", method, path, body, got.status, got.text, status, part)
	}
	return got
}

// agent registers and connects a worker and returns its session token.
func (w *rig) agent(tags ...string) string {
	w.t.Helper()
	body, _ := json.Marshal(map[string]any{"name": "a", "meta_data": tags, "version": "3.138.0"})
	got := w.want(200, "access_token", regToken, "POST", "/v3/register", string(body))
	token, _ := got.get("access_token").(string)
	w.want(200, "", token, "POST", "/v3/connect", "")
	return token
}

// running brings a build's first job to run and returns its path and token.
func (w *rig) running(b engine.Build) (path, token, agent string) {
	w.t.Helper()
	agent = w.agent()
	id, _ := w.want(200, b.Jobs[0].ID, agent, "GET", "/v3/ping", "").get("job.id").(string)
	path = "/v3/jobs/" + id
	token, _ = w.want(200, "bkaj_", agent, "PUT", path+"/accept", "").get("token").(string)
	w.want(200, "", token, "PUT", path+"/start", `{"started_at":"2026-01-02T03:04:05.123456789Z"}`)
	return path, token, agent
}

func debugLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
