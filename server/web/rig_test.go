package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/identity"
	"github.com/gpu-mode/kbgen/store"
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
	log     *lockedBuffer
	cookies map[string]string // of users, by id
	client  *http.Client
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A lineQueue answers from the store alone.
type lineQueue struct {
	store *store.Store
	gpus  []string
	off   map[string]string
	log   string
	fail  error
}

func (q *lineQueue) Wake()                     {}
func (q *lineQueue) Drop([]store.PlannedRun)   {}
func (q *lineQueue) typical() time.Duration    { return 73 * time.Second }
func (q *lineQueue) agents(gpu string) int     { return len(gpu) % 3 }
func (q *lineQueue) known(gpu string) bool     { return gpu != "MI300" }
func (q *lineQueue) queueName(s string) string { return strings.ToLower(s) }

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
	ctx := context.Background()
	file := "sqlite:" + filepath.Join(t.TempDir(), "kb.db")
	if _, _, err := store.Migrate(ctx, file); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(ctx, file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	r := &rig{t: t, store: s, log: &lockedBuffer{}, cookies: map[string]string{}}
	r.queue = &lineQueue{store: s, gpus: []string{"A100", "B200", "H100", "MI300"}, off: map[string]string{}}
	r.backend = backend.New(backend.Options{Store: s, Queue: r.queue, Signing: bytes.Repeat([]byte{7}, 32)})
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

	mux := http.NewServeMux()
	r.server = httptest.NewUnstartedServer(mux)
	public := "http://" + r.server.Listener.Addr().String()
	log := slog.New(slog.NewTextHandler(r.log, nil))
	who, err := identity.New(identity.Options{Store: s, Signing: bytes.Repeat([]byte{7}, 32), PublicURL: public, Admins: []string{boss}, Log: log,
		Providers: []identity.Provider{{Name: "github", ClientID: "id", ClientSecret: "canary-client-secret"}, {Name: "discord", ClientID: "id", ClientSecret: "canary-client-secret"}}})
	if err != nil {
		t.Fatal(err)
	}
	who.Register(mux)
	mux.Handle("/", New(Options{Backend: r.backend, Identity: who, PublicURL: public, Name: "Kernel Games", Log: log}))
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

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// token is what a form on a page carries.
func (r *rig) token(as, path string) string {
	r.t.Helper()
	m := csrfField.FindStringSubmatch(r.get(as, path))
	if m == nil {
		r.t.Fatalf("%s has no form for %q", path, as)
	}
	return m[1]
}

// post sends a form of the page at from.
func (r *rig) post(as, from, path string, form url.Values) reply {
	r.t.Helper()
	if form == nil {
		form = url.Values{}
	}
	form.Set("csrf", r.token(as, from))
	return r.do(as, http.MethodPost, path, strings.NewReader(form.Encode()), http.Header{"Content-Type": {"application/x-www-form-urlencoded"}})
}

// upload sends a board's form with a file.
func (r *rig) upload(as, board, token, fileName, code string, fields map[string]string) reply {
	r.t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	fields["csrf"] = token
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
		Name: name, Deadline: time.Now().Add(9*24*time.Hour + 5*time.Hour), Description: description, GPUs: gpus, Policy: &store.Policy{}, Visibility: store.Public, ShowCode: store.CodeAfter,
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

// result is what kbrun says of a right submission; ns is about the mean of its
// benchmarks.
func result(gpu string, ns float64) *schema.Result {
	now := time.Now().UTC()
	phase := func(name string, report schema.Report) schema.Run {
		report = append(report, schema.Entry{Key: "check", Value: "pass"})
		return schema.Run{Name: name, EvalResult: schema.EvalResult{Start: now.Add(-2 * time.Second), End: now,
			Run: &schema.RunResult{Success: true, Passed: true, Command: "python3 eval.py", Duration: 1.73, Result: report}}}
	}
	tests := schema.Report{{Key: "test-count", Value: "3"}}
	for i := range 3 {
		key := fmt.Sprintf("test.%d", i)
		tests = append(tests, schema.Entry{Key: key + ".spec", Value: fmt.Sprintf("m: %d; n: 1024; k: 512; seed: %d", 64<<i, 1000+i)}, schema.Entry{Key: key + ".status", Value: "pass"})
	}
	r := &schema.Result{Success: true, Outcome: schema.NewOutcome(schema.OutcomePassed, ""),
		System: schema.SystemInfo{GPU: "NVIDIA " + gpu, DeviceCount: 1, CPU: "AMD EPYC 9654 96-Core Processor", Runtime: "CUDA", Torch: "2.9.1+cu130", Platform: "Linux", Hostname: "canary-host"}}
	timed := schema.Report{{Key: "benchmark-count", Value: "3"}}
	for i := range 3 {
		mean := ns * math.Pow(1.8, float64(i-1))
		key := fmt.Sprintf("benchmark.%d", i)
		timed = append(timed, schema.Entry{Key: key + ".spec", Value: fmt.Sprintf("m: %d; n: %d; k: 4096; seed: %d", 1024<<i, 1024<<i, 77+i)},
			schema.Entry{Key: key + ".runs", Value: "60"}, schema.Entry{Key: key + ".mean", Value: schema.FloatRepr(mean)}, schema.Entry{Key: key + ".std", Value: schema.FloatRepr(mean / 90)},
			schema.Entry{Key: key + ".err", Value: schema.FloatRepr(mean / 700)}, schema.Entry{Key: key + ".best", Value: schema.FloatRepr(mean * .98)}, schema.Entry{Key: key + ".worst", Value: schema.FloatRepr(mean * 1.07)})
		m := schema.Measurement{Case: i, Floor: 812, Resolution: 32, Interval: [2]float64{mean * .997, mean * 1.003}}
		for j := range 60 {
			wave := 1 + .008*math.Sin(float64(j)*1.7) + .006*math.Cos(float64(j*j))
			if j%23 == 11 {
				wave += .05
			}
			m.Samples = append(m.Samples, mean*wave)
		}
		for _, name := range []string{schema.ModeBenchmark, schema.ModeLeaderboard} {
			m.Phase = name
			r.Measurements = append(r.Measurements, m)
		}
	}
	r.Runs = schema.Runs{phase(schema.ModeTest, tests), phase(schema.ModeBenchmark, slices.Clone(timed)), phase(schema.ModeLeaderboard, slices.Clone(timed))}
	r.GPUType = gpu
	r.Harness = &schema.HarnessReport{Name: schema.HarnessIsolated, Variant: "pmpp_v2"}
	r.Sandbox = &schema.Sandbox{Level: schema.SandboxFull, Means: schema.MeansNamespaces, Held: []string{schema.GuardEnvironment, schema.GuardSecrets, schema.GuardNetwork, schema.GuardFiles},
		Missing: []schema.MissingGuard{{Name: schema.GuardUser, Why: "the container has one user"}}}
	r.Device = &schema.DeviceReport{Source: "nvml", Vendor: "nvidia", Driver: "580.95.05", Runtime: "13.0",
		Sampling: []schema.Sampling{{Phase: schema.ModeLeaderboard, Samples: 40, ClockSM: schema.Spread{Min: 1755, Mean: 1900, Max: 1965}, PowerW: schema.Spread{Min: 200, Mean: 500, Max: 641}, Temperature: schema.Spread{Min: 41, Mean: 50, Max: 58}}}}
	r.Versions = &schema.Versions{Runner: "v0.9.0", Python: "3.12.3", Image: "ghcr.io/example/runner@sha256:0123"}
	r.Timing = &schema.Timing{Total: 14.2}
	return r
}

// wrong is what kbrun says of a submission that fails a test.
func wrong(gpu string) *schema.Result {
	r := result(gpu, 1000)
	test := &r.Runs[0]
	test.Run.Passed = false
	test.Run.Result = schema.Report{{Key: "test-count", Value: "2"}, {Key: "test.0.spec", Value: "m: 64; n: 64"}, {Key: "test.0.status", Value: "pass"},
		{Key: "test.1.spec", Value: "m: 128; n: 64"}, {Key: "test.1.status", Value: "fail"}, {Key: "test.1.error", Value: "mismatch at [3, 17]: got 0.25, want 0.5\n12 more elements differ"}, {Key: "check", Value: "fail"}}
	r.Runs, r.Measurements = r.Runs[:1], nil
	r.Outcome = schema.NewOutcome(schema.OutcomeWrong, "")
	r.Outcome.Phase = schema.ModeTest
	r.Explanation = &schema.Explanation{File: "submission.py", Line: 6, Source: "return a @ b", Expected: "[0.5, 0.5, 0.25]", Got: "[0.25, 0.5, 0.25]", Printed: "debug: canary-printed\n"}
	r.Ambiguous = []string{"the GPU was slowed down in 3 of 40 samples: power cap"}
	return r
}

// A world is a competition in full swing.
type world struct {
	*rig
	right, wrong, waiting, running, others, test int64
	code                                         string // an invite that nobody has claimed
}

var names = []string{"alice", "bob", "Grace Hopper", "warp_divergence", "tensorcore42", "毛利", "smem_bank", "løkken", "k3rnel", "occupancy", "ada", "fp8-or-bust", "Łukasz", "mallory"}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{rig: newRig(t)}
	w.login(boss, "Boss")
	for i, n := range names {
		w.login(fmt.Sprint(101+i), n)
	}
	matmul := board("matmul", "B200", "H100", "MI300")
	matmul.Policy = &store.Policy{Harness: schema.HarnessIsolated, Sandbox: schema.SandboxPartial, ClearTiming: true, Ties: true}
	matmul.Limits = []store.Limit{{Category: schema.ModeLeaderboard, PerHour: 60}, {GPU: "B200", Category: schema.ModeTest, PerHour: 200}}
	sort := board("sort-v2", "H100", "A100")
	sort.Deadline, sort.Description = time.Now().Add(31*time.Hour), "Sort 32-bit numbers, whatever their order was."
	conv := board("conv2d", "H100")
	closed := board("secret-lab", "B200")
	closed.Visibility, closed.Deadline = store.Closed, time.Now().Add(60*24*time.Hour)
	w.save(matmul, sort, conv, closed)

	speed := map[int64]float64{}
	for round := range 5 {
		for i := range names {
			for _, at := range []struct{ board, gpu string }{{"matmul", "B200"}, {"matmul", "H100"}, {"conv2d", "H100"}} {
				if (i*7+round*3+len(at.gpu))%5 > 2-round/3 || i >= 11 && at.gpu == "B200" {
					continue
				}
				id := w.accept(store.Submission{Board: at.board, GPU: at.gpu, UserID: fmt.Sprint(101 + i), FileName: fmt.Sprintf("%s_v%d.py", at.board, round+1), NoLimits: true,
					Time: time.Now().Add(-time.Duration(11-2*round)*24*time.Hour + time.Duration(i*97)*time.Minute)})
				speed[id] = 30_000*math.Pow(.82, float64(round)) + float64(i*i%31)*510 + float64(len(at.board))*100
			}
		}
	}
	w.evaluate(func(p store.PlannedRun) *schema.Result { return result(p.GPU, speed[p.Submission]) })
	conv.Deadline = time.Now().Add(-3 * 24 * time.Hour)
	w.save(conv)

	w.right = w.accept(store.Submission{Board: "matmul", GPU: "H100", UserID: alice, FileName: "tiled.py", NoLimits: true, Time: time.Now().Add(-90 * time.Minute)})
	w.others = w.accept(store.Submission{Board: "matmul", GPU: "H100", UserID: bob, FileName: "bob_wgmma.py", NoLimits: true, Code: []byte("canary_code_of_bob = 1\n"), Time: time.Now().Add(-80 * time.Minute)})
	w.evaluate(func(p store.PlannedRun) *schema.Result { return result(p.GPU, 11_000+float64(p.Submission)) })
	w.wrong = w.accept(store.Submission{Board: "matmul", GPU: "B200", UserID: alice, FileName: "broken.py", NoLimits: true, Time: time.Now().Add(-50 * time.Minute)})
	w.evaluate(func(p store.PlannedRun) *schema.Result { return wrong(p.GPU) })
	w.test = w.accept(store.Submission{Board: "sort-v2", GPU: "H100", Mode: schema.ModeTest, UserID: alice, FileName: "radix.py", Time: time.Now().Add(-40 * time.Minute)})
	w.evaluate(func(p store.PlannedRun) *schema.Result {
		r := result(p.GPU, 10)
		r.Runs, r.Measurements = r.Runs[:1], nil
		return r
	})
	w.running = w.accept(store.Submission{Board: "matmul", GPU: "B200", UserID: bob, NoLimits: true})
	claimed, err := w.store.Claim(context.Background(), "test", 2, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range claimed {
		w.begin(p)
	}
	for i := range 4 {
		w.waiting = w.accept(store.Submission{Board: "matmul", GPU: "B200", UserID: fmt.Sprint(101 + (i+1)%4), NoLimits: true})
	}
	w.waiting = w.accept(store.Submission{Board: "matmul", GPU: "B200", UserID: alice, NoLimits: true, FileName: "persistent_tma_warp_specialised_kernel.py"})
	w.queue.off["MI300"] = "no vendor serves this queue yet"
	w.queue.log = "+++ Evaluating matmul\nok\n"
	codes, err := w.store.NewInvites(context.Background(), []string{"secret-lab"}, 2)
	if err != nil {
		t.Fatal(err)
	}
	w.code = codes[0]
	if _, err := w.store.ClaimInvite(context.Background(), codes[1], alice); err != nil {
		t.Fatal(err)
	}
	return w
}

func (r *rig) backendViewer(id string) backend.Viewer {
	return backend.Viewer{ID: id, Admin: id == boss}
}
