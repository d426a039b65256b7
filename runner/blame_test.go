package runner

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
)

// spawning is a tester whose submission runs in a spawned child, as most do.
const spawning = `
import multiprocessing, os, sys
from reference import ref_kernel, check

def case(spec):
    from submission import custom_kernel
    return check(spec, custom_kernel(spec))

if __name__ == "__main__":
    report = os.fdopen(int(os.environ["POPCORN_FD"]), "w", buffering=1)
    specs = open(sys.argv[2]).read().splitlines()
    print(f"test-count: {len(specs)}", file=report)
    good = True
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for i, spec in enumerate(specs):
            print(f"test.{i}.spec: {spec}", file=report)
            ok = pool.apply(case, (spec,))
            print(f"test.{i}.status: {'pass' if ok else 'fail'}", file=report)
            good = good and ok
    print(f"check: {'pass' if good else 'fail'}", file=report)
    sys.exit(0 if good else 112)
`

const goodReference = "def ref_kernel(data):\n    return len(data)\n\ndef check(data, answer):\n    return answer.real == len(data)\n"

// taskPayload is a task with a reference, and a submission.
func taskPayload(main, reference, submission string) *schema.Payload {
	p := pythonPayload("")
	p.Seed = nil
	p.Sources = schema.Files{{Name: "eval.py", Text: main}, {Name: "reference.py", Text: reference}, {Name: "submission.py", Text: submission}}
	return p
}

// evaluateSpawning evaluates with an interpreter that children find again.
func evaluateSpawning(t *testing.T, p *schema.Payload) *schema.Result {
	t.Helper()
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("no /usr/bin/python3")
	}
	return evaluateJob(t, context.Background(), Job{Payload: p, Environ: []string{"PATH=/usr/bin:/bin"}})
}

func controlled(r *schema.Result) bool {
	return slices.ContainsFunc(r.Timing.Phases, func(p schema.PhaseTiming) bool { return p.Name == "control" })
}

// The task is to blame for what does not work with its own solution, the
// submission for what does, whatever it prints, removes and kills.
func TestWhoIsToBlame(t *testing.T) {
	whoIsToBlame(t, "his exception", "his module", "he leaves", "the task's module, and his", "the task's solution", "the driver",
		"he speaks of a driver, and leaves", "he shows another's traceback", "he poisons home in the warm-up")
}

func TestSlowWhoIsToBlame(t *testing.T) {
	testenv.NeedSlow(t)
	whoIsToBlame(t)
}

// whoIsToBlame has the cases named, or all.
func whoIsToBlame(t *testing.T, names ...string) {
	const right = "def custom_kernel(data):\n    return len(data)\n"
	const says = "import os, sys, signal\nif __name__ != '__main__':\n    sys.stderr.write('RuntimeError: CUDA driver error: no CUDA-capable device is detected\\n'); sys.stderr.flush()\n"
	inline := strings.ReplaceAll(strings.ReplaceAll(spawning, "pool.apply(case, (spec,))", "case(spec)"), `multiprocessing.get_context("spawn").Pool(1) as pool`, "report")
	for _, tt := range []struct {
		name                  string
		main, reference, code string
		outcome, text         string
		control               bool
	}{
		{"honest", spawning, goodReference, right, schema.OutcomePassed, "", false},
		{"wrong", spawning, goodReference, "def custom_kernel(data):\n    return 0\n", schema.OutcomeWrong, "test.0 failed", false},
		{"his exception", spawning, goodReference, "def custom_kernel(data):\n    raise ValueError('mine')\n", schema.OutcomeException, "submission.py:2: ValueError: mine", false},
		{"his syntax", spawning, goodReference, "def custom_kernel(data:\n", schema.OutcomeSyntaxError, "submission.py:1: SyntaxError: ", false},
		{"his module", spawning, goodReference, "import no_such_module\n", schema.OutcomeMissingModule, "submission.py:1: ModuleNotFoundError: No module named 'no_such_module'", true},
		{"his answer", spawning, goodReference, "def custom_kernel(data):\n    return None\n", schema.OutcomeCrashed, "'NoneType' object has no attribute 'real'", true},
		{"he leaves", inline, goodReference, "import os\ndef custom_kernel(data):\n    os._exit(113)\n", schema.OutcomeExited, "status 113", true},
		{"the task's module", spawning, "import aiter_of_no_image\n" + goodReference, right, schema.OutcomeHarness, "test: the task does not work with its own solution either: reference.py:1: imports aiter_of_no_image, which the image does not have", true},
		{"the task's module, and his", "import submission\n" + spawning, "import aiter_of_no_image\n" + goodReference, "import aiter_of_no_image\n" + right, schema.OutcomeHarness, "reference.py:1: imports aiter_of_no_image", true},
		{"the task's harness", "import nothing_at_all\n" + spawning, goodReference, right, schema.OutcomeHarness, "eval.py:1: imports nothing_at_all", true},
		{"the task's syntax", "def main(:\n", goodReference, right, schema.OutcomeHarness, "eval.py:1: SyntaxError: ", true},
		{"the task's solution", inline, strings.Replace(goodReference, "return len(data)", "return data[99999]", 1), "def custom_kernel(data):\n    raise SystemExit(3)\n", schema.OutcomeHarness, "reference.py:2: IndexError: ", true},
		{"the driver", spawning, "raise RuntimeError('No CUDA GPUs are available')\n", right, schema.OutcomeMachine, "does not run here either: RuntimeError: No CUDA GPUs are available", true},
		{"he speaks of a driver, and leaves", inline, goodReference, says + "    os._exit(1)\n" + right, schema.OutcomeExited, "", true},
		{"he speaks of a driver, and kills", inline, goodReference, says + "    os.kill(os.getpid(), signal.SIGSEGV)\n" + right, schema.OutcomeKilled, "signal 11", true},
		{"he shows another's traceback", inline, goodReference, `import os, sys
if __name__ != "__main__":
    sys.stderr.write('Traceback (most recent call last):\n  File "reference.py", line 1, in <module>\nModuleNotFoundError: No module named \'aiter\'\n')
    sys.stderr.flush()
    os._exit(1)
` + right, schema.OutcomeCrashed, "", true},
		{"he removes the task", inline, goodReference, "import os\nif __name__ != '__main__':\n    for f in ('reference.py', 'eval.py'):\n        try: os.remove(f)\n        except OSError: pass\n    import aiter_of_no_image\n" + right, schema.OutcomeMissingModule, "submission.py:6", true},
		{"he poisons home in the warm-up", inline, goodReference, `import os, sys
if __name__ == "__main__":
    for d in (os.environ["HOME"], os.environ["TMPDIR"], os.getcwd()):
        for name in ("reference.py", "sitecustomize.py", "usercustomize.py", "multiprocessing.py"):
            open(os.path.join(d, name), "w").write("raise RuntimeError('No CUDA GPUs are available')\n")
else:
    os._exit(9)
` + right, schema.OutcomeExited, "status 9", true},
	} {
		if names != nil && !slices.Contains(names, tt.name) {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			r := evaluateSpawning(t, taskPayload(tt.main, tt.reference, tt.code))
			wantOutcome(t, r, tt.outcome, tt.text)
			if controlled(r) != tt.control {
				t.Errorf("a control was made: %v, want %v", controlled(r), tt.control)
			}
			if r.Harness == nil || r.Harness.Name != schema.HarnessLegacy || r.Harness.Why == "" {
				t.Errorf("harness %+v", r.Harness)
			}
		})
	}
}

// A submission that hangs is to blame where the task's solution does not, and
// the machine where that passes the limit, too.
func TestWhoHangs(t *testing.T) {
	p := taskPayload(spawning, goodReference, "import time\ndef custom_kernel(data):\n    time.sleep(1000)\n")
	longer(t, func(limit time.Duration) bool {
		p.TestTimeout = schema.Seconds(limit.Seconds())
		r := evaluateSpawning(t, p)
		if r.Outcome.Name != schema.OutcomeTimeout && r.Outcome.Name != schema.OutcomeAmbiguous || !controlled(r) {
			t.Fatalf("outcome %+v, control %v", r.Outcome, controlled(r))
		}
		return r.Outcome.Name == schema.OutcomeTimeout
	})
	// No control begins when the job's time is out.
	p.TestTimeout = schema.NoLimit()
	longer(t, func(limit time.Duration) bool {
		r := evaluateJob(t, context.Background(), Job{Payload: p, Deadline: time.Now().Add(limit), Environ: []string{"PATH=/usr/bin:/bin"}})
		if controlled(r) {
			t.Error("a control was made after the deadline")
		}
		wantOutcome(t, r, schema.OutcomeOutOfTime, "")
		return r.Runs.Get("test") != nil
	})
}

// What a control says may be told, for it does not know the secret seed.
func TestControlKnowsNoSeed(t *testing.T) {
	p := taskPayload(spawning, "import os\nraise ValueError('seed ' + os.environ['POPCORN_SEED'])\n", "def custom_kernel(data):\n    return 0\n")
	seed := int64(987654321)
	p.Seed = &seed
	r := evaluateSpawning(t, p)
	wantOutcome(t, r, schema.OutcomeHarness, "reference.py:2: ValueError: seed 1")
	if strings.Contains(r.Outcome.Text, "987654321") {
		t.Errorf("outcome %+v", r.Outcome)
	}
}

// Phases and cases that did not come to be are told as such.
func TestNotRun(t *testing.T) {
	p := taskPayload(spawning, goodReference, "import os\ndef custom_kernel(data):\n    os.kill(os.getppid(), 9)\n    raise SystemExit\n")
	p.Mode = schema.ModeLeaderboard
	r := evaluateSpawning(t, p)
	wantOutcome(t, r, schema.OutcomeKilled, "signal 9")
	var names []string
	for _, c := range r.Explanation.NotRun {
		names = append(names, c.Case+" "+c.Why)
	}
	want := []string{"test.1 the program ended in an earlier case", "benchmark test did not pass", "leaderboard test did not pass"}
	if !slices.Equal(names, want) {
		t.Errorf("not run: %q, want %q", names, want)
	}
}
