package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A liveOutput is what a running command has written so far.
type liveOutput struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *liveOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *liveOutput) has(part string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Contains(o.buf.String(), part)
}

// With --watch every change of the file is a run, a broken one too, and the last
// run decides the exit status.
func TestRunWatches(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, vars := filepath.Join(dir, "steps.yml"), filepath.Join(dir, "env")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, "steps: [{command: 'echo first $$WHO', key: a}]")
	write(vars, "# who it is\nWHO=me = you\nHOME\n\nNOBODY_SET_THIS\n")
	cmd := exec.Command(filepath.Join(bin, "kblocal"), "run", file, "--here", "--watch", "--env-file", vars)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KBLOCAL_AGENT="+agent, "KBGEN_E2E_MARK="+dir)
	var out liveOutput
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }() // gone already, unless the test failed
	waitFor(t, "the first run", func() bool { return out.has("[a] first me = you\n") && out.has("watching "+file) })
	write(file, "steps: [{comand: x}]")
	waitFor(t, "the broken one", func() bool { return out.has("upload refused") && out.has("build 2 failed") })
	write(file, "steps: [{command: 'echo third; exit 3', key: b}]")
	waitFor(t, "the third run", func() bool { return out.has("[b] third") && out.has("build 3 failed") })
	waitFor(t, "the wait for a change", func() bool {
		out.mu.Lock()
		defer out.mu.Unlock()
		return strings.Count(out.buf.String(), "watching "+file) == 3
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its status is looked at
	if status := cmd.ProcessState.ExitCode(); status != 1 {
		t.Errorf("exit status %d, want that of the last run, 1\n%s", status, &out.buf)
	}
	gone(t, dir)
}

func TestEnvFileRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "env")
	for text, want := range map[string]string{"A=1\n=secret\n": file + ":2: want NAME=VALUE or NAME", "a b=secret\n": file + ":1: want"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := runPipeline(t, "steps: [{command: x}]", "-", "--env-file", file)
		if s.status != 1 || !strings.Contains(s.stderr, want) || strings.Contains(s.stderr, "secret") {
			t.Errorf("%q: status %d, %s; want 1 and %q", text, s.status, s.stderr, want)
		}
	}
	s := runPipeline(t, "steps: [{command: x}]", "-", "--env-file", file+".none")
	if s.status != 2 || !strings.Contains(s.stderr, "no such file") {
		t.Errorf("no file: status %d, %s", s.status, s.stderr)
	}
}
