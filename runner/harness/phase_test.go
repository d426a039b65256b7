package harness

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
)

func TestLostWorkerEndsTheRun(t *testing.T) {
	p := addPayload(right, ints("n", 4, "seed", 1), ints("n", 5, "seed", 2), ints("n", 6, "seed", 3))
	s := mustOpen(t, "", p)
	for _, mode := range []string{schema.ModeTest, schema.ModeBenchmark, schema.ModeLeaderboard} {
		r := phase(t, s, mode, "import os\n\ndef custom_kernel(data):\n    os._exit(0)\n", p)
		kind := strings.Replace(mode, schema.ModeLeaderboard, schema.ModeBenchmark, 1)
		r.want(t, schema.OutcomeExited, kind+" 0: ")
		want := []schema.NotRun{{Case: kind + ".1", Why: kind + " 0 ended the run"}, {Case: kind + ".2", Why: kind + " 0 ended the run"}}
		if diff := cmp.Diff(want, r.Explanation.NotRun); diff != "" {
			t.Errorf("%s: not run (-want +got):\n%s", mode, diff)
		}
		for _, key := range r.keys {
			if strings.Contains(key, ".1.") || strings.Contains(key, ".2.") || key == "check" {
				t.Errorf("%s: the report has %q: %q", mode, key, r.report[key])
			}
		}
	}
}

func TestSubmissionThatCannotBeImported(t *testing.T) {
	p := addPayload(right, ints("n", 4, "seed", 1))
	s := mustOpen(t, "", p)
	for text, want := range map[string]string{
		"import nothing_of_the_kind\n":                  schema.OutcomeMissingModule,
		"import reference\n":                            schema.OutcomeMissingModule,
		"def kernel(data): pass\n":                      schema.OutcomeException,
		"custom_kernel = 3\n":                           schema.OutcomeException,
		"def custom_kernel(:\n":                         schema.OutcomeSyntaxError,
		"x = 1 / 0\n":                                   schema.OutcomeException,
		"import os\nos._exit(0)\n":                      schema.OutcomeExited,
		"import sys\nsys.exit(0)\n":                     schema.OutcomeExited,
		"import ctypes\nctypes.string_at(0)\n":          schema.OutcomeKilled,
		"raise KeyboardInterrupt\n":                     schema.OutcomeExited,
		"def f(): f()\nf()\n":                           schema.OutcomeException,
		"raise type('X', (Exception,), {'__str__': 1})": schema.OutcomeException,
	} {
		r := phase(t, s, schema.ModeTest, text, p)
		if r.outcome != want || !strings.HasPrefix(r.text, "importing submission.py: ") {
			t.Errorf("%q: got %s: %q, want %s", text, r.outcome, r.text, want)
		}
		if got := r.Explanation.NotRun; len(got) != 1 || got[0] != (schema.NotRun{Case: "test.0", Why: "submission.py could not be imported"}) {
			t.Errorf("%q: not run: %+v", text, got)
		}
	}
}

// What is written before an exception ends the run is what the task's own tester
// would have written. Source: the published eval.py files, where they import the
// submission and what they warm up with.
func TestSlowReportsOfRunsThatEnd(t *testing.T) {
	testenv.NeedSlow(t)
	cases := []schema.Case{ints("n", 4, "seed", 1), ints("n", 5, "seed", 2)}
	const raises, second = "def custom_kernel(data):\n    1 / 0\n", right + "\nright = custom_kernel\n\ndef custom_kernel(data):\n    return right(data) if len(data[0]) == 4 else 1 / 0\n"
	for variant, want := range map[string][]string{ // import fails, in test mode; first case raises; second does, in leaderboard mode
		"":        {"", "benchmark-count benchmark.0.spec", "benchmark-count", "benchmark-count"},
		"pmpp_v2": {"test-count test.0.spec", "", "", "benchmark-count"},
		"pmpp":    {"", "", "", ""},
		"qr":      {"test-count test.0.spec", "", "", ""},
	} {
		p := addPayload(right, cases...)
		p.BenchmarkTimeout, p.RankedTimeout = schema.Seconds(40), schema.Seconds(40)
		s := mustOpen(t, variant, p)
		s.rules.leaderboard.wall, s.rules.leaderboard.err = 2*time.Second, 0.05
		for i, run := range []struct{ mode, text string }{
			{schema.ModeTest, "import nothing_of_the_kind\n"}, {schema.ModeBenchmark, raises}, {schema.ModeLeaderboard, raises}, {schema.ModeLeaderboard, second},
		} {
			r := timed(t, s, run.mode, run.text, p)
			if r.outcome == schema.OutcomeAmbiguous {
				t.Logf("the machine is too busy to measure: %s", r.text)
				continue
			}
			if i == 0 {
				r.want(t, schema.OutcomeMissingModule, "nothing_of_the_kind")
			} else {
				r.want(t, schema.OutcomeException, "ZeroDivisionError")
			}
			var got []string
			for _, key := range r.keys {
				if !strings.HasPrefix(key, "benchmark.0.") || key == "benchmark.0.spec" && len(r.keys) == 2 { // the first one's figures
					got = append(got, key)
				}
			}
			if strings.Join(got, " ") != want[i] {
				t.Errorf("%q, %s: keys %q, want %q", variant, run.mode, r.keys, want[i])
			}
		}
	}
}

// What a submission must not find: a way to the judge, or anything of it. It
// raises on success.
const lookAround = `
import ctypes, os, subprocess, sys
from array import array

found = [name for name in os.environ if name.startswith(("POPCORN_", "KERNELBOT_", "BUILDKITE_"))]
found += [name for name in ("reference", "numpy_of_the_judge") if name in sys.modules]
for root in (".", os.path.expanduser("~"), os.environ["TMPDIR"]):
    for folder, _, names in os.walk(root):
        found += [os.path.join(folder, name) for name in names if name not in ("submission.py", "task.py", "utils.py")]


def custom_kernel(data):
    for pid in [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]:
        for name in ("environ", "mem", "maps", "fd/3", "fd/4", "cwd/reference.py", "root/etc/passwd"):
            try:
                open(f"/proc/{pid}/{name}", "rb").close()
                found.append(f"{name} of process {pid}")
            except OSError:
                pass
        if subprocess.run(["cat", f"/proc/{pid}/environ"], capture_output=True).stdout:
            found.append("environ through exec")
        if ctypes.CDLL(None).ptrace(16, int(pid), 0, 0) == 0:
            found.append(f"ptrace of process {pid}")
        with open(f"/proc/{pid}/cmdline", "rb") as line:
            if b"generate_input" in line.read():
                found.append("the judge's command line")
    own = [fd for fd in range(3, 256) if os.path.exists(f"/proc/self/fd/{fd}")]
    kinds = sorted(os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fd in own)
    if kinds != ["/memfd"] * 3 + ["socket"]:  # a page and two arenas that it shares with kbrun and the judge, and the channel
        found.append(f"descriptors {kinds}")
    if found:
        raise RuntimeError(f"found {found}")
    a, b = data
    return array("f", map(float.__add__, a, b))
`

func TestWorkerCannotLookIntoTheJudge(t *testing.T) {
	p := addPayload(right, ints("n", 4, "seed", 1))
	s := mustOpen(t, "", p)
	needGuards(t, s, schema.GuardProcesses)
	phase(t, s, schema.ModeTest, lookAround, p).want(t, schema.OutcomePassed, "")
}

// Files of the task do not stand in for Python's own modules, neither in the
// judge nor where workers come from, and what a submission leaves beside itself
// is gone in the next phase.
func TestFolderCannotShadowModules(t *testing.T) {
	p := addPayload(right, ints("n", 4, "seed", 1))
	for _, name := range []string{"random", "array", "struct", "subprocess", "json", "socket", "traceback"} {
		p.Sources = append(p.Sources, schema.File{Name: name + ".py", Text: "raise SystemExit('shadowed')\n"})
	}
	s := mustOpen(t, "", p)
	needGuards(t, s, schema.GuardProcesses) // with namespaces, it has a /tmp of its own
	leaves := `
import os

for place in (".", os.path.expanduser("~"), os.environ["TMPDIR"], "/tmp", "/dev/shm"):
    for name in ("random", "array", "submission", "task", "left"):
        if name == "left" and os.path.exists(f"{place}/left.py"):
            raise RuntimeError(f"{place} has what an earlier phase left")
        with open(f"{place}/{name}.py", "w") as file:
            file.write("raise SystemExit('shadowed')\n")
` + right
	for _, text := range []string{right, leaves, right, leaves} {
		phase(t, s, schema.ModeTest, text, p).want(t, schema.OutcomePassed, "")
	}
}

// What a kernel prints is there, though the worker is killed in the end.
func TestPrintsAreNotLost(t *testing.T) {
	p := addPayload(right, ints("n", 4, "seed", 1))
	s := mustOpen(t, "", p)
	text := "print('imported')\n" + right + "\nright = custom_kernel\n\ndef custom_kernel(data):\n    print('called with', len(data[0]), end='')\n    return right(data)\n"
	r := phase(t, s, schema.ModeTest, strings.Replace(text, ", end=''", "", 1), p)
	r.want(t, schema.OutcomePassed, "")
	if got, want := r.Process.Stdout.Text(), "imported\ncalled with 4\ncalled with 4\n"; got != want {
		t.Errorf("got stdout %q, want %q", got, want)
	}
	r = phase(t, s, schema.ModeTest, text+"\ndef custom_kernel(data):\n    print('about to', 1 / 0)\n", p)
	r.want(t, schema.OutcomeException, "ZeroDivisionError")
	if got, want := r.Explanation.Printed, "imported"; got != want {
		t.Errorf("got printed %q, want %q", got, want)
	}
}

// With a secret seed only case numbers are told, whatever is printed, raised,
// returned or said by the check.
func TestNothingTellsTheSecret(t *testing.T) {
	seed := int64(5)
	p := addPayload(right, ints("n", 4, "seed", 1))
	p.Seed = &seed
	s := mustOpen(t, "", p)
	for _, test := range []struct{ body, outcome string }{
		{"raise ValueError(f'told {data[0][0]}')", schema.OutcomeException},
		{"raise type(f'told_{int(1e6 * abs(data[0][0]))}', (ValueError,), {})('told')", schema.OutcomeException},
		{"return f'told {data[0][0]}'", schema.OutcomeWrong},
		{"return {f'told {data[0][0]}': 1}", schema.OutcomeWrong},
		{"return data[0]", schema.OutcomeWrong},
		{"return [object()]", schema.OutcomeWrong},
		{"os._exit(77)", schema.OutcomeExited},
		{"os.kill(os.getpid(), 9)", schema.OutcomeKilled},
	} {
		r := phase(t, s, schema.ModeTest, "import os, sys\n\ndef custom_kernel(data):\n    print('told', data[0][0], flush=True)\n"+
			"    print('told', data[1][0], file=sys.stderr, flush=True)\n    "+test.body+"\n", p)
		r.want(t, test.outcome, "")
		var told strings.Builder
		told.Write(r.Process.Report.Head)
		told.WriteString(r.text + r.Process.Stdout.Text() + r.Process.Stderr.Text() + r.Load.Stdout.Text() + r.Load.Stderr.Text())
		if x := r.Explanation; x != nil {
			told.WriteString(x.Error + x.Source + x.Printed + x.Expected + x.Got + strings.Join(x.Traceback, " "))
		}
		for _, word := range []string{"told", "element", "0."} {
			if strings.Contains(strings.ReplaceAll(told.String(), "test.0.", ""), word) {
				t.Errorf("%s: %q is told: %q", test.body, word, told.String())
			}
		}
		if status := r.Process.ExitCode; status == 77 || status == -9 || strings.Contains(r.text, "77") || strings.Contains(r.text, "signal 9") {
			t.Errorf("%s: exit status %d and %q tell how it ended", test.body, status, r.text)
		}
		if got := r.report["test.0.error"]; test.outcome == schema.OutcomeWrong && got != "wrong" {
			t.Errorf("%s: got error %q, want %q", test.body, got, "wrong")
		}
	}
}

// A task whose own files do not work is told by file and line, before anything
// of the submission runs.
func TestTaskThatDoesNotWork(t *testing.T) {
	for _, test := range []struct{ name, reference, want string }{
		{"no file loads", "import nothing_of_the_kind\n", "reference.py:1: ModuleNotFoundError: No module named 'nothing_of_the_kind'"},
		{"syntax", "def generate_input(:\n", "SyntaxError"},
		{"no check", "def generate_input(n, seed): pass\n", "reference.py defines no check_implementation"},
		{"generate raises", addReference + "\ndef generate_input(n, seed):\n    raise ValueError('no input')\n", "ValueError: no input"},
		{"other names", addReference + "\ndef generate_input(size): pass\n", "unexpected keyword argument 'n'"},
	} {
		p := addPayload(right, ints("n", 4, "seed", 1))
		p.Sources[1].Text = test.reference
		_, err := open(t, "", p)
		var broken *TaskError
		if !errors.As(err, &broken) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want a TaskError with %q", test.name, err, test.want)
		}
	}
	p := addPayload(right, ints("n", 4, "seed", 1))
	p.Sources[1].Text = addReference + "\ndef generate_input(n, seed):\n    return [object()]\n"
	_, err := open(t, "", p)
	var cannot *UnsupportedError
	if !errors.As(err, &cannot) || !strings.Contains(err.Error(), "[0]: object") {
		t.Errorf("got %v, want an UnsupportedError that names the type", err)
	}
}

// A check that refuses the task's own answer is the task's fault, and not that of
// an answer which it cannot digest.
func TestCheckThatDoesNotWork(t *testing.T) {
	p := addPayload(right, ints("n", 4, "seed", 1))
	raises := strings.Replace(addReference, "    a, b = data\n    if", "    raise ValueError('broken')\n    if", 1)
	p.Sources[1].Text = raises + "\ndef ref_kernel(data):\n    return data[0]\n"
	s := mustOpen(t, "", p)
	s.o.Payload = p
	planned := planOf(p, s)
	_, err := s.Phase(context.Background(), &planned)
	var broken *TaskError
	if !errors.As(err, &broken) {
		t.Errorf("got %v, want a TaskError", err)
	}
}
