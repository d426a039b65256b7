package reconciler

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/localtest"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/store"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// patience bounds the waiting for what is sure to come.
const patience = time.Minute

const steps = `steps:
  - key: evaluate-h100
    command: evaluator
    agents: {queue: h100}
`

// A rig is a store with a board "sort", a stand-in for Buildkite and a reconciler
// between them, which runs once run is called.
type rig struct {
	*Reconciler
	t       *testing.T
	s       *store.Store
	standIn *local.Server
	events  chan Event
	api     *api
}

// An api stands before the stand-in and answers in its place where a test wants it.
type api struct {
	mu     sync.Mutex
	answer func(r *http.Request) (status int, body string) // 0: the stand-in answers
	first  func(r *http.Request)                           // may block
}

func (a *api) before(first func(r *http.Request)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.first = first
}

func (a *api) set(answer func(r *http.Request) (int, string)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = answer
}

func (a *api) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		first, answer := a.first, a.answer
		a.mu.Unlock()
		if first != nil {
			first(r)
		}
		status, body := 0, ""
		if answer != nil {
			status, body = answer(r)
		}
		if status == 0 {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	})
}

func newRig(t *testing.T, s *store.Store, change func(*Options)) *rig {
	t.Helper()
	return newRigOver(t, s, local.Options{}, change)
}

// newRigOver is newRig with options of the stand-in.
func newRigOver(t *testing.T, s *store.Store, over local.Options, change func(*Options)) *rig {
	t.Helper()
	over.Dir = t.TempDir()
	servertest.Save(t, s, servertest.Board("sort"))
	standIn := localtest.Start(t, over)
	if _, err := standIn.Engine.CreatePipeline(engine.Pipeline{Slug: "kernelbot", Configuration: steps, SkipCheckout: true}); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, s: s, standIn: standIn, events: make(chan Event, 10_000), api: &api{}}
	target, err := url.Parse(standIn.URL())
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(r.api.wrap(httputil.NewSingleHostReverseProxy(target)))
	t.Cleanup(front.Close)
	client, err := launcher.New(launcher.Options{BaseURL: front.URL + "/", Token: standIn.APIToken(), Org: "gpu-mode", Pipeline: "kernelbot", ListingDelay: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Store: s, Launcher: client, Fleet: pipelines.Table{{Name: "H100", Queue: "h100", Arch: "90a"}}, Owner: "test", Sweep: 50 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(logWriter{t}, nil)), Observe: func(e Event) { r.events <- e }}
	if change != nil {
		change(&o)
	}
	r.Reconciler = New(o)
	r.shortPause, r.longPause = 10*time.Millisecond, 10*time.Millisecond
	return r
}

// run works until the test or stop ends it.
func (r *rig) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { r.Run(ctx) })
	group.Go(func() {
		for signal := range r.s.Signals(ctx) {
			r.Signal(signal)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		group.Wait()
	})
	r.t.Cleanup(stop)
	return stop
}

func (r *rig) submit(user string) int64 {
	r.t.Helper()
	a, err := r.s.Accept(context.Background(), store.Submission{Board: "sort", GPU: "H100", Mode: schema.ModeTest, UserID: user, UserName: "user " + user,
		FileName: "a.py", Code: []byte("x = " + user + "\n"), Time: time.Now()})
	if err != nil {
		r.t.Fatal(err)
	}
	return a.ID
}

// await waits for an event of a kind.
func (r *rig) await(kind EventKind) {
	r.t.Helper()
	limit := time.After(patience)
	for {
		select {
		case e := <-r.events:
			if e.Kind == kind {
				return
			}
		case <-limit:
			r.t.Fatalf("no event %s", kind)
		}
	}
}

// outcome is the name of a submission's outcome.
func (r *rig) outcome(id int64) string {
	r.t.Helper()
	p, err := r.s.Poll(context.Background(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return p.Progress()
}

// job returns a submission's status and words, and whether it is done.
func (r *rig) job(id int64) (status, why string, done bool) {
	r.t.Helper()
	p, err := r.s.Poll(context.Background(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return p.Job.Status, p.Job.Error, p.Done
}

// builds are those that were made.
func (r *rig) builds() []engine.Build {
	return r.standIn.Engine.Builds(engine.BuildFilter{})
}

// machines begins to evaluate what is queued. result makes the result of a run; nil
// is one that passed.
func (r *rig) machines(n int, result func(run, gpu, queue, mode string) *schema.Result) {
	if result == nil {
		result = passed
	}
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	r.t.Cleanup(func() {
		stop()
		group.Wait()
	})
	for range n {
		group.Go(func() {
			if err := evaluator(ctx, r.standIn.Engine, result, func() {}); err != nil {
				r.t.Error(err)
			}
		})
	}
}

func passed(run, gpu, queue, mode string) *schema.Result {
	res := servertest.Result(mode, true, 1000)
	res.RunID, res.Evidence = run, schema.Evidence{GPUType: gpu, Queue: queue}
	return res
}

// evaluator is one agent that evaluates nothing. It calls ended after each job.
func evaluator(ctx context.Context, e *engine.Engine, result func(run, gpu, queue, mode string) *schema.Result, ended func()) error {
	a, _, err := e.Register(engine.AgentInfo{Name: "machine", Tags: []string{"queue=h100"}})
	if err == nil {
		err = e.Connect(a.ID)
	}
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
		}
		var order engine.Order
		if order, err = e.Ping(a.ID); err != nil || order.Action != engine.ActionJob {
			continue
		}
		var got engine.Accepted
		if got, err = e.Accept(a.ID, order.JobID); err != nil {
			continue
		}
		if err = e.Start(order.JobID); err != nil {
			continue
		}
		res := result(got.Env[schema.EnvRunID], got.Env[schema.EnvGPU], got.Env[schema.EnvQueue], got.Env[schema.EnvMode])
		if res != nil {
			raw, err := res.Encode()
			if err != nil {
				return err
			}
			value, _ := schema.InlineResult(raw, order.JobID)
			if err := e.SetMetaData(got.Job.BuildID, map[string]string{schema.MetaResult(res.RunID): value}); err != nil {
				return err
			}
		}
		err = e.FinishJob(order.JobID, engine.Finish{})
		ended()
	}
	return err
}

// logWriter shows the log of a test that fails.
type logWriter struct{ t *testing.T }

func (w logWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}
