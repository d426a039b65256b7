package runner

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/runner/capture"
	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/runner/sandbox"
)

// runPython runs main.py with that text; through harness.py or plainly.
func runPython(t *testing.T, text string, harness bool) (*judge.Process, *plan.Command) {
	t.Helper()
	environ := []string{"PATH=" + testenv.PythonPath(t)}
	sb, dirs := isolated(t, environ)
	if err := os.WriteFile(filepath.Join(dirs.Work, "main.py"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	seed := int64(4711)
	c := &plan.Command{
		Argv: []string{"python3", "main.py", "test", "cases"}, Dir: dirs.Work, Environ: append(environ, "POPCORN_FD=3"),
		Limit: 5 * time.Minute, Seed: &seed, Report: true, Harness: harness,
	}
	done, err := runCommand(context.Background(), sb, dirs, c, sandbox.EndDescendants)
	if err != nil {
		t.Fatal(err)
	}
	return done, c
}

// What a harness may look at is the same in both, and so is how it ends.
func TestHarnessRunsAsPythonWouldRunIt(t *testing.T) {
	runsAsPython(t, "to the end", "exit with text", "exception")
}

func TestSlowHarnessRunsAsPythonWouldRunIt(t *testing.T) {
	testenv.NeedSlow(t)
	runsAsPython(t)
}

// runsAsPython tries the ends named, or all.
func runsAsPython(t *testing.T, names ...string) {
	const look = `
import multiprocessing, os, sys
def double(n):
    return 2 * n
if __name__ == "__main__":
    print(sys.argv, __name__, os.path.basename(__file__), os.path.isabs(__file__), __spec__, sorted(globals()))
    print(os.path.dirname(os.path.abspath(__file__)) == sys.path[0], len(sys.path), sys.path.count(""), os.getenv("POPCORN_SEED"))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(double, (21,)))
    os.fdopen(int(os.environ["POPCORN_FD"]), "w").write("check: pass\n")
`
	for name, end := range map[string]string{
		"to the end": "", "exit": "    sys.exit(112)\n", "exit with text": "    sys.exit('so')\n",
		"exception": "    raise KeyError('x')\n", "syntax": "    )\n", "interrupt": "    raise KeyboardInterrupt\n",
		"at exit": "    import atexit; atexit.register(print, 'left'); 1 / 0\n",
	} {
		if names != nil && !slices.Contains(names, name) {
			continue
		}
		want, plain := runPython(t, look+end, false)
		got, c := runPython(t, look+end, true)
		dirs := regexp.MustCompile(`/[^ "']*/main\.py`)
		same := func(e *judge.Process) string {
			return e.Stdout.Text() + "|" + dirs.ReplaceAllString(e.Stderr.Text(), "main.py") + "|" + e.Report.Decoded()
		}
		if same(got) != same(want) || c.Text() != plain.Text() || strings.Contains(c.Text(), "prctl") {
			t.Errorf("%s: got\n%s\nwant\n%s", name, same(got), same(want))
		}
		// An interrupted Python ends by a signal; nobody interrupts a harness.
		if got.ExitCode != want.ExitCode && name != "interrupt" {
			t.Errorf("%s: exit code %d, want %d", name, got.ExitCode, want.ExitCode)
		}
	}
}

func TestHarnessIsClosedToItsOwnUser(t *testing.T) {
	done, _ := runPython(t, `
import ctypes, os
try:
    shown = open("/proc/self/environ", "rb").read()
except PermissionError:
    shown = b""  # closed even to itself where the submission is not the runner's user
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), b"4711" in shown, os.environ["POPCORN_SEED"])
try:
    open("/proc/self/fd/" + os.environ["POPCORN_FD"], "wb")
except OSError as err:
    print(err.strerror)
`, true)
	if got, want := done.Stdout.Text(), "0 False 4711\nNo such device or address\n"; got != want {
		t.Errorf("dumpable, seed in /proc, seed, opening the report anew: got %q, want %q\n%s", got, want, done.Stderr.Text())
	}
}

// A child that shuts its end, or sends descriptors along, changes nothing.
func TestOddUseOfTheChannel(t *testing.T) {
	done, _ := runPython(t, `
import os, socket
s = socket.socket(fileno=int(os.environ["POPCORN_FD"]))
print(s.recv(10))
for _ in range(3):
    socket.send_fds(s, [b"check: pass\n"], [1, 2])
s.shutdown(socket.SHUT_RDWR)
`, true)
	if got := done.Report.Decoded(); got != strings.Repeat("check: pass\n", 3) || done.Stdout.Text() != "b''\n" {
		t.Errorf("report %q, stdout %q, %s", got, done.Stdout.Text(), done.Stderr.Text())
	}
}

// What was written before the harness ended is read; what is written after is
// not.
func TestTheReportEndsWithItsHarness(t *testing.T) {
	r, w, err := reportChannel(&plan.Command{})
	if err != nil {
		t.Fatal(err)
	}
	var pipes capture.Pipes
	defer pipes.Close()
	pipes.Open(func() (*os.File, *os.File, error) { return r, w, nil }, io.Discard)
	if _, err := w.WriteString("before\n"); err != nil {
		t.Fatal(err)
	}
	pipes.HangUp()
	if _, err := w.WriteString("after\n"); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("writing after the end: %v, want EPIPE", err)
	}
	if got, err := io.ReadAll(r); string(got) != "before\n" || err != nil {
		t.Errorf("read %q, %v, want what was written before", got, err)
	}
}
