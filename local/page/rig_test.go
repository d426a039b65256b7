package page

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
)

// secret is a value of a build's env; no page may show it.
const secret = "eJzT0yMAAGTvBe8-the-payload"

// key is the pages' own.
const key = "the-key"

// patience bounds every wait; only a hang reaches it.
const patience = 5 * time.Minute

// A rig is an engine with its pages, and agents that the test plays.
type rig struct {
	t      *testing.T
	engine *engine.Engine
	pages  http.Handler
	server *httptest.Server // nil in a rig without one
	cookie string           // that [rig.get] and [rig.post] bring along
}

type blobs struct{}

func (blobs) DownloadURL(id string) string { return "http://127.0.0.1:1/artifacts/" + id + "?a=1&b=2" }

// newRig has a server for its pages.
func newRig(t *testing.T) *rig {
	t.Helper()
	w := newQuietRig(t)
	w.server = httptest.NewServer(w.pages)
	t.Cleanup(func() {
		w.server.CloseClientConnections()
		w.server.Close()
	})
	_, _, header := w.request("GET", EnterPath+"?key="+key)
	w.cookie, _, _ = strings.Cut(header.Get("Set-Cookie"), ";")
	return w
}

// newQuietRig has no server: it does no network, so that a bubble of synctest
// can hold it.
func newQuietRig(t *testing.T) *rig {
	t.Helper()
	e, err := engine.New(engine.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return &rig{t: t, engine: e, pages: New(e, Options{Blob: blobs{}, Key: key, KeyHint: "the terminal shows how", Version: "v1.2.3", Location: time.UTC})}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (w *rig) pipeline(slug, yaml string) {
	w.t.Helper()
	must[engine.Pipeline](w.t)(w.engine.CreatePipeline(engine.Pipeline{Slug: slug, Configuration: yaml, Repository: "/srv/git/kernels"}))
}

func (w *rig) create(slug string, in engine.NewBuild) engine.Build {
	w.t.Helper()
	return must[engine.Build](w.t)(w.engine.CreateBuild(slug, in))
}

func (w *rig) agent(name, queue string) engine.Agent {
	w.t.Helper()
	a, _, err := w.engine.Register(engine.AgentInfo{Name: name, Tags: []string{"queue=" + queue}, Hostname: "node-7", Version: "3.138.0"})
	if err != nil {
		w.t.Fatal(err)
	}
	w.ok(w.engine.Connect(a.ID))
	return a
}

func (w *rig) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// start lets the agent take its next job and begin it.
func (w *rig) start(a engine.Agent) engine.Job {
	w.t.Helper()
	order := must[engine.Order](w.t)(w.engine.Ping(a.ID))
	if order.Action != engine.ActionJob {
		w.t.Fatalf("Ping(%s) = %v, want a job", a.Name, order)
	}
	accepted := must[engine.Accepted](w.t)(w.engine.Accept(a.ID, order.JobID))
	w.ok(w.engine.Start(order.JobID))
	return accepted.Job
}

func (w *rig) log(j engine.Job, text string) {
	w.t.Helper()
	offset := must[engine.Job](w.t)(w.engine.Job(j.ID)).LogSize
	for data := []byte(text); len(data) > 0; {
		n := min(len(data), engine.MaxChunk)
		w.ok(w.engine.WriteLog(j.ID, offset, data[:n]))
		data, offset = data[n:], offset+int64(n)
	}
}

func (w *rig) finish(j engine.Job, status int) {
	w.t.Helper()
	w.ok(w.engine.FinishJob(j.ID, engine.Finish{ExitStatus: status}))
}

// upload announces one artifact and finishes it.
func (w *rig) upload(j engine.Job, path string, bytes int64) engine.Artifact {
	w.t.Helper()
	as := must[[]engine.Artifact](w.t)(w.engine.AddArtifacts(j.ID, []engine.NewArtifact{{Path: path, Size: bytes, SHA256: strings.Repeat("ab", 32)}}))
	w.ok(w.engine.SetArtifactState(j.ID, as[0].ID, engine.ArtifactFinished))
	return as[0]
}

// request asks for a page; headers are given as name, value, …
func (w *rig) request(method, path string, headers ...string) (int, string, http.Header) {
	w.t.Helper()
	r := must[*http.Request](w.t)(http.NewRequestWithContext(w.t.Context(), method, w.server.URL+path, nil))
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	client := *w.server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp := must[*http.Response](w.t)(client.Do(r))
	defer resp.Body.Close()
	body := must[[]byte](w.t)(io.ReadAll(resp.Body))
	return resp.StatusCode, string(body), resp.Header
}

// get returns a page that must be there.
func (w *rig) get(path string) string {
	w.t.Helper()
	status, body, _ := w.request("GET", path, "Cookie", w.cookie)
	if status != http.StatusOK {
		w.t.Fatalf("GET %s = %d, want 200:\n%s", path, status, body)
	}
	return body
}

// post presses a button as a browser does.
func (w *rig) post(path string) (int, string, http.Header) {
	w.t.Helper()
	return w.request("POST", path, "Sec-Fetch-Site", "same-origin", "Origin", w.server.URL, "Cookie", w.cookie)
}

// wants fails unless the body holds every part.
func wants(t *testing.T, what, body string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(body, part) {
			t.Errorf("%s lacks %q:\n%s", what, part, body)
		}
	}
}
