package runner_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
)

// publishedVar names a checkout of gpu-mode/reference-kernels, which this
// repository holds nothing of.
const publishedVar = "KBGEN_PUBLISHED_TASKS"

// A publishedTask is one that runs on a CPU after a word's change in its
// reference: "cuda" becomes "cpu".
type publishedTask struct {
	name string // directory below problems
	// single: float16 becomes float32, too; a CPU multiplies no half numbers.
	single bool
	// main is another task's main file, in place of one that wants a GPU.
	main string
	// cases are smaller ones than the task's own smallest, which take minutes here.
	tests, measured []schema.Case

	dir, variant, mainText string
	task                   *task.Task
	same, asked            int
	otherwise, notRun      []string // what is not the same, and why; answers
}

// publishedTasks are all of them.
func publishedTasks() []publishedTask {
	batch := func(batch, n, cond, seed int64) []schema.Case {
		return []schema.Case{named("batch", batch, "n", n, "cond", cond, "seed", seed)}
	}
	small := slices.Concat(batch(20, 32, 1, 53124), batch(4, 64, 1, 3321))
	moe := func(routed, seed int64) schema.Case {
		return named("dhidden", 64, "dexpert", 32, "nroutedexperts", routed, "nsharedexperts", 1, "nexpertspertoken", 2, "bs", 1, "seqlen", 16, "seed", seed)
	}
	return []publishedTask{
		{name: "pmpp/conv2d_py"}, {name: "pmpp/grayscale_py"}, {name: "pmpp/histogram_py"}, {name: "pmpp/matmul_py", single: true},
		{name: "pmpp/prefixsum_py"}, {name: "pmpp/sort_py"}, {name: "pmpp/vectoradd_py"}, {name: "pmpp/vectorsum_py"},
		{name: "pmpp_v2/conv2d_py"}, {name: "pmpp_v2/grayscale_py"}, {name: "pmpp_v2/histogram_py"}, {name: "pmpp_v2/matmul_py", single: true},
		{name: "pmpp_v2/prefixsum_py"}, {name: "pmpp_v2/sort_py"}, {name: "pmpp_v2/vectoradd_py"}, {name: "pmpp_v2/vectorsum_py"},
		{name: "amd/identity"},
		{name: "amd/moe", single: true, tests: []schema.Case{moe(4, 9371), moe(8, 2291)}, measured: []schema.Case{moe(4, 9371)}},
		{name: "bioml/trimul"},
		{name: "linalg/cholesky_py", measured: batch(2, 8, 2, 41032)},
		{name: "linalg/eigh_py", tests: small, measured: batch(2, 8, 1, 43214)},
		{name: "linalg/qr_py", tests: small, measured: batch(2, 8, 1, 43214)},
		{name: "linalg/qr_v2", tests: small, measured: batch(2, 8, 1, 43214)},
		{name: "helion/causal_conv1d_py", main: "amd_202602"}, {name: "helion/fp8_quant_py", main: "amd_202602"},
		{name: "helion/gated_deltanet_chunk_fwd_h_py", main: "amd_202602"}, {name: "helion/gated_deltanet_chunk_fwd_o_py", main: "amd_202602"},
		{name: "helion/gated_deltanet_recompute_w_u_py", main: "amd_202602"},
	}
}

// named makes a case of names and numbers.
func named(pairs ...any) (c schema.Case) {
	for pair := range slices.Chunk(pairs, 2) {
		n, small := pair[1].(int)
		value := int64(n)
		if !small {
			value = pair[1].(int64)
		}
		c = append(c, schema.Param{Name: pair[0].(string), Value: schema.IntValue(value)})
	}
	return c
}

// cudaStandIns let an unchanged main file run where there is no GPU.
const cudaStandIns = `

import time as _time

import torch as _torch


class _Event:
    def __init__(self, **named):
        self.at = 0

    def record(self, *args):
        self.at = _time.perf_counter_ns()

    def elapsed_time(self, other):
        return max((other.at - self.at) / 1e6, 1e-6)


_torch.cuda.Event, _torch.cuda.synchronize = _Event, lambda *args: None
clear_l2_cache = clear_l2_cache_large = lambda *args: None
`

// An honestAnswer is a submission made of what answers right, in one mode. A
// leaderboard run has a secret seed, as Kernelbot's have. No two have one name.
type honestAnswer struct {
	name, mode string
	// once: of every main file, one task is enough.
	once bool
	// kernel follows a kernel of the name "right" and first, which changes the
	// first tensor that it returned. "": the task's own starter as it is.
	kernel string
}

const changeFirst = `

def first(x, change):
    if type(x) is list:
        return [first(x[0], change), *x[1:]]
    return (first(x[0], change), *x[1:]) if isinstance(x, tuple) else change(x)


`

// honestAnswers are what every task is asked.
func honestAnswers() []honestAnswer {
	return []honestAnswer{
		{name: "starter", mode: schema.ModeTest},
		{name: "wrong shape", mode: schema.ModeTest, kernel: `
def custom_kernel(data):
    import torch
    return first(right(data), lambda x: torch.cat([x.reshape(-1), x.reshape(-1)[:1]]))
`},
		{name: "other dtype", mode: schema.ModeTest, kernel: `
def custom_kernel(data):
    import torch
    return first(right(data), lambda x: x.to(torch.float32 if x.dtype == torch.float64 else torch.float64))
`},
		{name: "raises", mode: schema.ModeTest, kernel: `
def custom_kernel(data):
    raise RuntimeError("no such luck")
`},
		{name: "returns None", mode: schema.ModeTest, once: true, kernel: `
def custom_kernel(data):
    return None
`},
		{name: "wrong value", mode: schema.ModeBenchmark, kernel: `
def custom_kernel(data):
    def spoil(x):
        x = x.detach().clone()
        x.view(-1)[0] += 1000
        return x

    return first(right(data), spoil)
`},
		{name: "right", mode: schema.ModeLeaderboard, kernel: "custom_kernel = right\n"},
	}
}

// equalLimit bounds the whole comparison; what is not run then stands in the
// table. One run is bounded, too: seconds for its tests, and for what is timed.
const (
	equalLimit            = 28 * time.Minute
	testLimit, timedLimit = 90, 30
)

// TestSlowEqualVerdicts holds the isolated harness against the main files of
// published tasks that can be run on a CPU: same verdict, same keys in the same
// order, same exit status. It wants a checkout and a python3 with torch, takes
// half an hour, and prints the table of docs/measurements.md:
//
//	KBGEN_PUBLISHED_TASKS=… go test -count=1 -timeout 60m -run TestSlowEqualVerdicts ./runner
func TestSlowEqualVerdicts(t *testing.T) {
	root := os.Getenv(publishedVar)
	if root == "" {
		t.Skip("wants a checkout of gpu-mode/reference-kernels in " + publishedVar)
	}
	r := newRange(t)
	begun, tasks, seen := time.Now(), publishedTasks(), map[string]bool{}
	for i := range tasks {
		tasks[i].load(t, filepath.Join(root, "problems"))
	}
	for _, a := range honestAnswers() {
		clear(seen)
		for i := range tasks {
			p := &tasks[i]
			if a.once && seen[p.variant] {
				continue
			}
			seen[p.variant] = true
			t.Run(a.mode+"/"+a.name+"/"+p.name, func(t *testing.T) {
				p.asked++
				if time.Since(begun) > equalLimit {
					p.notRun = append(p.notRun, a.name)
					return
				}
				r.equal(t, p, a)
			})
		}
	}
	fmt.Print("| task | main file | equal | otherwise |\n|---|---|---|---|\n")
	for _, p := range tasks {
		if len(p.notRun) > 0 {
			p.otherwise = append(p.otherwise, "not run: "+strings.Join(p.notRun, ", "))
		}
		fmt.Printf("| %s | %s | %d of %d | %s |\n", p.name, p.variant, p.same, p.asked, strings.Join(p.otherwise, "; "))
	}
	t.Logf("%.0f s", time.Since(begun).Seconds())
}

// load reads the task and its main file.
func (p *publishedTask) load(t *testing.T, problems string) {
	t.Helper()
	p.dir = filepath.Join(problems, p.name)
	var err error
	p.task, err = task.LoadDir(p.dir)
	must(t, err)
	if p.main != "" {
		main, err := os.ReadFile(filepath.Join(problems, p.main, "eval.py"))
		must(t, err)
		p.mainText = string(main)
	}
	payload := p.payload(t, honestAnswer{mode: schema.ModeTest})
	main, _ := payload.Sources.Get(payload.Main)
	known, _ := plan.KnownHarness(main)
	p.variant = known.Name
}

// equal asks both harnesses one thing about a task.
func (r *shootingRange) equal(t *testing.T, p *publishedTask, a honestAnswer) {
	legacy, isolated := p.payload(t, a), p.payload(t, a)
	legacy.Harness = schema.HarnessLegacy
	for i := range legacy.Sources {
		if f := &legacy.Sources[i]; f.Name == "utils.py" {
			f.Text += cudaStandIns
		}
	}
	var results [2]*schema.Result
	var both sync.WaitGroup
	both.Go(func() { results[0] = r.published(t, legacy) })
	if a.mode != schema.ModeTest { // the one would disturb the other's clock
		both.Wait()
	}
	results[1] = r.published(t, isolated)
	if both.Wait(); results[0] == nil {
		return // it has failed
	}
	how, differs := compare(t, results[0], results[1])
	switch {
	case how == "":
		p.same++
		return
	case differs:
		t.Error(how)
	}
	p.otherwise = append(p.otherwise, a.name+": "+how)
}

// compare says how two results of one answer are not the same, "" when they are;
// differs: for no reason that the documents give.
func compare(t *testing.T, legacy, isolated *schema.Result) (how string, differs bool) {
	t.Helper()
	if isolated.Harness == nil {
		t.Fatalf("no harness: %+v", isolated.Outcome)
	}
	t.Logf("legacy %s, isolated %s (%.1f and %.1f s)", legacy.Outcome.Name, isolated.Outcome.Name, legacy.Timing.Total, isolated.Timing.Total)
	a, b := shape(legacy), shape(isolated)
	switch {
	case isolated.Harness.Name != schema.HarnessIsolated:
		return "stays legacy, " + isolated.Harness.Why, true
	case isolated.Outcome.Name == schema.OutcomeAmbiguous || legacy.Outcome.Name == schema.OutcomeAmbiguous:
		return fmt.Sprintf("%s, isolated %s", legacy.Outcome.Name, isolated.Outcome.Name), false
	case legacy.Outcome.Name == schema.OutcomeCrashed && isolated.Outcome.Name == schema.OutcomeWrong && strings.Contains(isolated.Outcome.Text, "cannot be checked"):
		return "crashed, isolated wrong (its check raises)", false // docs/harness.md: what differs
	case !slices.Equal(a, b):
		t.Logf("legacy: %s\n%s\nisolated: %s\n%s", legacy.Outcome.Text, strings.Join(a, "\n"), isolated.Outcome.Text, strings.Join(b, "\n"))
		return fmt.Sprintf("%s, isolated %s", legacy.Outcome.Name, isolated.Outcome.Name), true
	}
	return "", false
}

// device is how a reference names the GPU.
var device = regexp.MustCompile(`(["'])cuda(:0)?(["'])`)

// onCPU changes the words.
func (p *publishedTask) onCPU(text string) string {
	text = device.ReplaceAllString(text, "${1}cpu${3}")
	if p.single {
		text = strings.ReplaceAll(text, "torch.float16", "torch.float32")
	}
	return text
}

// submission makes the answer's text.
func (p *publishedTask) submission(t *testing.T, reference string, a honestAnswer) string {
	own, err := os.ReadFile(filepath.Join(p.dir, "submission.py"))
	must(t, err)
	starter := p.onCPU(string(own))
	if a.kernel == "" {
		return starter
	}
	right := starter + "\nright = custom_kernel\n"
	if strings.Contains(reference, "def ref_kernel") {
		right = reference + "\nright = ref_kernel\n"
	}
	return right + changeFirst + a.kernel
}

// payload is one answer to a task, made to run on a CPU.
func (p *publishedTask) payload(t *testing.T, a honestAnswer) *schema.Payload {
	t.Helper()
	var seed *int64
	if a.mode == schema.ModeLeaderboard {
		seed = new(int64(1_234_567))
	}
	payload, err := p.task.Payload(schema.File{Name: plan.SubmissionFile, Text: "pass\n"}, a.mode, nil, seed)
	must(t, err)
	reference, _ := payload.Sources.Get("reference.py")
	reference = p.onCPU(reference)
	for i := range payload.Sources {
		switch f := &payload.Sources[i]; {
		case f.Name == "reference.py":
			f.Text = reference
		case f.Name == plan.SubmissionFile:
			f.Text = p.submission(t, reference, a)
		case f.Name == payload.Main && p.main != "":
			f.Text = p.mainText
		}
	}
	if payload.Tests = p.tests; p.tests == nil {
		payload.Tests = smallest(p.task.Tests)
	}
	if payload.Benchmarks = p.measured; p.measured == nil {
		payload.Benchmarks = payload.Tests[:1]
	}
	payload.TestTimeout, payload.BenchmarkTimeout, payload.RankedTimeout = schema.Seconds(testLimit), schema.Seconds(timedLimit), schema.Seconds(timedLimit)
	return payload
}

// published judges a payload.
func (r *shootingRange) published(t *testing.T, payload *schema.Payload) *schema.Result {
	t.Helper()
	encoded, err := payload.Encode()
	must(t, err)
	s := r.shot(t, r.users[0], attack{Name: "equal", build: func(*int64) string { return encoded }})
	return s.result(t)
}

// smallest are the two cases with the least numbers.
func smallest(cases []schema.Case) []schema.Case {
	size := func(c schema.Case) (product float64) {
		product = 1
		for _, p := range c {
			var n float64
			if _, err := fmt.Sscan(p.Value.Text(), &n); err == nil && p.Name != "seed" && n > 0 {
				product *= n
			}
		}
		return product
	}
	cases = slices.Clone(cases)
	slices.SortStableFunc(cases, func(a, b schema.Case) int { return cmp.Compare(size(a), size(b)) })
	return cases[:min(2, len(cases))]
}

// free matches the part of a report that differs from run to run.
var free = regexp.MustCompile(`\.(mean|std|err|best|worst|runs|error|message)$`)

// shape is what a backend sees of a result, without the figures.
func shape(r *schema.Result) (lines []string) {
	for _, run := range r.Runs {
		lines = append(lines, fmt.Sprintf("%s: success %v, passed %v, exit status %d", run.Name, run.Run.Success, run.Run.Passed, run.Run.ExitCode))
		for _, e := range run.Run.Result {
			if value := e.Value; free.MatchString(e.Key) {
				lines = append(lines, "  "+e.Key)
			} else if strings.Contains(e.Key, ".") || e.Key == "check" || strings.HasSuffix(e.Key, "-count") {
				lines = append(lines, "  "+e.Key+": "+value)
			}
		}
	}
	return append(lines, r.Outcome.Name)
}
