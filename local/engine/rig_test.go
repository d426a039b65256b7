package engine

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// A rig is an engine with one pipeline, a clock that tests set, and agents
// that poll.
type rig struct {
	t *testing.T
	*Engine
	mu  sync.Mutex
	now time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	w := &rig{t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	e, err := New(Options{Dir: t.TempDir(), URL: "http://127.0.0.1:1", Now: w.clock})
	if err != nil {
		t.Fatal(err)
	}
	w.Engine = e
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *rig) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// pass moves the clock and applies deadlines.
func (w *rig) pass(d time.Duration) {
	w.mu.Lock()
	w.now = w.now.Add(d)
	w.mu.Unlock()
	w.sweep()
}

// build creates a pipeline of the steps and a build of it.
func (w *rig) build(yaml string) Build {
	w.t.Helper()
	return w.buildWith(yaml, NewBuild{Branch: "main"})
}

func (w *rig) buildWith(yaml string, in NewBuild) Build {
	w.t.Helper()
	slug := fmt.Sprintf("p%d", len(w.Pipelines()))
	if _, err := w.CreatePipeline(Pipeline{Slug: slug, Configuration: yaml}); err != nil {
		w.t.Fatalf("CreatePipeline: %v", err)
	}
	b, err := w.CreateBuild(slug, in)
	if err != nil {
		w.t.Fatalf("CreateBuild: %v", err)
	}
	return b
}

func (w *rig) get(b Build) Build {
	w.t.Helper()
	b, err := w.BuildByID(b.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// agent registers and connects an agent.
func (w *rig) agent(tags ...string) string {
	w.t.Helper()
	a, _, err := w.Register(AgentInfo{Name: "a", Tags: tags})
	if err == nil {
		err = w.Connect(a.ID)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return a.ID
}

// take polls, accepts and starts the agent's next job; "" when there is none.
func (w *rig) take(agentID string) string {
	w.t.Helper()
	order, err := w.Ping(agentID)
	if err != nil {
		w.t.Fatal(err)
	}
	if order.Action != ActionJob {
		return ""
	}
	got, err := w.Accept(agentID, order.JobID)
	if err == nil {
		err = w.Start(got.Job.ID)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return got.Job.ID
}

func (w *rig) finish(jobID string, status int) {
	w.t.Helper()
	if err := w.FinishJob(jobID, Finish{ExitStatus: status}); err != nil {
		w.t.Fatal(err)
	}
}

// run polls with agents of the given queues, one job each at a time, until
// nothing is left. status says how a job ends, by its key or label. It
// returns the names in the order they ran.
func (w *rig) run(status map[string]int, queues ...string) []string {
	w.t.Helper()
	var ran []string
	if queues == nil {
		queues = []string{"default"}
	}
	var agents []string
	for _, q := range queues {
		agents = append(agents, w.agent("queue="+q))
	}
	for busy := true; busy; {
		busy = false
		for _, a := range agents {
			id := w.take(a)
			if id == "" {
				continue
			}
			busy = true
			j, _ := w.Job(id)
			ran = append(ran, nameOf(j))
			w.finish(id, status[nameOf(j)])
		}
	}
	return ran
}

func nameOf(j Job) string {
	name := j.StepKey
	if name == "" {
		name = j.Label
	}
	if j.ParallelTotal > 0 {
		name = fmt.Sprintf("%s/%d", name, j.ParallelIndex)
	}
	return name
}

// states lists "name=state" of a build's command jobs, in step order.
func states(b Build) string {
	var out []string
	for _, j := range b.Jobs {
		if j.Type == TypeScript {
			out = append(out, nameOf(j)+"="+string(j.State))
		}
	}
	return strings.Join(out, " ")
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func wantError(t *testing.T, err error, kind Kind, part string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Kind != kind || !strings.Contains(e.Message, part) {
		t.Errorf("got error %v, want kind %d with %q", err, kind, part)
	}
}
