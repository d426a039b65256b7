package agentapi

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/local/engine"
)

// An agentProcess is one buildkite-agent, with one worker or several.
type agentProcess struct {
	cmd    *exec.Cmd
	output *testenv.Log
	exited chan struct{}
}

// startAgent starts a real agent; it ends with the test.
func (w *rig) startAgent(binary string, args ...string) *agentProcess {
	w.t.Helper()
	dir, err := os.MkdirTemp("", "kb") // short: socket paths have at most 107 bytes
	if err != nil {
		w.t.Fatal(err)
	}
	for _, name := range []string{"b", "h", "p", "s"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			w.t.Fatal(err)
		}
	}
	config := filepath.Join(dir, "agent.cfg")
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
	p := &agentProcess{output: &testenv.Log{}, exited: make(chan struct{})}
	p.cmd = exec.Command(binary, append([]string{
		"start", "--config", config, "--endpoint", w.url + "/v3", "--name", "real-%spawn", "--no-color",
		"--build-path", filepath.Join(dir, "b"), "--hooks-path", filepath.Join(dir, "h"),
		"--plugins-path", filepath.Join(dir, "p"), "--sockets-path", filepath.Join(dir, "s"),
		"--cancel-grace-period", "120",
	}, args...)...)
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "BUILDKITE_AGENT_TOKEN=" + regToken}
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	w.t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // cancel the job and leave
		select {
		case <-p.exited:
		case <-time.After(patience):
			_ = p.cmd.Process.Kill()
			<-p.exited
		}
		if w.t.Failed() {
			w.t.Logf("agent:\n%s", p.output.String())
		}
		_ = os.RemoveAll(dir)
	})
	return p
}

// waitUntil waits for what an event goes with.
func (w *rig) waitUntil(what string, done func() bool) {
	w.t.Helper()
	events := w.engine.Subscribe()
	defer events.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for !done() {
		if _, err := events.Next(ctx); err != nil {
			w.t.Fatalf("%s: %v", what, err)
		}
	}
}

// streaming waits until n workers of a queue are ready for jobs.
func (w *rig) streaming(queue string, n int) {
	w.t.Helper()
	w.waitUntil(fmt.Sprintf("%d workers on %s", n, queue), func() bool {
		count := 0
		for _, a := range w.engine.Agents() {
			if a.Queue == queue && a.State == engine.AgentConnected && a.Streaming {
				count++
			}
		}
		return count == n
	})
}

// ended waits for a build's end and checks its state.
func (w *rig) ended(b engine.Build, want engine.BuildState) engine.Build {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	got, err := w.engine.Wait(ctx, b.ID)
	if err != nil {
		got, _ = w.engine.BuildByID(b.ID)
		w.t.Errorf("waiting for the build: %v", err)
	}
	if got.State != want {
		w.t.Errorf("build is %s, want %s", got.State, want)
		for _, j := range got.Jobs {
			status := "none"
			if j.ExitStatus != nil {
				status = fmt.Sprint(*j.ExitStatus)
			}
			w.t.Logf("job %q: %s, exit status %s, log:\n%s", j.StepKey, j.State, status, w.log(j.ID))
		}
		w.t.FailNow()
	}
	return got
}

func (w *rig) log(jobID string) string {
	w.t.Helper()
	r, err := w.engine.Log(jobID)
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(data)
}

// isRunning waits until a job runs.
func (w *rig) isRunning(b engine.Build, key string) engine.Job {
	w.t.Helper()
	var job engine.Job
	w.waitUntil("job "+key+" running", func() bool {
		got, _ := w.engine.BuildByID(b.ID)
		at := slices.IndexFunc(got.Jobs, func(j engine.Job) bool { return j.StepKey == key && j.State == engine.JobRunning })
		if at >= 0 {
			job = got.Jobs[at]
		}
		return at >= 0
	})
	return job
}

// scripts writes shell scripts and returns their folder.
func scripts(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if strings.HasSuffix(name, ".sh") {
			text = "set -euxo pipefail\n" + text
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// in is the rig for a subtest.
func (w *rig) in(t *testing.T) *rig {
	inner := *w
	inner.t = t
	return &inner
}
