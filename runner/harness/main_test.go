package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	os.Exit(m.Run())
}

// addReference is a task: two arrays, their sum.
const addReference = `
import random
from array import array


def generate_input(n, seed):
    draw = random.Random(seed).random
    return tuple(array("f", [2 * draw() - 1 for _ in range(n)]) for _ in "ab")


def check_implementation(data, output):
    a, b = data
    if type(output) is not array or output.typecode != "f" or len(output) != len(a):
        return False, f"got {describe(output)}, want {len(a)} float32"
    for i, (x, y, got) in enumerate(zip(a, b, output)):
        if not abs(x + y - got) <= 1e-6:
            return False, f"element {i} of {len(a)}: got {got:.9g}, want {x + y:.9g}"
    return True, ""


def describe(output):
    if type(output) is array:
        return f"{len(output)} elements of type {output.typecode!r}"
    return type(output).__name__
`

// right answers it.
const right = `
from array import array


def custom_kernel(data):
    a, b = data
    return array("f", [x + y for x, y in zip(a, b)])
`

func ints(pairs ...any) (c schema.Case) {
	for i := 0; i+1 < len(pairs); i += 2 {
		c = append(c, schema.Param{Name: pairs[i].(string), Value: schema.IntValue(int64(pairs[i+1].(int)))})
	}
	return c
}

func addPayload(submission string, cases ...schema.Case) *schema.Payload {
	return &schema.Payload{
		Lang: schema.LangPython, Mode: schema.ModeTest, Extension: schema.Extension{Harness: schema.HarnessIsolated}, RankingBy: schema.RankGeom,
		Sources: schema.Files{{Name: plan.SubmissionFile, Text: submission}, {Name: referenceFile, Text: addReference}},
		Tests:   cases, Benchmarks: cases,
	}
}

// sessions are open.
var sessions int

// open starts a session that ends with the test, and what Open said.
func open(t *testing.T, variant string, p *schema.Payload) (*Session, error) {
	t.Helper()
	python := testenv.Python(t)
	dir, err := os.MkdirTemp("", "kbharness-")
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o711) // judge and worker pass through it
	sessions++
	environ := []string{"PATH=" + filepath.Dir(python) + ":" + os.Getenv("PATH")}
	s, err := Open(t.Context(), Options{Payload: p, Variant: variant, Sandbox: sandbox.Options{Environ: environ}, Dir: dir, Python: python, Environ: environ})
	t.Cleanup(func() {
		if s != nil {
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		os.RemoveAll(dir)
		if sessions--; sessions > 0 {
			return
		}
		for _, d := range sandbox.Descendants(os.Getpid()) {
			t.Errorf("a process is left: %+v", d)
		}
	})
	return s, err
}

// needGuards skips a test for which the sandbox of this machine is too weak.
func needGuards(t *testing.T, s *Session, guards ...string) {
	t.Helper()
	report := s.Report()
	if report == nil {
		t.Fatal("no sandbox yet")
	}
	for _, guard := range guards {
		if !slices.Contains(report.Held, guard) {
			t.Skipf("NOT RUN: the sandbox here lacks %q", guard)
		}
	}
}

func mustOpen(t *testing.T, variant string, p *schema.Payload) *Session {
	t.Helper()
	s, err := open(t, variant, p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A phaseResult is what a phase came to, as package judge has it.
type phaseResult struct {
	*Run
	outcome string // "passed", "wrong" or that of the Run
	text    string
	report  map[string]string
	keys    []string // in order
}

var phases int

// phase judges a submission with an open session; every phase has a name of its
// own.
func phase(t *testing.T, s *Session, mode, submission string, p *schema.Payload) phaseResult {
	t.Helper()
	s.o.Payload = p
	for i := range p.Sources {
		if p.Sources[i].Name == plan.SubmissionFile {
			p.Sources[i].Text = submission
		}
	}
	p.Mode = mode
	ph := planOf(p, s)
	phases++
	ph.Name = fmt.Sprintf("%s.%d", mode, phases)
	run, err := s.Phase(t.Context(), &ph)
	if err != nil {
		t.Fatalf("Phase: %v", err)
	}
	r := phaseResult{Run: run, outcome: schema.OutcomePassed, report: map[string]string{}}
	v := judge.Phase(&ph, &judge.Seen{Test: &run.Process})
	if o := v.Outcome; run.Outcome != nil {
		r.outcome, r.text = run.Outcome.Name, run.Outcome.Text
	} else if o != nil {
		r.outcome, r.text = o.Name, o.Text
	}
	for line := range strings.Lines(string(run.Process.Report.Head)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if slices.Contains(r.keys, key) {
			t.Errorf("the report has %q twice", key)
		}
		r.keys, r.report[key] = append(r.keys, key), value
	}
	return r
}

// timed runs a phase that measures. If a busy machine makes it ambiguous, timed runs it
// again, as a job is, up to three times in all. The caller handles a third ambiguous result.
func timed(t *testing.T, s *Session, mode, submission string, p *schema.Payload) phaseResult {
	t.Helper()
	for again := 0; ; again++ {
		r := phase(t, s, mode, submission, p)
		if r.outcome != schema.OutcomeAmbiguous || again == 2 {
			return r
		}
		t.Logf("the machine is too busy to measure: %s", r.text)
	}
}

func (r phaseResult) want(t *testing.T, outcome, text string) {
	t.Helper()
	if r.outcome != outcome || !strings.Contains(r.text, text) {
		t.Errorf("got %s: %q, want %s with %q\nreport: %v", r.outcome, r.text, outcome, text, r.report)
	}
}

// planOf is the last phase of a payload's mode.
func planOf(p *schema.Payload, s *Session) plan.Phase {
	planned := plan.New(p, plan.Machine{Root: s.o.Dir, Environ: s.o.Environ})
	return planned[len(planned)-1]
}
