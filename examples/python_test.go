package examples

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
)

// Slow submissions take 2 to 20 times as long as right ones; a busy machine
// leaves less of the smallest ratios.
const slowFactor = 1.5

func find(t *testing.T, name string) Example {
	t.Helper()
	e, ok := Find(name)
	if !ok {
		t.Fatalf("no example %s", name)
	}
	return e
}

// wantOf is the outcome of a submission by its name, and by mode.
func wantOf(e Example, name, mode string) string {
	switch {
	case name == "right", name == "slow", name == "cheat_clock" && mode == schema.ModeTest:
		return schema.OutcomePassed
	case name == "cheat_clock", strings.HasPrefix(e.Name, "vectoradd_") && name == "cheat":
		return schema.OutcomeForged
	}
	return schema.OutcomeWrong
}

// quick reports whether TestVerdicts judges a submission; TestSlowVerdicts judges the
// rest. Quick are all submissions in test mode except the slow ones, and cheat_clock in
// benchmark mode, which only a clock reveals.
func quick(mode, name string) bool {
	return mode == schema.ModeTest && name != "slow" || mode == schema.ModeBenchmark && name == "cheat_clock"
}

func TestVerdicts(t *testing.T) { testVerdicts(t, true) }

func TestSlowVerdicts(t *testing.T) {
	testenv.NeedSlow(t)
	testVerdicts(t, false)
}

func testVerdicts(t *testing.T, want bool) {
	for _, e := range List() {
		for _, mode := range []string{schema.ModeTest, schema.ModeBenchmark, schema.ModeLeaderboard} {
			for _, file := range e.Submissions {
				name := strings.TrimSuffix(file, "."+e.Lang)
				outcome := wantOf(e, name, mode)
				if outcome == schema.OutcomePassed && mode == schema.ModeLeaderboard {
					continue // see TestSlowIsSlower
				}
				if quick(mode, name) != want {
					continue
				}
				t.Run(e.Name+"/"+mode+"/"+name, func(t *testing.T) {
					if mode == schema.ModeTest {
						t.Parallel()
					}
					r := run(t, e, mode, name)
					expectVerdict(t, r, mode, outcome)
					if mode == schema.ModeBenchmark && name == "right" {
						expectAboveResolution(t, r)
					}
				})
			}
		}
	}
}

// expectVerdict compares a result with the outcome that its submission should
// have. A busy machine may leave times open, and nothing else.
func expectVerdict(t *testing.T, r *schema.Result, mode, want string) {
	t.Helper()
	if mode != schema.ModeTest && r.Outcome.Name == schema.OutcomeAmbiguous {
		t.Logf("not decided: %s", r.Outcome.Text)
		return
	}
	if r.Outcome.Name != want {
		t.Errorf("got outcome %s: %q, want %s", r.Outcome.Name, r.Outcome.Text, want)
	}
	for _, run := range r.Runs {
		passed := run.Run.Passed && run.Run.Success
		if last := run.Name == r.Runs[len(r.Runs)-1].Name; passed != (want == schema.OutcomePassed || !last) {
			t.Errorf("%s: passed is %v, outcome %s", run.Name, passed, r.Outcome.Name)
		}
		if check, _ := run.Run.Result.Get("check"); passed != (check == "pass") {
			t.Errorf("%s: check is %q, passed %v", run.Name, check, passed)
		}
	}
	if want == schema.OutcomePassed && mode != schema.ModeTest {
		expectMeasured(t, r, mode, 2)
	}
}

// expectMeasured holds the figures of a phase's cases against each other and
// against what was measured.
func expectMeasured(t *testing.T, r *schema.Result, phase string, cases int) {
	t.Helper()
	if got := reported(r, phase, "benchmark-count"); got != strconv.Itoa(cases) {
		t.Errorf("%s: benchmark-count is %q, want %d", phase, got, cases)
	}
	report := map[string]string{}
	for _, e := range r.Runs.Get(phase).Run.Result {
		report[e.Key] = e.Value
	}
	for n := range cases {
		expectFigures(t, report, strconv.Itoa(n))
		m := measurement(r, phase, n)
		if m == nil {
			t.Errorf("%s: case %d has no measurement", phase, n)
			continue
		}
		runs, samples := report[fmt.Sprintf("benchmark.%d.runs", n)], len(m.Samples)
		if phase == schema.ModeLeaderboard { // its seed is secret, so they are withheld
			if samples != 0 || runs == "0" {
				t.Errorf("%s: case %d: %s runs with a secret seed and %d samples", phase, n, runs, samples)
			}
		} else if runs != strconv.Itoa(samples) {
			t.Errorf("%s: case %d: %s runs, %d samples", phase, n, runs, samples)
		}
		if m.Resolution <= 0 || m.Floor <= 0 || m.Interval[0] < m.Resolution-1 { // rounded
			t.Errorf("%s: case %d: measured %+v", phase, n, m)
		}
		for _, sample := range m.Samples {
			if sample < m.Resolution-1 { // rounded
				t.Errorf("%s: case %d: a sample of %v ns, finer than the resolution of %v ns", phase, n, sample, m.Resolution)
			}
		}
	}
}

// expectAboveResolution holds that figures are far above what the harness can tell
// apart.
func expectAboveResolution(t *testing.T, r *schema.Result) {
	t.Helper()
	for _, m := range r.Measurements {
		if mean := (m.Interval[0] + m.Interval[1]) / 2; mean < 50*m.Resolution {
			t.Errorf("case %d took %.0f ns, want 50 times the resolution of %.0f ns at least", m.Case, mean, m.Resolution)
		}
	}
}

func measurement(r *schema.Result, phase string, n int) *schema.Measurement {
	for i := range r.Measurements {
		if m := &r.Measurements[i]; m.Phase == phase && m.Case == n {
			return m
		}
	}
	return nil
}

// run judges one of e's submissions as the task has it; with a secret seed, but for
// benchmark mode.
func run(t *testing.T, e Example, mode, name string) *schema.Result {
	t.Helper()
	var seed *int64
	if mode != schema.ModeBenchmark {
		seed = new(int64(20260117))
	}
	p := payload(t, e, mode, submission(t, e, name), seed)
	r := measured(t, p)
	t.Logf("%s: %s", name, r.Outcome.Name)
	return r
}

// Runs alone, as its timings are compared.
func TestSlowIsSlower(t *testing.T) {
	testenv.NeedSlow(t)
	for _, e := range List() {
		t.Run(e.Name, func(t *testing.T) {
			var faults []string
			for range 3 { // a busy machine may slow down the right one alone, once
				right, slow := run(t, e, schema.ModeLeaderboard, "right"), run(t, e, schema.ModeLeaderboard, "slow")
				wantOutcome(t, right, schema.OutcomePassed, "")
				wantOutcome(t, slow, schema.OutcomePassed, "")
				if t.Failed() {
					return
				}
				expectMeasured(t, right, schema.ModeLeaderboard, 2)
				expectMeasured(t, slow, schema.ModeLeaderboard, 2)
				faults = nil
				for n := range 2 {
					key := fmt.Sprintf("benchmark.%d.mean", n)
					fast, slow := number(t, right, key), number(t, slow, key)
					if slow < slowFactor*fast {
						faults = append(faults, fmt.Sprintf("%s: slow took %v ns, want %v times right's %v ns", key, slow, slowFactor, fast))
					}
				}
				if len(faults) == 0 {
					return
				}
			}
			t.Error(strings.Join(faults, "\n"))
		})
	}
}

func number(t *testing.T, r *schema.Result, key string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(reported(r, schema.ModeLeaderboard, key), 64)
	if err != nil {
		t.Errorf("%s: %v", key, err)
	}
	return n
}

func TestTemplatesAreRight(t *testing.T) {
	t.Parallel()
	for _, e := range List() {
		text, err := files.ReadFile(e.Dir + "/template." + e.Lang)
		if err != nil {
			t.Fatal(err)
		}
		wantOutcome(t, evaluate(t, payload(t, e, schema.ModeTest, string(text), nil)), schema.OutcomePassed, "")
	}
}

// A case that generate_input does not take is the task's fault, and nothing of
// the submission runs.
func TestUnusableCases(t *testing.T) {
	t.Parallel()
	e := find(t, "vectoradd_py")
	good := testCase(t, "n", 5, "seed", 1)
	for _, test := range []struct {
		name  string
		cases []schema.Case
		want  string
	}{
		{"unknown name", []schema.Case{testCase(t, "n", 5, "seed", 1, "m", 4)}, "unexpected keyword argument 'm'"},
		{"missing name", []schema.Case{testCase(t, "n", 5)}, "missing 1 required positional argument: 'seed'"},
		{"seed no integer", []schema.Case{testCase(t, "n", 5, "seed", "one")}, `case 0: seed: got "one", want an integer`},
		{"a word for a number", []schema.Case{testCase(t, "n", "five", "seed", 1)}, "TypeError"},
		{"second case's seed", []schema.Case{good, testCase(t, "n", 5, "seed", "two")}, `case 1: seed: got "two", want an integer`},
		{"nothing to measure", nil, "no case to measure"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := payload(t, e, schema.ModeBenchmark, "print('loaded')\n"+submission(t, e, "right"), nil)
			p.Benchmarks = test.cases
			r := evaluate(t, p)
			wantOutcome(t, r, schema.OutcomeHarness, test.want)
			for _, run := range r.Runs {
				if run.Run.Passed || run.Run.Stdout != "" {
					t.Errorf("%s: passed %v, printed %q", run.Name, run.Run.Passed, run.Run.Stdout)
				}
			}
		})
	}
	p := payload(t, e, schema.ModeTest, submission(t, e, "right"), nil)
	p.Tests = nil
	r := evaluate(t, p)
	wantOutcome(t, r, schema.OutcomePassed, "")
	if got := reported(r, schema.ModeTest, "test-count"); got != "0" {
		t.Errorf("no tests: test-count is %q", got)
	}
}

// The mixed seed of case seed 3 and secret 5 is 3 + 8*9/2 = 39: who gets the
// inputs of that seed answers, and else nothing.
func TestSecretSeedIsMixedIn(t *testing.T) {
	t.Parallel()
	e := find(t, "vectoradd_py")
	const generate = "import sys; sys.path.insert(0, sys.argv[1]); from reference import generate_input; print([list(x) for x in generate_input(n=4, seed=39)])"
	mixed := strings.TrimSpace(python(t, folder(t, e), generate))
	const kernel = `
from array import array

calls = 0

def custom_kernel(data):
    global calls
    calls += 1
    if calls == 1 and [list(x) for x in data] != MIXED:
        raise ValueError("other inputs")
    return array("f", map(float.__add__, *data))
`
	text := strings.ReplaceAll(kernel, "MIXED", mixed)
	secret := int64(5)
	for _, test := range []struct {
		seed   int
		secret *int64
		want   string
	}{{3, &secret, schema.OutcomePassed}, {39, nil, schema.OutcomePassed}, {3, nil, schema.OutcomeException}, {39, &secret, schema.OutcomeException}} {
		p := payload(t, e, schema.ModeTest, text, test.secret)
		p.Tests = []schema.Case{testCase(t, "n", 4, "seed", test.seed)}
		if r := evaluate(t, p); r.Outcome.Name != test.want {
			t.Errorf("case seed %d, secret %v: got outcome %+v, want %s", test.seed, test.secret != nil, r.Outcome, test.want)
		}
	}
}

// What a check says of values is for those who know the seed: with values of
// inputs made from a secret anyone could try out secrets.
func TestErrorsDoNotBetrayTheSecret(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, plain string
		c           schema.Case
	}{
		{"vectoradd_py", "test.0 failed (n: 1; seed: 4242): element 0 of 1: got 0, want 0.556289062", testCase(t, "n", 1, "seed", 4242)},
		{"matmul_py", "test.0 failed (m: 1; k: 1; n: 1; seed: 4242): element (0, 0): got 0, want -0.122227513", testCase(t, "m", 1, "k", 1, "n", 1, "seed", 4242)},
		{"sort_py", "test.0 failed (n: 2; bits: 31; seed: 5): element 0 of 2: got 9, want ", testCase(t, "n", 2, "bits", 31, "seed", 5)},
	} {
		e := find(t, test.name)
		text := submission(t, e, "wrong")
		if e.Name == "sort_py" {
			text = "from array import array\n\ndef custom_kernel(data):\n    return array('i', [9] * len(data[0]))\n"
		}
		secret := int64(5)
		for _, seed := range []*int64{nil, &secret} {
			p := payload(t, e, schema.ModeTest, text, seed)
			p.Tests = []schema.Case{test.c}
			r := evaluate(t, p)
			wantOutcome(t, r, schema.OutcomeWrong, "")
			if got := r.Outcome.Text; seed == nil && !strings.Contains(got, test.plain) {
				t.Errorf("%s: got %q, want %q", e.Name, got, test.plain)
			}
			if got := reported(r, schema.ModeTest, "test.0.error"); seed != nil && (got != "withheld: the run's seed is secret" || strings.Contains(r.Outcome.Text, "element")) {
				t.Errorf("%s with a secret: got error %q, outcome %q, want it withheld", e.Name, got, r.Outcome.Text)
			}
		}
	}
}

// Whoever knows the seeds of the tests makes their inputs, but not others.
func TestKnownSeedsAreNotEnough(t *testing.T) {
	t.Parallel()
	p := payload(t, find(t, "vectoradd_py"), schema.ModeTest, `
import random
from array import array

def custom_kernel(data):
    draw = random.Random(5236).random
    a, b = ([2 * draw() - 1 for _ in data[0]] for _ in "ab")
    return array("f", map(float.__add__, a, b))
`, nil)
	p.Tests = []schema.Case{testCase(t, "n", 127, "seed", 5236)}
	r := evaluate(t, p)
	wantOutcome(t, r, schema.OutcomeWrong, "")
	if got := reported(r, schema.ModeTest, "test.0.error"); !strings.HasPrefix(got, "element 0 of 127: got ") || !strings.HasSuffix(got, " (with a fresh seed)") {
		t.Errorf("got error %q, want element 0 of a fresh seed's", got)
	}
}

// Multiplies in float32, one product after the other, in several orders; then
// with less than float32. Prints what is found wrong, order by order.
const floatArithmetic = `
import struct, sys
sys.path.insert(0, sys.argv[1])
from array import array
from reference import check_implementation, generate_input

def check(data, output):
    good, text = check_implementation(data, output)
    assert good == (text == ""), (good, text)
    return text

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
for m, k, n in SHAPES:
    for seed in SEEDS:
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
	matmulTakesFloat32(t, "(1, 1, 1), (2, 512, 4), (2, 17, 90)", "[0]")
}

// TestSlowMatmulTakesFloat32AndNoLess has larger shapes and two seeds.
func TestSlowMatmulTakesFloat32AndNoLess(t *testing.T) {
	testenv.NeedSlow(t)
	matmulTakesFloat32(t, "(1, 1, 1), (2, 4096, 3), (2, 512, 64), (3, 96, 112), (2, 17, 900)", "range(2)")
}

func matmulTakesFloat32(t *testing.T, shapes, seeds string) {
	t.Parallel()
	e := find(t, "matmul_py")
	if got := python(t, folder(t, e), strings.NewReplacer("SHAPES", shapes, "SEEDS", seeds).Replace(floatArithmetic)); got != "" {
		t.Errorf("got:\n%s", got)
	}
}
