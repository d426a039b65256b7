package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/local/engine"
)

// What kblaunch knows of runs that an earlier process made, on real agents.
func TestRunsAreFoundAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)

	t.Run("detached, watched, listed", func(t *testing.T) {
		s := r.submit("right.py", "--mode", "benchmark", "--detach", "--run-id", "run-1")
		s.want(t, 0, "run run-1\n", "/builds/1\n")
		r.launch("watch", "run-1").want(t, 0, "passed", "/builds/1\n")
		r.launch("result", "1").want(t, 0, "passed")
		r.launch("list", "--mine").want(t, 0, "passed", "run-1", "CPU_BK")
		r.launch("list", "--mine", "--gpu", "H100_BK").want(t, 0, "BUILD")
		r.launch("log", "run-1").want(t, 0, "Verdict: passed")
		r.launch("log", "run-1", "--all").want(t, 0, "== bootstrap", "Verdict: passed")
		s = r.launch("retry", "run-1")
		s.want(t, 3)
		if !strings.Contains(s.stderr, "no job of it failed") {
			t.Errorf("stderr: %s", s.stderr)
		}
	})

	t.Run("killed and started again", func(t *testing.T) {
		cmd := exec.Command(filepath.Join(bin, "kblaunch"), "submit", tiny, filepath.Join(tiny, "right.py"), "--gpu", "CPU_BK", "--run-id", "run-2", "--events")
		cmd.Env = append(os.Environ(), "KBLAUNCH_API_URL="+r.URL()+"/", "BUILDKITE_API_TOKEN="+r.APIToken(), "BUILDKITE_ORG=gpu-mode", "BUILDKITE_PIPELINE=kernelbot")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		events := json.NewDecoder(out)
		for made := false; !made; {
			var e struct {
				Event string
				Build int
			}
			if err := events.Decode(&e); err != nil {
				t.Fatalf("before there was a build: %v", err)
			}
			made = e.Build > 0
		}
		cmd.Process.Kill()
		cmd.Wait()
		r.submit("right.py", "--run-id", "run-2").want(t, 0, "passed", "/builds/2\n")
		if n := len(r.Engine.Builds(engine.BuildFilter{MetaData: map[string]string{"run_id": "run-2"}})); n != 1 {
			t.Errorf("%d builds of one run, want 1", n)
		}
	})

	t.Run("cancelled and tried again", func(t *testing.T) {
		r.submit("right.py", "--detach", "--run-id", "run-3").want(t, 0)
		r.launch("watch", "run-3").want(t, 0, "passed")
		r.launch("cancel", "run-3").want(t, 0, "is over already: passed")
	})

	t.Run("compared", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "old.json")
		s := r.submit("right.py", "--mode", "benchmark", "--json")
		s.want(t, 0)
		if err := os.WriteFile(file, []byte(s.stdout), 0o600); err != nil {
			t.Fatal(err)
		}
		r.launch("compare", file, "run-1").want(t, 0, "benchmark", "DELTA", "n: 3", " ± ", "(p=")
	})
}

// A wait that nobody ends is said at once.
func TestNobodyServes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.launch("submit", tiny, filepath.Join(tiny, "right.py"), "--gpu", "H100_BK", "--queue-timeout", "12s")
	s.want(t, 3)
	for _, want := range []string{"note: nobody serves queue h100 now: build 1 waits", "gave up on build 1", "it is cancelled"} {
		if !strings.Contains(s.stderr, want) {
			t.Errorf("stderr lacks %q:\n%s", want, s.stderr)
		}
	}
}
