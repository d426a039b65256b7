package runner_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
)

// publishedVar names a checkout of gpu-mode/reference-kernels, which this
// repository holds nothing of.
const publishedVar = "KBGEN_PUBLISHED_TASKS"

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

// answers are submissions made of a task's own reference: one that is right, and
// one whose first number is wrong.
var answers = map[string]string{
	"right": "\ncustom_kernel = ref_kernel\n",
	"wrong": `

def custom_kernel(data):
    def spoil(x):
        if isinstance(x, (tuple, list)):
            return type(x)([spoil(x[0]), *x[1:]])
        x = x.clone()
        x.view(-1)[0] += 1000
        return x

    return spoil(ref_kernel(data))
`,
}

// TestSlowEqualVerdicts holds the isolated harness against the main files of
// published tasks that can be run on a CPU: same verdict, same keys in the same
// order, same exit status. It wants a checkout and a python3 with torch.
func TestSlowEqualVerdicts(t *testing.T) {
	root := os.Getenv(publishedVar)
	if root == "" {
		t.Skip("wants a checkout of gpu-mode/reference-kernels in " + publishedVar)
	}
	var dirs []string
	must(t, filepath.WalkDir(filepath.Join(root, "problems"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == task.FileName {
			dirs = append(dirs, filepath.Dir(path))
		}
		return err
	}))
	r := newRange(t)
	for _, dir := range dirs {
		name, _ := filepath.Rel(filepath.Join(root, "problems"), dir)
		t.Run(name, func(t *testing.T) { r.equal(t, name, dir) })
	}
}

func (r *shootingRange) equal(t *testing.T, name, dir string) {
	loaded, err := task.LoadDir(dir)
	if err != nil {
		t.Skip(err)
	}
	for _, answer := range []string{"right", "wrong"} {
		for _, mode := range []string{schema.ModeTest, schema.ModeLeaderboard} {
			t.Run(answer+"/"+mode, func(t *testing.T) {
				legacy, skip := r.published(t, loaded, answer, mode, schema.HarnessLegacy)
				if skip != "" {
					t.Skip(skip)
				}
				isolated, skip := r.published(t, loaded, answer, mode, "")
				if isolated.Harness == nil || isolated.Harness.Name != schema.HarnessIsolated {
					t.Skipf("stays legacy: %+v %s", isolated.Harness, skip)
				}
				a, b := shape(legacy), shape(isolated)
				t.Logf("legacy %s, isolated %s (%.1f and %.1f s)", legacy.Outcome.Name, isolated.Outcome.Name, legacy.Timing.Total, isolated.Timing.Total)
				if !slices.Equal(a, b) {
					t.Errorf("legacy:\n%s\nisolated:\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
				}
			})
		}
	}
}

// device is how a reference names the GPU.
var device = regexp.MustCompile(`(["'])cuda(:0)?(["'])`)

// published judges one answer to a published task, made to run on a CPU. skip
// says why the task itself does not.
func (r *shootingRange) published(t *testing.T, loaded *task.Task, answer, mode, harness string) (result *schema.Result, skip string) {
	t.Helper()
	p, err := loaded.Payload(schema.File{Name: "submission.py", Text: "pass\n"}, mode, nil, nil)
	must(t, err)
	p.Harness = harness
	reference, _ := p.Sources.Get("reference.py")
	reference = device.ReplaceAllString(reference, "${1}cpu${3}")
	if strings.Contains(reference, "@") || strings.Contains(reference, "matmul") { // a CPU multiplies no half numbers
		reference = strings.ReplaceAll(reference, "torch.float16", "torch.float32")
	}
	if !strings.Contains(reference, "def ref_kernel") {
		return nil, "the reference has no ref_kernel"
	}
	for i := range p.Sources {
		switch f := &p.Sources[i]; f.Name {
		case "reference.py":
			f.Text = reference
		case "submission.py":
			f.Text = reference + answers[answer]
		case "utils.py":
			if harness == schema.HarnessLegacy {
				f.Text += cudaStandIns
			}
		}
	}
	p.Tests, p.Benchmarks = smallest(p.Tests), smallest(p.Benchmarks)[:1]
	p.TestTimeout, p.BenchmarkTimeout, p.RankedTimeout = schema.Seconds(60), schema.Seconds(90), schema.Seconds(90)
	encoded, err := p.Encode()
	must(t, err)
	s := r.shot(t, r.users[0], attack{Name: "equal", build: func(*int64) string { return encoded }})
	result = s.result(t)
	if harness == schema.HarnessLegacy && (answer == "right" && result.Outcome.Name != schema.OutcomePassed || result.Outcome.Fault == schema.FaultTask || result.Outcome.Fault == schema.FaultMachine) {
		return result, "its own harness does not pass its own reference here: " + result.Outcome.Text
	}
	return result, ""
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
	slices.SortStableFunc(cases, func(a, b schema.Case) int { return int(max(-1, min(1, size(a)-size(b)))) })
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
