package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
)

// marked lists the processes whose environment names dir: agents, and what
// they started.
func marked(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Skip("no /proc to look for processes in")
	}
	var out []string
	for _, e := range entries {
		if !e.IsDir() || e.Name()[0] < '0' || e.Name()[0] > '9' || e.Name() == fmt.Sprint(os.Getpid()) {
			continue
		}
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if bytes.Contains(env, []byte(dir)) {
			cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
			out = append(out, e.Name()+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return out
}

// gone waits until no marked process is left. They are not this process's
// children, so it looks again and again.
func gone(t *testing.T, dir string) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if left = marked(t, dir); len(left) == 0 {
			return
		}
	}
	t.Errorf("left running: %q", left)
}

// An up is a running `kblocal up`.
type up struct {
	t    *testing.T
	cmd  *exec.Cmd
	dir  string
	vars map[string]string
	log  *testenv.Log
	done chan struct{}
}

// startUp starts `kblocal up` and reads what it says to export.
func startUp(t *testing.T, args ...string) *up {
	t.Helper()
	u := &up{t: t, dir: t.TempDir(), vars: map[string]string{}, log: &testenv.Log{}, done: make(chan struct{})}
	u.cmd = exec.Command(filepath.Join(bin, "kblocal"), append([]string{"up", "--dir", u.dir}, args...)...)
	u.cmd.Env = append(os.Environ(), "KBLOCAL_AGENT="+agent, "KBGEN_E2E_MARK="+u.dir)
	u.cmd.Stderr = u.log
	stdout, err := u.cmd.StdoutPipe()
	if err == nil {
		err = u.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = u.cmd.Process.Kill() // gone already, in most tests
		<-u.done
	})
	lines := bufio.NewScanner(stdout)
	for len(u.vars) < 4 && lines.Scan() {
		name, value, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "export "), "=")
		u.vars[name] = value
	}
	go func() {
		_, _ = io.Copy(io.Discard, stdout)
		_ = u.cmd.Wait()
		close(u.done)
	}()
	if len(u.vars) < 4 {
		<-u.done
		t.Fatalf("kblocal up ended early:\n%s", u.log)
	}
	return u
}

func (u *up) env() []string {
	var out []string
	for name, value := range u.vars {
		out = append(out, name+"="+value)
	}
	return out
}

func (u *up) request(method, path, body string) (int, string) {
	u.t.Helper()
	req, err := http.NewRequest(method, u.vars["KBLAUNCH_API_URL"]+path, strings.NewReader(body))
	if err != nil {
		u.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+u.vars["BUILDKITE_API_TOKEN"])
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		u.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		u.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestUpServesUntilInterrupted(t *testing.T) {
	t.Parallel()
	u := startUp(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s := command(t, ctx, u.env(), "", filepath.Join(bin, "kblaunch"), "submit", tiny, filepath.Join(tiny, "right.py"), "--gpu", "CPU_BK")
	s.want(t, 0, "passed")
	if status, page := u.request("GET", "", ""); status != 200 || !strings.Contains(page, "kernelbot") {
		t.Errorf("the page answers %d:\n%.500s", status, page)
	}
	if status, text := u.request("POST", "kblocal/faults", `{"rule": "GET /v2/meta status=503 count=1"}`); status >= 300 {
		t.Errorf("adding a fault answers %d %s", status, text)
	}
	if status, _ := u.request("GET", "v2/meta", ""); status != 503 {
		t.Errorf("the ordered fault answers %d, want 503", status)
	}
	if err := u.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-u.done
	if status := u.cmd.ProcessState.ExitCode(); status != 0 {
		t.Errorf("exit status %d after SIGTERM\n%s", status, u.log)
	}
	gone(t, u.dir)
	if strings.Contains(u.log.String(), u.vars["BUILDKITE_API_TOKEN"]) {
		t.Error("the token is in the log")
	}
}

// Whoever kills kblocal need not look for agents afterwards. A launcher that is
// left alone says so when it is interrupted.
func TestAgentsDieWithKblocal(t *testing.T) {
	t.Parallel()
	u := startUp(t)
	launcher := u.launchHanging()
	if err := u.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone(t, u.dir)
	if err := launcher.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	u.wantTrouble(launcher)
}

// A launcher whose stand-in is dead gives up when its time is over.
func TestSlowLauncherGivesUp(t *testing.T) {
	testenv.NeedSlow(t)
	u := startUp(t)
	launcher := u.launchHanging("--timeout", "5s", "--queue-timeout", "10s")
	if err := u.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	u.wantTrouble(launcher)
}

// launchHanging starts kblaunch with a submission that hangs, and waits until
// the evaluation runs.
func (u *up) launchHanging(args ...string) *exec.Cmd {
	u.t.Helper()
	cmd := exec.Command(filepath.Join(bin, "kblaunch"), append([]string{"submit", tiny, filepath.Join(tiny, "hang.py"), "--gpu", "CPU_BK"}, args...)...)
	cmd.Env = append(os.Environ(), u.env()...)
	cmd.Stderr = &bytes.Buffer{}
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); !u.evaluating(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			u.t.Fatalf("the evaluation did not start\n%s", cmd.Stderr)
		}
	}
	return cmd
}

// evaluating reports whether the API shows a running evaluation.
func (u *up) evaluating() bool {
	u.t.Helper()
	var builds []struct {
		Jobs []struct {
			StepKey string `json:"step_key"`
			State   string
		}
	}
	_, text := u.request("GET", "v2/organizations/gpu-mode/pipelines/kernelbot/builds", "")
	if err := json.Unmarshal([]byte(text), &builds); err != nil {
		u.t.Fatalf("%v in:\n%s", err, text)
	}
	for _, b := range builds {
		for _, j := range b.Jobs {
			if j.StepKey == "evaluate-cpu" && j.State == "running" {
				return true
			}
		}
	}
	return false
}

// wantTrouble waits for kblaunch to end without a verdict.
func (u *up) wantTrouble(cmd *exec.Cmd) {
	u.t.Helper()
	_ = cmd.Wait() // its status is looked at
	if status := cmd.ProcessState.ExitCode(); status != 3 {
		u.t.Errorf("kblaunch ended with %d, want 3: the stand-in is dead\n%s", status, cmd.Stderr)
	}
}

// An agent declared lost costs one retry, on another agent.
func TestLoseAgentOnDemand(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start("cpu", 1)
	r.connected()
	done := make(chan output, 1)
	go func() { done <- r.submit("patient.py", "--mode", "test") }()
	a := r.awaitEvaluation()
	req, err := http.NewRequest("POST", r.URL()+"/kblocal/agents/"+a.Name+"/lose", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %v, %v", resp, err)
	}
	req.Header.Set("Authorization", "Bearer "+r.APIToken())
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode != http.StatusNoContent {
		t.Fatalf("losing an agent: %v, %v", resp, err)
	}
	s := <-done
	s.want(t, 0, "passed")
	if got, want := r.jobs(), "bootstrap=passed evaluate-cpu=failed evaluate-cpu=passed"; got != want {
		t.Errorf("jobs %q, want %q", got, want)
	}
}

func TestExec(t *testing.T) {
	t.Parallel()
	mark := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s := command(t, ctx, []string{"KBLOCAL_AGENT=" + agent, "KBGEN_E2E_MARK=" + mark}, "", filepath.Join(bin, "kblocal"),
		"exec", "--queue", "bootstrap=1", "--", "sh", "-c", `test -n "$BUILDKITE_API_TOKEN" && echo "$BUILDKITE_ORG/$BUILDKITE_PIPELINE"; exit 7`)
	s.want(t, 7, "gpu-mode/kernelbot\n")
	gone(t, mark)
}

func TestUpRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args   []string
		status int
		stderr string
	}{
		{[]string{"up", "--queue", "cpu"}, 2, `--queue "cpu": want NAME=N with N from 1 to 64`},
		{[]string{"up", "--fault", "GET status=500"}, 2, `fault rule`},
		{[]string{"up", "--agent", "/nonexistent"}, 2, "/nonexistent"},
		{[]string{"up", "--scopes", "read_everything"}, 1, `scope "read_everything" is not known`},
		{[]string{"up", "--pipeline", "x=/nonexistent.yml"}, 2, "--pipeline x: open /nonexistent.yml"},
		{[]string{"exec"}, 2, "missing: COMMAND ..."},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		s := command(t, ctx, []string{"KBLOCAL_AGENT=" + agent}, "", filepath.Join(bin, "kblocal"), tt.args...)
		cancel()
		if s.status != tt.status || !strings.Contains(s.stderr, tt.stderr) || s.stdout != "" {
			t.Errorf("kblocal %q = %d\nstdout %q\nstderr %q\nwant %d and %q", tt.args, s.status, s.stdout, s.stderr, tt.status, tt.stderr)
		}
	}
}
