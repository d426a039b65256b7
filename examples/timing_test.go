package examples

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A submission that stands in for the worker's timed call: sorts, and says of
// repeat n what the expression says that follows.
const sortAndClaim = `
import struct, sys, time
from array import array

calls, judge = 0, sys.modules["__main__"]

def custom_kernel(data):
    return array("i", sorted(data[0]))

def call(kernel, raw, device):
    global calls
    n = calls = calls + 1
    data = judge.unpack(raw, device.build)
    start = time.perf_counter_ns()
    time.sleep(0.02)
    output = kernel(data)
    took = time.perf_counter_ns() - start
    return [struct.pack("<Q", `

const sortAndClaimEnd = `), *judge.pack((output,))]

judge.call = call
`

// No claim takes a repeat out of the figures: where the clocks differ the
// judge's counts, and where they always do the worker is a liar.
func TestSlowNoClaimLeavesARepeatOut(t *testing.T) {
	needsQuiet(t)
	t.Parallel()
	for _, test := range []struct{ name, claim, fault string }{
		{"nothing, but every eleventh time", "0 if n % 11 else took", "timing: the worker's clock says 0 ns, the judge's "},
		{"nothing, ever", "0", "timing: the worker's clock says 0 ns, the judge's "},
		{"more than passed", "took + 10**9 if n == 3 else took", "timing: the worker's clock says 1"},
		{"what would be negative as int64", "2**64 - 1 if n == 3 else took", "timing: the worker's clock says 18446744073709551615 ns"},
		{"half of it", "took // 2 + 10**6", ""},
		{"nothing, every fourth time", "0 if n % 4 == 0 else took", ""},
		{"the truth", "took", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := lay(t, find(t, "sort_py"), sortAndClaim+test.claim+sortAndClaimEnd)
			v := judge(t, dir, "leaderboard", "n: 100; bits: 31; seed: 1")
			expect(t, v, test.fault == "")
			if got := v.report["benchmark.0.error"]; !strings.HasPrefix(got, test.fault) {
				t.Errorf("got error %q, want %q", got, test.fault)
			}
			if test.fault != "" {
				return
			}
			expectFigures(t, v, "0")
			if best := v.number(t, "benchmark.0.best"); best < 19e6 { // ns, of 20 ms slept
				t.Errorf("best: got %v ns, want 20 ms less the data's way at most", best)
			}
		})
	}
}

// Honest kernels of less than a microsecond are not called liars.
func TestSlowNoKernelIsTooFast(t *testing.T) {
	needsQuiet(t)
	t.Parallel()
	dir := lay(t, find(t, "sort_py"), "def custom_kernel(data):\n    return data[0]\n")
	v := judge(t, dir, "leaderboard", "n: 1; bits: 31; seed: 1")
	expect(t, v, true)
	expectFigures(t, v, "0")
	if best := v.number(t, "benchmark.0.best"); best < 1000 {
		t.Errorf("best: got %v ns, want 1000 at least", best)
	}
}

// Prints how many times longer than the allowance the kernel takes, case by
// case. Argument: the folder.
const timesTheAllowance = `
import importlib.util, json, sys

spec = importlib.util.spec_from_file_location("judge", sys.argv[1] + "/eval.py")
judge = sys.modules["judge"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(judge)
reference = judge.load("reference")
task = judge.Task(reference, False)
for case in judge.read_cases(sys.argv[2], None, reference.generate_input):
    worker = judge.Worker(10)
    allowance = worker.overhead_ns(lambda: task.inputs(case.args)) + judge.SLACK_NS
    worker.load()
    print(min(judge.attempt(worker, task, case.args).kernel_ns for _ in range(5)) / allowance)
    judge.kill_descendants()
`

// The figures of the tasks' own benchmarks are not mainly what the worker says.
// README.md says six times at least; a busy machine takes from that.
func TestSlowBenchmarksAreLongerThanTheAllowance(t *testing.T) {
	needsQuiet(t)
	for _, e := range List() {
		if e.Lang != "py" {
			continue
		}
		dir := lay(t, e, submission(t, e, "right"))
		var faults []string
		for range 3 {
			faults = nil
			for _, text := range strings.Fields(python(t, dir, timesTheAllowance, lines(readTask(t, e).Benchmarks))) {
				ratio, err := strconv.ParseFloat(text, 64)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%s: right took %.1f times the allowance", e.Name, ratio)
				if ratio < 4 {
					faults = append(faults, fmt.Sprintf("%s: right took %.1f times the allowance, want 4 at least", e.Name, ratio))
				}
			}
			if len(faults) == 0 {
				break
			}
		}
		if len(faults) > 0 {
			t.Error(strings.Join(faults, "\n"))
		}
	}
}

// python runs a program with the arguments dir and a file that holds cases,
// and returns what it printed.
func python(t *testing.T, dir, program, cases string) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is missing")
	}
	file := filepath.Join(t.TempDir(), "cases.txt")
	if err := os.WriteFile(file, []byte(cases), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", "-c", program, dir, file)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return string(out)
}

// A worker that answers by and by is late, too.
func TestTrickleIsLate(t *testing.T) {
	t.Parallel()
	dir := lay(t, find(t, "vectoradd_py"), `
import os, struct, sys, time
from array import array

def custom_kernel(data):
    return array("f", map(float.__add__, *data))

def send(self, kind, *payload):
    os.set_blocking(self.write_fd, True)
    size = sum(map(len, payload))
    raw = kind + struct.pack("<Q", size) + b"".join(payload)
    for i in range(len(raw) if size else 0):
        os.write(self.write_fd, raw[i : i + 1])
        time.sleep(0.01)
    if not size:
        os.write(self.write_fd, raw)

sys.modules["__main__"].Link.send = send
`)
	limit(t, dir, "0.5")
	v := judge(t, dir, "test", "n: 400; seed: 1") // 16 s of trickle
	expect(t, v, false)
	if got, want := v.report["test.0.error"], "no answer within 0.5 s"; got != want {
		t.Errorf("got error %q, want %q", got, want)
	}
}

// What a kernel prints is there, though the worker is killed in the end.
func TestPrintsAreNotLost(t *testing.T) {
	t.Parallel()
	dir := lay(t, find(t, "vectoradd_py"), "print('imported')\n"+submission(t, find(t, "vectoradd_py"), "right")+
		"\nright = custom_kernel\n\ndef custom_kernel(data):\n    print('called with', len(data[0]))\n    return right(data)\n")
	v := judge(t, dir, "test", "n: 4; seed: 1", "PYTHONUNBUFFERED=")
	expect(t, v, true)
	if want := "imported\ncalled with 4\ncalled with 4\n"; v.stdout != want {
		t.Errorf("got stdout %q, want %q", v.stdout, want)
	}
}

// Values of inputs made with the secret would let anyone try out secrets.
func TestErrorsDoNotBetrayTheSecret(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, cases, plain, secret string }{
		{"vectoradd_py", "n: 1; seed: 4242", "element 0 of 1: got 0, want 0.556289062", "element 0 of 1 is wrong"},
		{"matmul_py", "m: 1; k: 1; n: 1; seed: 4242", "element (0, 0): got 0, want -0.122227513", "element (0, 0) is wrong"},
		{"sort_py", "n: 2; bits: 31; seed: 5", "element 0 of 2: got ", "element 0 of 2 is wrong"},
	} {
		e := find(t, test.name)
		dir := lay(t, e, submission(t, e, "wrong"))
		if e.Name == "sort_py" {
			dir = lay(t, e, "from array import array\n\ndef custom_kernel(data):\n    return array('i', [9] * len(data[0]))\n")
		}
		for want, env := range map[string][]string{test.plain: nil, test.secret: {"POPCORN_SEED=5"}} {
			v := judge(t, dir, "test", test.cases, env...)
			expect(t, v, false)
			if got := v.report["test.0.error"]; !strings.HasPrefix(got, want) || (env != nil && got != want) {
				t.Errorf("%s with %q: got error %q, want %q", e.Name, env, got, want)
			}
		}
	}
}

// Whoever knows the seeds of the tests makes their inputs, but not others.
func TestKnownSeedsAreNotEnough(t *testing.T) {
	t.Parallel()
	dir := lay(t, find(t, "vectoradd_py"), `
import random
from array import array

def custom_kernel(data):
    draw = random.Random(5236).random
    a, b = ([2 * draw() - 1 for _ in data[0]] for _ in "ab")
    return array("f", map(float.__add__, a, b))
`)
	v := judge(t, dir, "test", "n: 127; seed: 5236")
	expect(t, v, false)
	if got := v.report["test.0.error"]; !strings.HasPrefix(got, "element 0 of 127: got ") || !strings.HasSuffix(got, " (with a fresh seed)") {
		t.Errorf("got error %q, want element 0 of a fresh seed's", got)
	}
}

// Multiplies in float32, one product after the other, in several orders; then
// with less than float32. Prints what is found wrong, order by order.
const floatArithmetic = `
import struct, sys
sys.path.insert(0, sys.argv[1])
from array import array
from reference import check, generate_input

def single(x):
    return struct.unpack("f", struct.pack("f", x))[0]

def one_by_one(products):
    total = 0.0
    for p in products:
        total = single(total + single(p))
    return total

def pairs(products):
    while len(products) > 1:
        products = [single(sum(map(single, products[i : i + 2]))) for i in range(0, len(products), 2)]
    return single(products[0])

def cut(x):
    return round(x * 2048) / 2048

orders = {
    "forward": one_by_one,
    "backward": lambda p: one_by_one(p[::-1]),
    "rising": lambda p: one_by_one(sorted(p)),
    "falling size": lambda p: one_by_one(sorted(p, key=abs, reverse=True)),
    "pairs": pairs,
    "float64": sum,
}
for m, k, n in (1, 1, 1), (2, 4096, 3), (2, 512, 64), (3, 96, 112), (2, 17, 900):
    for seed in range(2):
        a, b = generate_input(m, k, n, seed)
        columns = list(zip(*b))
        for name, add in orders.items():
            c = [array("f", [add([x * y for x, y in zip(row, column)]) for column in columns]) for row in a]
            found = check((a, b), c)
            if found:
                print(name, (m, k, n), found)
        if k == 1:
            continue
        for row in c:
            row[0] += 0.9e-5 * k * n
        if not check((a, b), c):
            print("one element off", (m, k, n), "was taken")
        c = [array("f", [sum(cut(x) * cut(y) for x, y in zip(row, column)) for column in columns]) for row in a]
        if not check((a, b), c):
            print("12 bits", (m, k, n), "was taken")
`

func TestMatmulTakesFloat32AndNoLess(t *testing.T) {
	t.Parallel()
	e := find(t, "matmul_py")
	if got := python(t, lay(t, e, ""), floatArithmetic, ""); got != "" {
		t.Errorf("got:\n%s", got)
	}
}
