package e2e

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// entries lists what lies below a directory.
func entries(dir string) []string {
	var out []string
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && path != dir {
			out = append(out, strings.TrimPrefix(path, dir+"/"))
		}
		return nil // what vanishes meanwhile is no fault
	})
	return out
}

// waitFor looks until done holds, for what other processes do to files.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// Agents write the environment of every job, payload and all, into a temporary
// file. It lies in kblocal's own directory and goes with it.
func TestTemporaryFilesGo(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	env := []string{"KBLOCAL_AGENT=" + agent, "TMPDIR=" + temp, "KBGEN_E2E_MARK=" + temp}
	s := command(t, ctx, env, "", filepath.Join(bin, "kblocal"), "exec", "--",
		filepath.Join(bin, "kblaunch"), "submit", tiny, filepath.Join(tiny, "right.py"), "--gpu", "CPU_BK", "--mode", "test")
	s.want(t, 0, "passed")
	if left := entries(temp); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

// So they do with a kblocal that is killed in the middle of a job.
func TestTemporaryFilesGoWithAKilledKblocal(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	cmd := exec.Command(filepath.Join(bin, "kblocal"), "run", "-", "--here")
	cmd.Dir = t.TempDir()
	cmd.Stdin = strings.NewReader("steps: [{command: sleep 600, key: sleeper}]")
	cmd.Env = append(os.Environ(), "KBLOCAL_AGENT="+agent, "TMPDIR="+temp, "KBGEN_E2E_MARK="+temp)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the job's environment in a file", func() bool {
		return slices.ContainsFunc(entries(temp), func(path string) bool {
			return strings.HasPrefix(filepath.Base(path), "job-env-")
		})
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	gone(t, temp)
	waitFor(t, "an empty TMPDIR", func() bool { return len(entries(temp)) == 0 })
}
