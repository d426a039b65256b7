package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/runner/explain"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

var taskFiles = schema.Files{
	{Name: "eval.py", Text: "import reference\n"},
	{Name: "reference.py", Text: "import aiter\n"},
	{Name: "submission.py", Text: "import torch\n\ndef custom_kernel(data):\n    return data @ data\n"},
}

func legacy(seed *int64) *plan.Phase {
	return &plan.Phase{
		Name: "test", Mode: schema.ModeTest, Cases: "n: 1\nn: 2\nn: 3\n", Files: taskFiles,
		Test: &plan.Command{Argv: []string{"python3", "eval.py"}, Limit: 10 * time.Second, Harness: true, Seed: seed},
	}
}

// traceback is how Python ends for an error; frames are "file:line:function".
func traceback(text string, frames ...string) string {
	var b strings.Builder
	b.WriteString("Traceback (most recent call last):\n")
	for _, f := range frames {
		part := strings.SplitN(f, ":", 3)
		b.WriteString(`  File "/tmp/w/` + part[0] + `", line ` + part[1])
		if part[2] != "" {
			b.WriteString(", in " + part[2])
		}
		b.WriteString("\n    source\n")
	}
	return b.String() + text + "\n"
}

const twoOfThree = "test-count: 3\ntest.0.spec: n: 1\ntest.0.status: pass\ntest.1.spec: n: 2\n"

// Every kind of failure has its own outcome, its author is told where it
// happened, and of a run with a secret seed nothing but case numbers.
func TestKindsOfFailure(t *testing.T) {
	later := []schema.NotRun{{Case: "test.2", Why: "the program ended in an earlier case"}}
	for _, tt := range []struct {
		name    string
		seen    Process
		outcome string
		text    string
		want    *schema.Explanation
	}{
		{"syntax error", Process{ExitCode: 1, Stderr: wrote(traceback("SyntaxError: invalid syntax", "eval.py:1:<module>", "submission.py:3:"))},
			schema.OutcomeSyntaxError, "submission.py:3: SyntaxError: invalid syntax", &schema.Explanation{
				File: "submission.py", Line: 3, Source: "def custom_kernel(data):", Error: "SyntaxError: invalid syntax", Traceback: []string{"submission.py:3: def custom_kernel(data):"},
				NotRun: explain.NotRun("test", 0, 3, "the program ended before its first case")}},
		{"missing module", Process{ExitCode: 1, Stderr: wrote(traceback("ModuleNotFoundError: No module named 'aiter'", "submission.py:1:<module>"))},
			schema.OutcomeMissingModule, "submission.py:1: ModuleNotFoundError: No module named 'aiter'", nil},
		{"exception", Process{ExitCode: 1, Stdout: wrote("here\n"), Report: wrote(twoOfThree), Stderr: wrote(traceback("ValueError: bad", "eval.py:9:main", "submission.py:4:custom_kernel", "../lib/torch/x.py:77:mm"))},
			schema.OutcomeException, "submission.py:4: ValueError: bad", &schema.Explanation{
				File: "submission.py", Line: 4, Source: "return data @ data", Error: "ValueError: bad", Traceback: []string{"submission.py:4 in custom_kernel: return data @ data"},
				Printed: "here", NotRun: later}},
		{"out of memory", Process{ExitCode: 1, Report: wrote(twoOfThree), Stderr: wrote(traceback("torch.OutOfMemoryError: CUDA out of memory.", "submission.py:4:custom_kernel"))},
			schema.OutcomeOutOfMemory, "submission.py:4: torch.OutOfMemoryError: CUDA out of memory.", nil},
		{"an answer that the check cannot take", Process{ExitCode: 1, Report: wrote(twoOfThree), Stderr: wrote(traceback("AttributeError: no shape", "eval.py:9:main", "reference.py:1:check"))},
			schema.OutcomeCrashed, "the tester ended with status 1: AttributeError: no shape", &schema.Explanation{Error: "AttributeError: no shape", NotRun: later}},
		{"segmentation fault", Process{ExitCode: -11, Report: wrote(twoOfThree), Stderr: wrote("a word\n")},
			schema.OutcomeKilled, "signal 11", &schema.Explanation{Printed: "a word", NotRun: later}},
		{"left with a status", Process{ExitCode: 7, Report: wrote(twoOfThree)}, schema.OutcomeExited, "ended its own process: the tester ended with status 7", &schema.Explanation{NotRun: later}},
		{"left with words", Process{ExitCode: 1, Stderr: wrote("no tensor\n")}, schema.OutcomeExited, "status 1: no tensor", nil},
		{"left well", Process{Shared: true}, schema.OutcomeExited, "ended the tester's process with status 0, before it had a verdict", nil},
		{"hang", Process{How: TimedOut, ExitCode: ExitTimeout, Report: wrote(twoOfThree), Stdout: wrote("step 1\n")}, schema.OutcomeTimeout, "passed the time limit of 10s", &schema.Explanation{
			Printed: "step 1", NotRun: []schema.NotRun{{Case: "test.2", Why: "the time ran out in an earlier case"}}}},
		{"wrong", Process{ExitCode: 112, Report: wrote(twoOfThree + "test.1.status: fail\ntest.1.error: ERROR AT (0, 1): 0.5 0.25\ncheck: fail\n")}, schema.OutcomeWrong, "test.1 failed (n: 2): ERROR AT (0, 1): 0.5 0.25", &schema.Explanation{
			Error: "ERROR AT (0, 1): 0.5 0.25", Expected: "0.25", Got: "0.5 at (0, 1)", NotRun: []schema.NotRun{{Case: "test.2", Why: "test.1 failed"}}}},
		{"forged", Process{Report: wrote("test-count: 1\ncheck: pass\n"), Stdout: wrote("x\n")}, schema.OutcomeForged, `test-count is "1"`, &schema.Explanation{Printed: "x"}},
	} {
		v := Phase(legacy(nil), &Seen{Test: &tt.seen})
		if v.Outcome == nil || v.Outcome.Name != tt.outcome || !strings.Contains(v.Outcome.Text, tt.text) || v.Outcome.Fault != schema.FaultSubmission {
			t.Errorf("%s: outcome %+v, want %q with %q", tt.name, v.Outcome, tt.outcome, tt.text)
			continue
		}
		if diff := cmp.Diff(tt.want, v.Explanation); tt.want != nil && diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		s := Phase(legacy(new(int64)), &Seen{Test: &tt.seen})
		if s.Outcome == nil || s.Outcome.Name != tt.outcome {
			t.Errorf("%s, with a secret seed: outcome %+v, want %q", tt.name, s.Outcome, tt.outcome)
		}
		notRun := v.Explanation.NotRun
		if diff := cmp.Diff(&schema.Explanation{NotRun: notRun, Withheld: schema.WithheldWhy}, s.Explanation); diff != "" {
			t.Errorf("%s, with a secret seed (-want +got):\n%s", tt.name, diff)
		}
		for _, told := range []string{"bad", "here", "aiter", "word", "tensor", "0.25", "n: 2", "step", `"1"`, "invalid", "shape", "CUDA"} {
			if strings.Contains(s.Outcome.Text, told) {
				t.Errorf("%s, with a secret seed: the outcome tells %q: %q", tt.name, told, s.Outcome.Text)
			}
		}
	}
}

// A traceback that the submission only prints leaves the fault where it is.
func TestPrintedTracebacksMoveNoFault(t *testing.T) {
	for _, printed := range []string{
		traceback("ModuleNotFoundError: No module named 'aiter'", "eval.py:1:<module>", "reference.py:1:<module>"),
		traceback("RuntimeError: CUDA driver error: no CUDA-capable device", "eval.py:1:<module>"),
		"CUDA driver error\nuncorrectable ECC error encountered\n",
		traceback("SyntaxError: bad", "reference.py:1:"),
		traceback("MemoryError", "eval.py:1:<module>"),
		"PermissionError: the task's harness did not work\n",
	} {
		for _, seen := range []Process{
			{ExitCode: 1}, {ExitCode: 7}, {ExitCode: 110}, {ExitCode: 111}, {ExitCode: 113}, {ExitCode: -6}, {ExitCode: 0}, {ExitCode: 112}, {How: TimedOut, ExitCode: ExitTimeout},
		} {
			seen.Stderr, seen.Stdout = wrote(printed), wrote(printed)
			s := &Seen{Test: &seen}
			p := legacy(nil)
			v := Phase(p, s)
			if v.Outcome == nil || v.Outcome.Fault != schema.FaultSubmission {
				t.Errorf("status %d, printed %q: %+v", seen.ExitCode, printed, v.Outcome)
				continue
			}
			if !NeedsControl(p, s, &v) {
				continue
			}
			before := *v.Outcome
			Blame(p, s, &v, control("test-count: 1\ntest.0.spec: n: 1\ntest.0.status: pass\ncheck: pass\n", Process{}))
			if *v.Outcome != before {
				t.Errorf("status %d, printed %q: the control passed, and %+v became %+v", seen.ExitCode, printed, before, v.Outcome)
			}
		}
	}
}

// control is what a control run was seen to be.
func control(report string, seen Process) *Control {
	p := legacy(nil)
	p.Cases, p.Test.Limit = "n: 1\n", plan.ControlLimit
	seen.Report = wrote(report)
	return &Control{Phase: p, Process: &seen}
}

func TestBlame(t *testing.T) {
	aiter := traceback("ModuleNotFoundError: No module named 'aiter'", "eval.py:1:<module>", "reference.py:1:<module>")
	crash := Process{ExitCode: 1, Stderr: wrote(aiter)}
	with := func(c *Control, called, solution, answered bool) *Control {
		c.Called, c.Solution, c.Answered = called, solution, answered
		return c
	}
	for _, tt := range []struct {
		name    string
		seen    Process
		control *Control
		outcome string
		text    string
	}{
		{"a module that the task wants", crash, control("", crash), schema.OutcomeHarness, "reference.py:1: imports aiter, which the image does not have"},
		{"the task works", crash, control("test.0.status: pass\ncheck: pass\n", Process{}), schema.OutcomeCrashed, ""},
		{"the task says that its own solution is wrong", crash, control("test.0.status: fail\ncheck: fail\n", Process{ExitCode: 112}), schema.OutcomeCrashed, ""},
		{"the task has no solution to call", crash, with(control("", Process{ExitCode: 1, Stderr: wrote(traceback("AttributeError: None", "eval.py:5:main"))}), true, false, false), schema.OutcomeCrashed, ""},
		{"its solution raises", crash, with(control("", Process{ExitCode: 1, Stderr: wrote(traceback("KeyError: 1", "submission.py:9:custom_kernel", "reference.py:7:ref_kernel"))}), true, true, false), schema.OutcomeHarness, "reference.py:7: KeyError: 1"},
		{"no device", crash, control("", Process{ExitCode: 1, Stderr: wrote(traceback("RuntimeError: No CUDA GPUs are available", "eval.py:5:main"))}), schema.OutcomeMachine, "No CUDA GPUs are available"},
		{"a warning about a device is no reason", crash, control("", Process{ExitCode: 1, Stderr: wrote("UserWarning: Found no NVIDIA driver\n" + aiter)}), schema.OutcomeHarness, "imports aiter"},
		{"no memory", crash, control("", Process{ExitCode: 1, Stderr: wrote(traceback("torch.OutOfMemoryError: CUDA out of memory", "reference.py:5:ref_kernel"))}), schema.OutcomeMachine, "out of memory"},
		{"ended by the kernel", crash, control("", Process{ExitCode: -9, OutOfMemory: true}), schema.OutcomeMachine, "signal 9"},
		{"cannot read the cases", Process{ExitCode: 113}, control("", Process{ExitCode: 113}), schema.OutcomeHarness, "status 113 (it cannot read the cases)"},
		{"left with the status for bad cases", Process{ExitCode: 113}, control("check: pass\n", Process{}), schema.OutcomeExited, ""},
		{"out of the job's time", crash, control("", Process{How: OutOfTime, ExitCode: ExitTimeout}), schema.OutcomeCrashed, ""},
		{"canceled", crash, control("", Process{How: Canceled, ExitCode: ExitTimeout}), schema.OutcomeCrashed, ""},
		{"the task hangs", Process{How: TimedOut, ExitCode: ExitTimeout}, control("", Process{How: TimedOut, ExitCode: ExitTimeout}), schema.OutcomeHarness, "no answer after 2m0s"},
		{"the task answers, and is slow", Process{How: TimedOut, ExitCode: ExitTimeout}, with(control("", Process{How: TimedOut, ExitCode: ExitTimeout}), true, true, true), schema.OutcomeTimeout, ""},
		{"the submission hangs", Process{How: TimedOut, ExitCode: ExitTimeout}, control("check: pass\n", Process{Duration: time.Second}), schema.OutcomeTimeout, ""},
		{"the machine is slow", Process{How: TimedOut, ExitCode: ExitTimeout}, control("check: pass\n", Process{Duration: 11 * time.Second}), schema.OutcomeAmbiguous, "takes 11.0 s"},
	} {
		p, s := legacy(nil), &Seen{Test: &tt.seen}
		v := Phase(p, s)
		if !NeedsControl(p, s, &v) {
			t.Errorf("%s: %+v needs no control", tt.name, v.Outcome)
			continue
		}
		Blame(p, s, &v, tt.control)
		if v.Outcome.Name != tt.outcome || !strings.Contains(v.Outcome.Text, tt.text) {
			t.Errorf("%s: %+v, want %q with %q", tt.name, v.Outcome, tt.outcome, tt.text)
		}
		if moved := v.Outcome.Fault != schema.FaultSubmission; moved && v.Explanation != nil && (v.Explanation.File != "" || v.Explanation.Traceback != nil) {
			t.Errorf("%s: the submitter is shown his file: %+v", tt.name, v.Explanation)
		}
	}
	// A limit that is meant to be short says nothing of the machine.
	hang := &Seen{Test: &Process{How: TimedOut, ExitCode: ExitTimeout}}
	short := legacy(nil)
	short.Test.Limit = time.Second
	w := Phase(short, hang)
	if Blame(short, hang, &w, control("check: pass\n", Process{Duration: 9 * time.Second})); w.Outcome.Name != schema.OutcomeTimeout {
		t.Errorf("after a control of 9 s, with a limit of 1 s: %+v", w.Outcome)
	}
	// A submission that got further than the control is its own doing.
	further := Process{ExitCode: 1, Report: wrote(twoOfThree), Stderr: wrote("RuntimeError: No CUDA GPUs are available\n")}
	p, s := legacy(nil), &Seen{Test: &further}
	v := Phase(p, s)
	if !NeedsControl(p, s, &v) {
		t.Error("words of a driver are not looked into")
	}
	if Blame(p, s, &v, control("", crash)); v.Outcome.Fault != schema.FaultSubmission {
		t.Errorf("after a case that was done: %+v", v.Outcome)
	}
}

// No control is made for what has a verdict, and for what speaks for itself.
func TestNeedsNoControl(t *testing.T) {
	for name, seen := range map[string]Process{
		"a pass":               {Report: wrote("test-count: 3\ntest.0.spec: n: 1\ntest.0.status: pass\ntest.1.spec: n: 2\ntest.1.status: pass\ntest.2.spec: n: 3\ntest.2.status: pass\ncheck: pass\n")},
		"a wrong answer":       {ExitCode: 112, Report: wrote("test.0.status: fail\ncheck: fail\n")},
		"a forged report":      {Report: wrote("check: pass\n")},
		"his own exception":    {ExitCode: 1, Stderr: wrote(traceback("ValueError: bad", "eval.py:1:main", "submission.py:4:custom_kernel"))},
		"his own syntax":       {ExitCode: 1, Stderr: wrote(traceback("SyntaxError: bad", "eval.py:1:main", "submission.py:4:"))},
		"a crash after a case": {ExitCode: -11, Report: wrote(twoOfThree)},
		"out of time":          {How: OutOfTime, ExitCode: ExitTimeout},
		"canceled":             {How: Canceled, ExitCode: ExitTimeout},
	} {
		p, s := legacy(nil), &Seen{Test: &seen}
		if v := Phase(p, s); NeedsControl(p, s, &v) {
			t.Errorf("%s: %+v", name, v.Outcome)
		}
	}
}

func TestCompileExplanation(t *testing.T) {
	p := &plan.Phase{Files: schema.Files{{Name: "eval.cu", Text: "int main() {}\n"}, {Name: "submission.cu", Text: "\nint x = y;\n"}}}
	for stderr, want := range map[string]*schema.Explanation{
		"nvcc warning : old\nsubmission.cu(2): error: identifier \"y\" is undefined\n\n1 error detected": {File: "submission.cu", Line: 2, Source: "int x = y;", Error: `submission.cu:2: error: identifier "y" is undefined`},
		"In file included from eval.cu:1:\n/tmp/w/submission.cu:2:9: error: use of 'y'\n":                {File: "submission.cu", Line: 2, Source: "int x = y;", Error: "submission.cu:2: error: use of 'y'"},
		"eval.cu(1): error: no kernel\n": {Error: "eval.cu:1: error: no kernel"},
		"ld: undefined reference\n":      nil,
	} {
		if diff := cmp.Diff(want, compileExplanation(p, stderr)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", stderr, diff)
		}
	}
}
