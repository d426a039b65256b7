package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema"
)

// Every kind of submission gets its verdict.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start("bootstrap", 1)
	r.start("cpu", 3)
	r.connected()
	t.Run("of", func(t *testing.T) { r.verdicts(t) })
	for _, b := range r.Engine.Builds(engine.BuildFilter{}) {
		b = r.wait(b)
		if b.State != engine.BuildPassed {
			t.Errorf("build %d is %s: a verdict of any kind is a passed build", b.Number, b.State)
		}
		if id := b.MetaData["run_id"]; b.MetaData["outcome:"+id] == "" {
			t.Errorf("build %d has no outcome in its meta-data", b.Number)
		}
		if len(b.Annotations) != 1 {
			t.Errorf("build %d has %d annotations, want one", b.Number, len(b.Annotations))
		}
	}
}

func (r *rig) verdicts(t *testing.T) {
	submit := func(name string, args []string, check func(t *testing.T, s output)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &rig{Server: r.Server, t: t, dir: r.dir}
			check(t, r.launch(append([]string{"submit", "--gpu", "CPU_BK"}, args...)...))
		})
	}
	want := func(status int, parts ...string) func(*testing.T, output) {
		return func(t *testing.T, s output) { s.want(t, status, parts...) }
	}
	of := func(file string, args ...string) []string {
		return append([]string{tiny, filepath.Join(tiny, file)}, args...)
	}
	submit("right", []string{"vectoradd_py", "right", "--mode", "test"}, want(0, "passed"))
	submit("wrong", []string{"vectoradd_py", "wrong", "--mode", "test"}, want(1, "❌"))
	submit("cheating", []string{"vectoradd_py", "cheat", "--mode", "leaderboard"}, want(1))
	submit("benchmark", of("right.py", "--mode", "benchmark"), want(0, "passed"))
	submit("crashing", of("crash.py", "--mode", "test"), want(1))
	submit("chatty", of("chatty.py", "--mode", "test"), want(0))
	submit("hanging", []string{impatientTask(t), filepath.Join(tiny, "hang.py"), "--mode", "test", "--json"}, func(t *testing.T, s output) {
		s.want(t, 1)
		result := onlyResult(t, s.stdout)
		if result.Outcome.Name != schema.OutcomeTimeout {
			t.Errorf("outcome %q, want %q", result.Outcome.Name, schema.OutcomeTimeout)
		}
	})
	submit("leaderboard", of("right.py", "--mode", "leaderboard", "--json"), func(t *testing.T, s output) {
		s.want(t, 0)
		result := onlyResult(t, s.stdout)
		var runs []string
		for _, run := range result.Runs {
			runs = append(runs, run.Name)
		}
		if got := strings.Join(runs, " "); got != "test benchmark leaderboard" {
			t.Errorf("runs %q", got)
		}
	})
}

// A submission that hangs costs little more than its limit.
func TestSlowHangingEndsInTime(t *testing.T) {
	testenv.NeedSlow(t)
	r := newRig(t)
	task := impatientTask(t)
	start := time.Now()
	r.launch("submit", task, filepath.Join(tiny, "hang.py"), "--gpu", "CPU_BK", "--mode", "test").want(t, 1)
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %s with a limit of 1 s", took)
	}
}

// noise is so many bytes that do not compress, in base64.
func noise(n int) string {
	bytes := make([]byte, n)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(bytes)
	return base64.StdEncoding.EncodeToString(bytes)
}

// A payload above one variable's size travels in chunks.
func TestLargeSubmission(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	text := "DATA = '" + noise(300_000) + "'\n\n\ndef custom_kernel(n):\n    return n + len(DATA) - 400000\n"
	file := filepath.Join(t.TempDir(), "large.py")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r.launch("submit", tiny, file, "--gpu", "CPU_BK", "--mode", "test").want(t, 0, "passed")
	if n := r.newest().Env[schema.EnvPayloadChunks]; n == "" || n == "1" {
		t.Errorf("%s = %q, want some", schema.EnvPayloadChunks, n)
	}
}

// An agent that dies in mid-job costs one retry and leaves one result.
func TestAgentDiesInMidJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	done := make(chan output, 1)
	go func() { done <- r.submit("patient.py", "--mode", "test") }()
	if err := syscall.Kill(r.awaitEvaluation().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s := <-done
	s.want(t, 0, "passed")
	if got, want := r.jobs(), "bootstrap=passed evaluate-cpu=failed evaluate-cpu=passed"; got != want {
		t.Errorf("jobs %q, want %q", got, want)
	}
	if n := r.results(); n != 1 {
		t.Errorf("%d results, want one", n)
	}
}

// awaitEvaluation waits until an evaluation has shown that it runs, and returns
// its agent. The evaluation cannot end: its result is held back.
func (r *rig) awaitEvaluation() engine.Agent {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	events := r.Engine.Subscribe()
	defer events.Close()
	held := false
	for {
		j, ok := r.evaluation()
		if ok && !held {
			r.addFault("POST /v3/jobs/" + j.ID + "/artifacts latency=10m")
			held = true
		}
		if ok && j.State == engine.JobRunning && j.LogSize > 0 {
			a, err := r.Engine.Agent(j.AgentID)
			if err != nil {
				r.t.Fatal(err)
			}
			return a
		}
		if _, err := events.Next(ctx); err != nil {
			r.t.Fatalf("waiting for the evaluation: %v", err)
		}
	}
}

// evaluation returns the evaluation's first job, once there is one.
func (r *rig) evaluation() (engine.Job, bool) {
	for _, b := range r.Engine.Builds(engine.BuildFilter{}) {
		for _, j := range b.Jobs {
			if j.StepKey == "evaluate-cpu" {
				return j, true
			}
		}
	}
	return engine.Job{}, false
}

// A failed request of the launcher costs time, but never the result. One request of
// each kind fails here: creating, polling, fetching.
func TestFaults(t *testing.T) {
	faults(t, false)
}

// Every kind of request fails in every way.
func TestSlowFaults(t *testing.T) {
	testenv.NeedSlow(t)
	faults(t, true)
}

func faults(t *testing.T, all bool) {
	t.Parallel()
	// Without its meta-data a result is fetched as an artifact.
	const apart = "POST /v3/jobs/*/data/set status=404"
	for _, tt := range []struct {
		name, rule string
		quick      bool
	}{
		{"create answers 500", "POST /v2/organizations/*/pipelines/*/builds status=500 count=1", false},
		{"create is dropped after it was made", "POST /v2/organizations/*/pipelines/*/builds drop_after count=1", true},
		{"create is cut", "POST /v2/organizations/*/pipelines/*/builds cut=40 count=1", false},
		{"create is limited", "POST /v2/organizations/*/pipelines/*/builds rate_limit=rest:1 count=1", false},
		{"polls answer 500", "GET /v2/organizations/*/pipelines/*/builds/* status=500 count=3", true},
		{"polls are cut", "GET /v2/organizations/*/pipelines/*/builds/* cut=100 count=2", false},
		{"the list of artifacts answers 502", "GET /v2/organizations/*/pipelines/*/builds/*/artifacts status=502 count=5", false},
		{"the artifact is dropped", "GET /v2/organizations/*/pipelines/*/builds/*/jobs/*/artifacts/*/download drop count=2", true},
	} {
		if !all && !tt.quick {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.addFault(tt.rule)
			if strings.HasPrefix(tt.name, "polls") { // which of the two asks is a matter of time
				r.addFault(strings.Replace(tt.rule, "/builds/*", "/builds", 1))
			}
			if strings.Contains(tt.name, "artifact") {
				r.addFault(apart)
			}
			r.submit("right.py", "--mode", "test").want(t, 0, "passed")
			if n := len(r.Engine.Builds(engine.BuildFilter{})); n != 1 {
				t.Errorf("%d builds, want one", n)
			}
			hits := r.Faults.List()[0].Hits
			if strings.HasPrefix(tt.name, "polls") {
				hits += r.Faults.List()[1].Hits
			}
			if hits == 0 {
				t.Errorf("rule %q was never met", tt.rule)
			}
		})
	}
}

// Answers to an agent's calls before and after the job are lost.
func TestAgentFaults(t *testing.T) {
	agentFaults(t, false)
}

// Every call of an agent fails.
func TestSlowAgentFaults(t *testing.T) {
	testenv.NeedSlow(t)
	agentFaults(t, true)
}

func agentFaults(t *testing.T, all bool) {
	t.Parallel()
	for _, tt := range []struct {
		name, rule string
		quick      bool
	}{
		{"start answers 500", "PUT /v3/jobs/*/start status=500 count=1", false},
		{"the answer to accept is lost", "PUT /v3/jobs/*/accept drop_after count=2", true},
		{"the answer to accept is cut", "PUT /v3/jobs/*/accept cut=100 count=1", false},
		{"accept arrives twice", "PUT /v3/jobs/*/accept duplicate", false},
		{"the answers to start are lost", "PUT /v3/jobs/*/start drop_after count=2", false},
		{"the answers to uploads are lost", "POST /v3/jobs/*/pipelines drop_after count=1", false},
		{"the answers to finish are lost", "PUT /v3/jobs/*/finish drop_after count=2", true},
		{"artifact creation answers 429", "POST /v3/jobs/*/artifacts status=429 count=1", false},
		{"log chunks answer 500", "POST /v3/jobs/*/chunks status=500 count=1", false},
	} {
		if !all && !tt.quick {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.addFault(tt.rule)
			r.submit("right.py", "--mode", "test").want(t, 0, "passed")
			if r.Faults.List()[0].Hits == 0 {
				t.Errorf("rule %q was never met", tt.rule)
			}
		})
	}
}

// A launcher whose time is up cancels the build, which frees the agent.
func TestTimeoutCancels(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.submit("hang.py", "--mode", "test", "--timeout", "1s")
	if s.status != 3 {
		t.Errorf("exit status %d, want 3\n%s%s", s.status, s.stdout, s.stderr)
	}
	if b := r.wait(r.newest()); b.State != engine.BuildCanceled {
		t.Errorf("build is %s, want canceled", b.State)
	}
}

// Rate limits as the service sets them by default do not stop one submission.
func TestRateLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *local.Options) { o.RateLimits = true })
	r.submit("right.py", "--mode", "test").want(t, 0, "passed")
}

// No payload, token or submission text appears in logs or in annotations.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	text := "CANARY = 'kb-canary-7f3a'\n\n\ndef custom_kernel(n):\n    return n\n"
	file := filepath.Join(t.TempDir(), "canary.py")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := r.launch("submit", tiny, file, "--gpu", "CPU_BK", "--mode", "test", "--json")
	s.want(t, 0)
	b := r.wait(r.newest())
	secrets := []string{"kb-canary-7f3a", b.Env[schema.EnvPayload], r.APIToken(), r.AgentToken()}
	shown, err := json.Marshal([]any{b.Annotations, b.MetaData, s.stdout, s.stderr})
	if err != nil {
		t.Fatal(err)
	}
	places := map[string][]byte{"annotations, meta-data or output": shown}
	err = filepath.WalkDir(r.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			places[path], err = os.ReadFile(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the agent takes a job's files away
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for place, data := range places {
		for i, secret := range secrets {
			if strings.Contains(string(data), secret) {
				t.Errorf("secret %d is in %s", i, place)
			}
		}
	}
	if len(places) < 3 {
		t.Errorf("only %d places were searched", len(places))
	}
}
