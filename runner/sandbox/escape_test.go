package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/schema"
)

// What the runner was started with, a lock or a directory, reaches no program.
func TestOpenFilesAreNotInherited(t *testing.T) {
	dir := t.TempDir()
	for range 3 {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0) // not to be closed by an exec
		must(t, err)
		defer unix.Close(fd)
	}
	high, err := unix.Open(dir, unix.O_RDONLY, 0)
	must(t, err)
	must(t, unix.Dup3(high, 251, 0))
	defer unix.Close(high)
	defer unix.Close(251)
	onEach(t, func(t *testing.T, b *bench) {
		for _, ready := range []bool{false, true} {
			if ready {
				b.sandbox.Ready()
			}
			r, w, err := os.Pipe()
			must(t, err)
			out, err := os.CreateTemp(t.TempDir(), "out")
			must(t, err)
			process, err := b.sandbox.Start(Command{
				Path: "/usr/bin/python3", Args: []string{"python3", "-c", "import os; print([f for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f)])"},
				Dir: b.dirs.Work, Directories: b.dirs, Stdout: out, Stderr: out, Files: []*os.File{w}, Env: []string{"PATH=/usr/bin:/bin"},
			})
			must(t, err)
			w.Close()
			r.Close()
			_, err = process.Wait()
			must(t, err)
			if got, _ := os.ReadFile(out.Name()); string(got) != "['0', '1', '2', '3']\n" {
				t.Errorf("made ready %v: the program has %s", ready, got)
			}
			out.Close()
		}
	})
}

// An ordinary user may change the limits of every process of his.
func TestLimitsOfOthersCannotBeSet(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.refused(t, schema.GuardLimits, `
import resource
attempt("first", lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0)))
attempt("above", lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0)) or "set")
attempt("read", lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CPU))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0)) # its own it may
print("tried own", resource.getrlimit(resource.RLIMIT_CORE))
`)
	})
}

func TestProgramThatCannotStart(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		must(t, os.WriteFile(filepath.Join(b.dirs.Work, "garbage"), []byte("\x00no program"), 0o755))
		for path, want := range map[string]syscall.Errno{"./garbage": unix.ENOEXEC, "/nowhere/x": unix.ENOENT, "/etc": unix.EACCES} {
			r, w, err := os.Pipe()
			must(t, err)
			_, err = b.sandbox.Start(Command{Path: path, Args: []string{path}, Dir: b.dirs.Work, Directories: b.dirs, Files: []*os.File{w, w}})
			w.Close()
			var start *StartError
			if !errors.As(err, &start) || start.Errno != want || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v, want errno %d", path, err, want)
			}
			if heard, _ := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", r.Fd())); len(heard) > 0 {
				t.Errorf("%s: the program's descriptor 3 got %q", path, heard)
			}
			r.Close()
			if b.means == schema.MeansProcess {
				endChildren(t)
			}
		}
		b.gone(t)
	})
}

func TestReady(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.sandbox.Ready()
		if (b.sandbox.spare != nil) != (b.means != schema.MeansProcess) {
			t.Errorf("a sandbox waits: %v", b.sandbox.spare != nil)
		}
		for _, kill := range []bool{false, true} { // a sandbox that waits may be starved
			if kill && b.sandbox.spare != nil {
				b.sandbox.spare.Kill()
			}
			if out, state := b.python(t, "print('here')"); out != "here\n" || state.Exit != 0 {
				t.Errorf("after a kill %v: %q, %+v", kill, out, state)
			}
			b.sandbox.Ready()
		}
		must(t, b.sandbox.Close())
		b.gone(t)
	})
}

// A sandbox that could be had once is not replaced by a weaker one.
func TestNoWeakerSandboxLater(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		if b.means == schema.MeansProcess {
			t.Skip("there is no weaker one")
		}
		b.python(t, "")
		b.sandbox.untried = candidates()
		must(t, os.Remove(b.sandbox.root()))
		_, _, err := b.start(t, "print('weaker')")
		var weak *WeakError
		if err == nil || errors.As(err, &weak) || !strings.Contains(err.Error(), "once more") {
			t.Errorf("Start: %v, want a fault of the machine", err)
		}
	})
}

// asRunner marks a run of this test binary that is killed while a program runs.
const asRunner = "SANDBOX_TEST_AS_RUNNER"

func TestProgramDiesWithTheRunner(t *testing.T) {
	if means, mark, ok := strings.Cut(os.Getenv(asRunner), " "); ok {
		b := newBench(t, Options{}, means)
		b.sandbox.Ready()
		b.start(t, "import time; time.sleep(50) # "+mark)
		return
	}
	for _, means := range candidates() {
		t.Run(means, func(t *testing.T) {
			mark := fmt.Sprintf("mark-%d-%s", os.Getpid(), means)
			runner := exec.Command("/proc/self/exe", "-test.run=^TestProgramDiesWithTheRunner$")
			tmp, err := os.MkdirTemp("", "sandbox-test-") // where another user may go, unlike t.TempDir
			must(t, err)
			defer os.RemoveAll(tmp)
			must(t, os.Chmod(tmp, 0o755))
			runner.Env = append(os.Environ(), asRunner+"="+means+" "+mark, "TMPDIR="+tmp)
			must(t, runner.Start())
			if !eventually(func() bool { return len(marked(mark)) > 0 }) {
				runner.Process.Kill()
				runner.Wait()
				t.Skip("no program by this means")
			}
			runner.Process.Kill()
			runner.Wait()
			defer endChildren(t) // what it leaves comes to this process
			if !eventually(func() bool { return len(marked(mark)) == 0 }) {
				t.Errorf("processes %v go on", marked(mark))
				for _, pid := range marked(mark) {
					syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		})
	}
}

// marked lists the processes that have mark in an argument.
func marked(mark string) (pids []int) {
	for _, path := range glob("/proc/[0-9]*/cmdline") {
		data, _ := os.ReadFile(path)
		args := bytes.Split(data, []byte{0})
		if slices.ContainsFunc(args, func(arg []byte) bool { return bytes.HasSuffix(arg, []byte("# "+mark)) }) {
			var pid int
			fmt.Sscanf(path, "/proc/%d/", &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

func eventually(f func() bool) bool {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if f() {
			return true
		}
	}
	return false
}
