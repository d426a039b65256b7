package e2e

import (
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema"
)

// Every kind of submission gets its verdict.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	r := newRoad(t)
	example := func(name string, args ...string) said {
		return r.launch(append([]string{"submit", "vectoradd_py", name, "--gpu", "CPU_BK"}, args...)...)
	}
	t.Run("right", func(t *testing.T) { example("right", "--mode", "test").want(t, 0, "passed") })
	t.Run("wrong", func(t *testing.T) { example("wrong", "--mode", "test").want(t, 1, "❌") })
	t.Run("cheating", func(t *testing.T) { example("cheat", "--mode", "leaderboard").want(t, 1) })
	t.Run("leaderboard", func(t *testing.T) {
		s := example("right", "--mode", "leaderboard", "--json")
		s.want(t, 0)
		result, err := schema.DecodeResult([]byte(s.stdout))
		if err != nil {
			t.Fatal(err)
		}
		var runs []string
		for _, run := range result.Runs {
			runs = append(runs, run.Name)
		}
		if got := strings.Join(runs, " "); got != "test benchmark leaderboard" {
			t.Errorf("runs %q", got)
		}
	})
	t.Run("benchmark", func(t *testing.T) { r.submit("right.py", "--mode", "benchmark").want(t, 0, "passed") })
	t.Run("crashing", func(t *testing.T) { r.submit("crash.py", "--mode", "test").want(t, 1) })
	t.Run("hanging", func(t *testing.T) {
		start := time.Now()
		r.submit("hang.py", "--mode", "test").want(t, 1)
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("took %s with a limit of 3 s", took)
		}
	})
	t.Run("chatty", func(t *testing.T) { r.submit("chatty.py", "--mode", "test").want(t, 0) })
	t.Run("no leftovers", func(t *testing.T) {
		for _, b := range r.Engine.Builds(engine.BuildFilter{}) {
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
	})
}

// A payload above one variable's size travels in chunks.
func TestLargeSubmission(t *testing.T) {
	t.Parallel()
	r := newRoad(t)
	noise := make([]byte, 300_000)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(noise)
	text := "DATA = '" + base64.StdEncoding.EncodeToString(noise) + "'\n\n\ndef custom_kernel(n):\n    return n + len(DATA) - 400000\n"
	file := filepath.Join(t.TempDir(), "large.py")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r.launch("submit", filepath.Join("testdata", "tiny"), file, "--gpu", "CPU_BK", "--mode", "test").want(t, 0, "passed")
	if n := r.Engine.Builds(engine.BuildFilter{})[0].Env["KERNELBOT_PAYLOAD_CHUNKS"]; n == "" || n == "1" {
		t.Errorf("KERNELBOT_PAYLOAD_CHUNKS = %q, want some", n)
	}
}

// An agent that dies in mid-job costs one retry and leaves one result.
func TestAgentDiesInMidJob(t *testing.T) {
	t.Parallel()
	r := newRoad(t)
	done := make(chan said, 1)
	go func() { done <- r.submit("patient.py", "--mode", "test") }()
	pid := r.awaitEvaluation()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
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

// awaitEvaluation waits until the evaluation runs, and returns the process id
// of its agent.
func (r *road) awaitEvaluation() int {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		for _, b := range r.Engine.Builds(engine.BuildFilter{}) {
			for _, j := range b.Jobs {
				if j.StepKey == "evaluate-cpu" && j.State == engine.JobRunning && j.LogSize > 0 {
					a, err := r.Engine.Agent(j.AgentID)
					if err != nil {
						r.t.Error(err)
					}
					return a.PID
				}
			}
		}
	}
	r.t.Error("the evaluation did not start within 20 s")
	return 0
}

// What the service may answer on a bad day costs time, not results.
func TestFaults(t *testing.T) {
	for _, tt := range []struct{ name, rule string }{
		{"create answers 500", "POST /v2/organizations/*/pipelines/*/builds status=500 count=1"},
		{"create is dropped after it was made", "POST /v2/organizations/*/pipelines/*/builds drop_after count=1"},
		{"create is cut", "POST /v2/organizations/*/pipelines/*/builds cut=40 count=1"},
		{"create is limited", "POST /v2/organizations/*/pipelines/*/builds rate_limit=rest:1 count=1"},
		{"polls answer 500", "GET /v2/organizations/*/pipelines/*/builds/* status=500 count=3"},
		{"polls are cut", "GET /v2/organizations/*/pipelines/*/builds/* cut=100 count=2"},
		{"the list of artifacts answers 502", "GET /v2/organizations/*/pipelines/*/builds/*/artifacts status=502 count=2"},
		{"the artifact is dropped", "GET /v2/organizations/*/pipelines/*/builds/*/jobs/*/artifacts/*/download drop count=2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRoad(t)
			r.addFault(tt.rule)
			r.submit("right.py", "--mode", "test").want(t, 0, "passed")
			if n := len(r.Engine.Builds(engine.BuildFilter{})); n != 1 {
				t.Errorf("%d builds, want one", n)
			}
			if hits := r.Faults.List()[0].Hits; hits == 0 {
				t.Errorf("rule %q was never met", tt.rule)
			}
		})
	}
}

// The agent's side of a bad day.
func TestAgentFaults(t *testing.T) {
	for _, tt := range []struct{ name, rule string }{
		{"start answers 500", "PUT /v3/jobs/*/start status=500 count=1"},
		{"artifact creation answers 429", "POST /v3/jobs/*/artifacts status=429 count=1"},
		{"log chunks answer 500", "POST /v3/jobs/*/chunks status=500 count=1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRoad(t)
			r.addFault(tt.rule)
			r.submit("right.py", "--mode", "test").want(t, 0, "passed")
			if hits := r.Faults.List()[0].Hits; hits == 0 {
				t.Errorf("rule %q was never met", tt.rule)
			}
		})
	}
}

// Interrupting the launcher cancels the build and frees the agent.
func TestTimeoutCancels(t *testing.T) {
	t.Parallel()
	r := newRoad(t)
	s := r.submit("hang.py", "--mode", "test", "--timeout", "1s")
	if s.status != 3 {
		t.Errorf("exit status %d, want 3\n%s%s", s.status, s.stdout, s.stderr)
	}
	b := r.Engine.Builds(engine.BuildFilter{})[0]
	deadline := time.Now().Add(10 * time.Second)
	for !b.State.Terminal() && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
		b = r.Engine.Builds(engine.BuildFilter{})[0]
	}
	if b.State != engine.BuildCanceled {
		t.Errorf("build is %s, want canceled", b.State)
	}
}

// Rate limits as the service sets them by default do not stop one submission.
func TestRateLimits(t *testing.T) {
	t.Parallel()
	r := newRoad(t, func(o *local.Options) { o.RateLimits = true })
	r.submit("right.py", "--mode", "test").want(t, 0, "passed")
}

// No payload, token or submission text appears in logs or in annotations.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	r := newRoad(t)
	text := "CANARY = 'kb-canary-7f3a'\n\n\ndef custom_kernel(n):\n    return n\n"
	file := filepath.Join(t.TempDir(), "canary.py")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := r.launch("submit", filepath.Join("testdata", "tiny"), file, "--gpu", "CPU_BK", "--mode", "test", "--json")
	s.want(t, 0)
	b := r.Engine.Builds(engine.BuildFilter{})[0]
	secrets := []string{"kb-canary-7f3a", b.Env["KERNELBOT_PAYLOAD"], r.APIToken(), r.AgentToken()}
	shown, err := json.Marshal([]any{b.Annotations, b.MetaData, s.stdout, s.stderr})
	if err != nil {
		t.Fatal(err)
	}
	places := map[string][]byte{"annotations, meta-data or output": shown}
	err = filepath.WalkDir(r.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			places[path], err = os.ReadFile(path)
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
