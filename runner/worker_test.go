package runner

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
)

// pooled is a harness that runs the submission in a pool's worker, as most
// published ones do. Its own words are CONTEXT, WORKERS and CALL.
const pooled = `import multiprocessing, os, sys
def call(spec):
    from submission import kernel
    return kernel(spec)
def main():
    report = os.fdopen(int(os.environ["POPCORN_FD"]), "w")
    specs = open(sys.argv[2]).read().splitlines()
    good = True
    with multiprocessing.get_context("CONTEXT").Pool(WORKERS) as pool:
        print(f"test-count: {len(specs)}", file=report, flush=True)
        for i, spec in enumerate(specs):
            ok = CALL
            print(f"test.{i}.spec: {spec}", file=report)
            print(f"test.{i}.status: {'pass' if ok else 'fail'}", file=report, flush=True)
            good = good and ok
        print("check:", "pass" if good else "fail", file=report, flush=True)
    return 0 if good else 112
if __name__ == "__main__":
    sys.exit(main())
`

// pooledPayload has a limit that no test waits for, and that fails it.
func pooledPayload(context, workers, call, submission string) *schema.Payload {
	p := pythonPayload("")
	text := strings.NewReplacer("CONTEXT", context, "WORKERS", workers, "CALL", call).Replace(pooled)
	p.Sources = schema.Files{{Name: "eval.py", Text: text}, {Name: "submission.py", Text: submission}}
	p.TestTimeout = schema.Seconds(300)
	return p
}

// A worker that leaves is noticed: an end at the limit has another outcome.
func TestWorkerThatLeaves(t *testing.T) {
	workerThatLeaves(t, "os._exit", "SIGKILL, forked", "on the second case", "one of two", "while it owes nothing")
}

func TestSlowWorkerThatLeaves(t *testing.T) {
	testenv.NeedSlow(t)
	workerThatLeaves(t)
}

// workerThatLeaves tries the ways named, or all.
func workerThatLeaves(t *testing.T, names ...string) {
	const apply = "pool.apply(call, (spec,))"
	for _, tt := range []struct{ name, context, workers, call, body, outcome, text string }{
		{"os._exit", "spawn", "1", apply, "os._exit(3)", schema.OutcomeExited, "the worker that ran the submission ended with status 3"},
		{"os._exit(0)", "spawn", "1", apply, "os._exit(0)", schema.OutcomeExited, "ended with status 0"},
		{"sys.exit", "spawn", "1", apply, "sys.exit(112)", schema.OutcomeExited, "ended with status 112"},
		{"SIGSEGV", "spawn", "1", apply, "os.kill(os.getpid(), 11)", schema.OutcomeKilled, "was killed by signal 11"},
		{"SIGKILL, forked", "fork", "1", apply, "os.kill(os.getpid(), 9)", schema.OutcomeKilled, "was killed by signal 9"},
		{"a null pointer", "spawn", "1", apply, "import ctypes; ctypes.string_at(0)", schema.OutcomeKilled, "was killed by signal 11"},
		{"on the second case", "spawn", "1", apply, "size(spec) == 2 and os._exit(5)", schema.OutcomeExited, "ended with status 5"},
		{"asynchronously", "spawn", "1", "pool.apply_async(call, (spec,)).get(3000)", "os._exit(6)", schema.OutcomeExited, "ended with status 6"},
		{"by map", "spawn", "1", "all(pool.map(call, [spec] * 3))", "os._exit(7)", schema.OutcomeExited, "ended with status 7"},
		{"one of two", "spawn", "2", "all(pool.starmap(call, [(spec,), (spec,)], 1))", "os._exit(8)", schema.OutcomeExited, "ended with status 8"},
		{"a worker with children", "spawn", "1", apply, "subprocess.Popen(['sleep', '1000']); os._exit(9)", schema.OutcomeExited, "ended with status 9"},
		{"with few tasks each", "spawn", "1, maxtasksperchild=5", apply, "os._exit(4)", schema.OutcomeExited, "ended with status 4"},
		{"while it owes nothing", "spawn", "1", "pool.apply(call, (spec,)) and (pool._pool[0].kill(), True)[1]", "pass", schema.OutcomeKilled, "was killed by signal 9"},
		{"a little later", "spawn", "1", "pool.apply(call, (spec,)) and (__import__('time').sleep(1), True)[1]", "import threading; threading.Timer(0.2, os._exit, [2]).start()", schema.OutcomeExited, "ended with status 2"},
	} {
		if names != nil && !slices.Contains(names, tt.name) {
			continue
		}
		p := pooledPayload(tt.context, tt.workers, tt.call, "import os, subprocess, sys\n\ndef size(spec):\n    return int(spec.split(': ')[1])\n\ndef kernel(spec):\n    print('begun', flush=True)\n    "+tt.body+"\n    return True\n")
		r := evaluatePayload(t, p)
		wantOutcome(t, r, tt.outcome, tt.text)
		if r.SharedJudge && tt.context == "spawn" {
			t.Errorf("%s: the judge is called shared", tt.name)
		}
		if run := r.Runs.Get("test"); run == nil || !strings.Contains(run.Run.Stdout, "begun") {
			t.Errorf("%s: run %+v", tt.name, run)
		}
	}
}

// Honest pools end workers and begin others, and are idle and closed in every
// way: nothing of this is a worker that left.
func TestHonestPools(t *testing.T) {
	honestPools(t, 3)
}

func TestSlowHonestPools(t *testing.T) {
	testenv.NeedSlow(t)
	honestPools(t, 7)
}

// honestPools tries the first pools.
func honestPools(t *testing.T, first int) {
	const honest = "import os, subprocess\n\ndef kernel(spec):\n    subprocess.run(['true'])\n    return subprocess.run(['sh', '-c', 'exit 3']).returncode == 3\n"
	for i, tt := range []struct{ context, workers, call string }{
		{"spawn", "1", "pool.apply(call, (spec,))"},
		{"fork", "3", "all(pool.map(call, [spec] * 10))"},
		{"spawn", "1, maxtasksperchild=1", "all(pool.apply(call, (spec,)) for _ in range(3))"},
		{"spawn", "2", "all(pool.imap_unordered(call, [spec] * 4))"},
		{"spawn", "2", "all(multiprocessing.get_context('spawn').Pool(1).apply(call, (spec,)) for _ in range(2))"},
		{"spawn", "1", "pool.apply(call, (spec,)) and (i == 0 or (pool.close(), pool.join()) != 0)"},
		{"spawn", "1", "pool.apply(call, (spec,)) and (i == 0 or (pool.apply_async(call, (spec,)), pool.terminate()) != 0)"},
	} {
		if i == first {
			break
		}
		r := evaluatePayload(t, pooledPayload(tt.context, tt.workers, tt.call, honest))
		wantOutcome(t, r, schema.OutcomePassed, "")
		if t.Failed() {
			t.Fatalf("%+v: %+v", tt, r.Runs.Get("test").Run)
		}
	}
}

// The corpus's harness, whose worker has a word for every exception.
func TestWorkerOfTheCorpusThatLeaves(t *testing.T) {
	text, err := os.ReadFile("testdata/attacks/lib/worker.py")
	if err != nil {
		t.Fatal(err)
	}
	p := pythonPayload("")
	p.Main, p.TestTimeout = "worker.py", schema.Seconds(300)
	p.Sources = schema.Files{{Name: "worker.py", Text: string(text)}, {Name: "submission.py", Text: "import os\n\ndef kernel(n, seed):\n    os._exit(0)\n"}}
	p.Tests = []schema.Case{{{Name: "n", Value: schema.IntValue(1)}, {Name: "seed", Value: schema.IntValue(2)}}}
	wantOutcome(t, evaluatePayload(t, p), schema.OutcomeExited, "ended with status 0 before it had answered")
}
