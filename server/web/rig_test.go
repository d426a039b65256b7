package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/server/api"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/httpx"
	"github.com/gpu-mode/kbgen/server/identity"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/database"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// patience is how long a test waits for what has to come.
const patience = 2 * time.Minute

// Ids of the users that the tests are.
const (
	alice = "101"
	bob   = "102"
	boss  = "199" // an admin
)

// A rig is a competition with its pages on a loopback address.
type rig struct {
	t       testing.TB
	store   *store.Store
	backend *backend.Backend
	queue   *lineQueue
	server  *httptest.Server
	log     *testenv.Log
	cookies map[string]string // of users, by id
	client  *http.Client
}

// A lineQueue answers from the store alone.
type lineQueue struct {
	store *store.Store
	gpus  []string
	off   map[string]string
	none  map[string]bool // GPU types without a machine
	log   string
	fail  error
}

func (q *lineQueue) Wake()                     {}
func (q *lineQueue) Drop([]store.PlannedRun)   {}
func (q *lineQueue) typical() time.Duration    { return 73 * time.Second }
func (q *lineQueue) known(gpu string) bool     { return gpu != "MI300" }
func (q *lineQueue) queueName(s string) string { return strings.ToLower(s) }

func (q *lineQueue) agents(gpu string) int {
	if q.none[gpu] {
		return 0
	}
	return len(gpu) % 3
}

func (q *lineQueue) Status(ctx context.Context) ([]backend.GPUStatus, error) {
	if q.fail != nil {
		return nil, q.fail
	}
	line, err := q.store.Line(ctx)
	if err != nil {
		return nil, err
	}
	var out []backend.GPUStatus
	for _, gpu := range q.gpus {
		g := backend.GPUStatus{GPU: gpu, Queue: q.queueName(gpu), Off: q.off[gpu], Known: q.known(gpu), Agents: q.agents(gpu), Typical: q.typical()}
		var waiting []backend.QueuedRun
		for _, run := range line {
			if run.GPU != gpu {
				continue
			}
			polled, err := q.store.Poll(ctx, run.Submission)
			if err != nil {
				return nil, err
			}
			one := backend.QueuedRun{Submission: run.Submission, UserID: polled.UserID, Board: run.Board, Mode: run.Mode, Secret: run.Secret, Since: polled.Time, Running: run.State == store.StateRunning}
			if one.Running {
				g.Running, g.Busy = g.Running+1, min(g.Busy+1, g.Agents)
				g.Runs = append(g.Runs, one)
			} else {
				g.Waiting++
				waiting = append(waiting, one)
			}
		}
		g.Runs = append(g.Runs, waiting...)
		out = append(out, g)
	}
	return out, nil
}

func (q *lineQueue) Wait(ctx context.Context, id int64) (backend.Wait, bool, error) {
	line, err := q.store.Line(ctx)
	ahead := map[string]int{}
	for _, run := range line {
		if run.Submission == id {
			running := run.State == store.StateRunning
			w := backend.Wait{GPU: run.GPU, Place: ahead[run.GPU], Running: running}
			if !running {
				w.Expected = time.Duration(w.Place+1) * q.typical()
			}
			return w, true, err
		}
		ahead[run.GPU]++
	}
	return backend.Wait{}, false, err
}

func (q *lineQueue) Log(context.Context, store.PlannedRun) (string, error) { return q.log, nil }

// newRig has an empty competition; boss is its admin.
func newRig(t testing.TB) *rig {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kb.db")
	if _, _, err := database.Migrate(t.Context(), "sqlite:"+file); err != nil {
		t.Fatal(err)
	}
	return rigOn(t, file)
}

// rigOn has the competition of a database.
func rigOn(t testing.TB, file string) *rig {
	t.Helper()
	ctx := context.Background()
	s, err := store.Open(ctx, "sqlite:"+file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	r := &rig{t: t, store: s, log: &testenv.Log{}, cookies: map[string]string{}}
	r.queue = &lineQueue{store: s, gpus: []string{"A100", "B200", "H100", "MI300"}, off: map[string]string{}, none: map[string]bool{}}
	r.backend = backend.New(backend.Options{Store: s, Queue: r.queue})
	run, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	heard := make(chan struct{})
	var once sync.Once
	go func() {
		defer close(done)
		r.backend.Run(run, func(store.Signal) { once.Do(func() { close(heard) }) })
	}()
	t.Cleanup(func() { stop(); <-done })
	for listens := false; !listens; { // what is sent before somebody listens is lost
		if err := s.Signal(ctx, store.Signal{Kind: store.SignalHint}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-heard:
			listens = true
		case <-time.After(time.Millisecond):
		}
	}

	r.server = httptest.NewUnstartedServer(nil)
	public := "http://" + r.server.Listener.Addr().String()
	log := slog.New(slog.NewTextHandler(r.log, nil))
	who, err := identity.New(identity.Options{Store: s, Signing: bytes.Repeat([]byte{7}, 32), PublicURL: public, Admins: []string{boss}, Enclose: Enclose("Kernel Games"), Log: log,
		Providers: []identity.Provider{{Name: "github", ClientID: "id", ClientSecret: "canary-client-secret"}, {Name: "discord", ClientID: "id", ClientSecret: "canary-client-secret"}}})
	if err != nil {
		t.Fatal(err)
	}
	pages := New(Options{Backend: r.backend, Identity: who, PublicURL: public, Name: "Kernel Games", Log: log, Streams: &httpx.Quota{Each: 5_000}})
	r.server.Config.Handler = httpx.Wrap(api.New(api.Options{Backend: r.backend, Identity: who, Log: log, Next: pages}), httpx.Options{Log: log}) // as in package server
	r.server.Start()
	t.Cleanup(func() { r.server.CloseClientConnections(); r.server.Close() })
	r.client = &http.Client{Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return r
}

// login makes a user who is logged in.
func (r *rig) login(id, name string) {
	r.t.Helper()
	u, err := r.store.LogIn(context.Background(), "github", id, name)
	if err != nil {
		r.t.Fatal(err)
	}
	token, err := r.store.NewSession(context.Background(), u.ID, time.Now().Add(time.Hour))
	if err != nil {
		r.t.Fatal(err)
	}
	r.cookies[id] = token
}

// A reply is an answer that has been read.
type reply struct {
	*http.Response
	body string
}

// do sends a request as a user, "" being nobody.
func (r *rig) do(as, method, path string, body io.Reader, header http.Header) reply {
	r.t.Helper()
	in, err := http.NewRequest(method, r.server.URL+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	for k, v := range header {
		in.Header[k] = v
	}
	if as != "" {
		in.AddCookie(&http.Cookie{Name: "kbserve_session", Value: r.cookies[as]})
	}
	out, err := r.client.Do(in)
	if err != nil {
		r.t.Fatal(err)
	}
	defer out.Body.Close()
	content, err := io.ReadAll(out.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return reply{out, string(content)}
}

// get loads a page, which has to be there.
func (r *rig) get(as, path string) string {
	r.t.Helper()
	a := r.do(as, http.MethodGet, path, nil, nil)
	if a.StatusCode != http.StatusOK {
		r.t.Fatalf("GET %s as %q: %d\n%.600s", path, as, a.StatusCode, a.body)
	}
	return a.body
}

// post sends a form of the page at from.
func (r *rig) post(as, from, path string, form url.Values) reply {
	r.t.Helper()
	if form == nil {
		form = url.Values{}
	}
	if !strings.Contains(r.get(as, from), "<form ") {
		r.t.Fatalf("%s has no form for %q", from, as)
	}
	return r.do(as, http.MethodPost, path, strings.NewReader(form.Encode()), http.Header{"Content-Type": {"application/x-www-form-urlencoded"}})
}

// upload sends a board's form with a file.
func (r *rig) upload(as, board, fileName, code string, fields map[string]string) reply {
	r.t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for k, v := range fields {
		if err := w.WriteField(k, v); err != nil {
			r.t.Fatal(err)
		}
	}
	part, err := w.CreateFormFile("file", fileName)
	if err != nil {
		r.t.Fatal(err)
	}
	_, _ = part.Write([]byte(code)) // into memory
	w.Close()
	return r.do(as, http.MethodPost, "/b/"+board, &body, http.Header{"Content-Type": {w.FormDataContentType()}})
}

func (r *rig) save(boards ...store.Board) {
	r.t.Helper()
	if _, err := r.store.SaveBoards(context.Background(), boards, store.SaveOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

const description = "Multiply two matrices of half-precision numbers.\n\n## Shapes\n\nThe inputs are `A` of *m* × *k* and `B` of *k* × *n*:\n\n" +
	"```python\ndef custom_kernel(data):\n    a, b = data\n    return a @ b\n```\n\n| m | n | k |\n|---|---|---|\n| 1024 | 1024 | 1024 |\n| 8192 | 8192 | 4096 |\n\n- correct to 1e-2\n- [the reference](https://example.org/reference)\n"

func board(name string, gpus ...string) store.Board {
	return store.Board{
		Name: name, Deadline: time.Now().Add(9*24*time.Hour + 5*time.Hour), Description: description, GPUs: gpus, Policy: &ranking.Policy{}, Visibility: store.Public, ShowCode: store.CodeAfter,
		Task: &task.Task{
			Lang: schema.LangPython, Config: task.Config{Main: "eval.py"}, RankingBy: schema.RankGeom, Description: description,
			Files:      []task.File{{Name: "submission.py", Submission: true}, {Name: "eval.py", Text: "print(1)\n"}},
			Tests:      []schema.Case{{{Name: "n", Value: schema.IntValue(3)}}},
			Benchmarks: []schema.Case{{{Name: "n", Value: schema.IntValue(9)}}},
			Templates:  []task.Template{{Language: "Python", Text: "def custom_kernel(data):\n    pass\n"}, {Language: "CUDA", Text: "// begin here\n"}},
		},
	}
}

// accept hands something in without the pages.
func (r *rig) accept(in store.Submission) int64 {
	r.t.Helper()
	if in.Mode == "" {
		in.Mode = schema.ModeLeaderboard
	}
	if in.FileName == "" {
		in.FileName = "submission.py"
	}
	if in.Time.IsZero() {
		in.Time = time.Now()
	}
	if in.Code == nil {
		in.Code = fmt.Appendf(nil, "#!POPCORN leaderboard %s\nimport torch\n\n\ndef custom_kernel(data):\n    a, b = data\n    return a @ b  # by %s at %d\n", in.Board, in.UserID, in.Time.UnixNano())
	}
	out, err := r.store.Accept(context.Background(), in)
	if err != nil {
		r.t.Fatal(err)
	}
	return out.ID
}

// evaluate gives results to all planned runs there are.
func (r *rig) evaluate(of func(store.PlannedRun) *schema.Result) {
	r.t.Helper()
	ctx := context.Background()
	for {
		claimed, err := r.store.Claim(ctx, "test", 10, nil, time.Minute)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(claimed) == 0 {
			return
		}
		for _, p := range claimed {
			r.begin(p)
			result := of(p)
			result.RunID = p.RunID
			raw, err := result.Encode()
			if err == nil {
				err = r.store.Record(ctx, p, result, raw)
			}
			if err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

func (r *rig) begin(p store.PlannedRun) {
	r.t.Helper()
	ctx := context.Background()
	if err := errors.Join(r.store.Creating(ctx, p), r.store.Built(ctx, p, 7, "build")); err != nil {
		r.t.Fatal(err)
	}
}

// backendViewer is a user as the backend knows them.
func (r *rig) backendViewer(id string) backend.Viewer {
	return backend.Viewer{ID: id, Admin: id == boss}
}
