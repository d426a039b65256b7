package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/runner/explain"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// slowControl is how long a control takes at least that shows a slow machine: a
// shorter limit is one that the task's author meant to be short.
const slowControl = 10 * time.Second

// A Control is what was seen of a control run: the phase's harness with the
// task's own solution in place of the submission (plan.Control).
type Control struct {
	Phase   *plan.Phase // as it was planned
	Process *Process

	Called   bool // the harness called the stand-in
	Solution bool // the task has a solution of its own, which was called
	Answered bool // and which returned
}

// NeedsControl reports whether a phase's verdict leaves open who is to blame: a
// harness in Python ended without a verdict, and neither a case that it came to
// the end of nor an error raised in the submission's own lines shows that the
// task works. What looks like the machine's fault is always looked into, for a
// submission can print such words, too.
//
// Everything that this goes by can be made up. So it decides no more than
// whether a control run is made.
func NeedsControl(p *plan.Phase, s *Seen, v *Judgment) bool {
	if p.Compile != nil || s.Test == nil || v.Outcome == nil {
		return false
	}
	switch v.Outcome.Name {
	case schema.OutcomeMissingModule:
		return true // the task may want it, too
	case schema.OutcomeSyntaxError:
		return false
	case schema.OutcomeException, schema.OutcomeCrashed, schema.OutcomeExited, schema.OutcomeKilled, schema.OutcomeOutOfMemory,
		schema.OutcomeTimeout, schema.OutcomeNoVerdict:
	default:
		return false
	}
	errors := s.Test.Stderr.End()
	if MachineFault(errors) {
		return true
	}
	if r, found := raisedIn(p, s.Test); found {
		if file, _ := innermost(p, r); ownFile(file) {
			return false
		}
	}
	report, _ := parseReport(s.Test.Report.Decoded())
	return casesDone(p, report) == 0
}

// Blame says whose fault an ended phase is after its control run: v's outcome
// stays where the control got to a verdict, or cannot tell. It becomes the
// machine's or the task's fault where the task's own solution does not get as
// far as the submission did.
//
// Nothing of the submission is in a control: its files, directories and process
// are new, and the submission's processes are gone. What it says is therefore
// the task's word or the machine's.
func Blame(p *plan.Phase, s *Seen, v *Judgment, c *Control) {
	seen := c.Process
	report, _ := parseReport(seen.Report.Decoded())
	_, decided := report.Get("check")
	switch {
	case seen.How == Canceled || seen.How == OutOfTime:
		return
	case decided || casesDone(c.Phase, report) > 0:
		if v.Outcome.Name == schema.OutcomeTimeout && seen.Duration > max(p.Test.Limit, slowControl) {
			v.Outcome = schema.Outcomef(schema.OutcomeAmbiguous, "the submission passed the time limit of %s, and the task's own solution takes %.1f s for its first case here: the machine is too slow to tell",
				ShownLimit(p.Test.Limit), seen.Duration.Seconds())
			v.Explanation = nil
		}
		return
	}
	errors := seen.Stderr.End()
	r, _, raised := explain.Traceback(errors)
	ended := lastLine(errors) // warnings before it are no reason
	if raised {
		ended = r.Text()
	}
	words := text.Line(ended, shownError)
	if MachineFault(ended) || explain.OutOfMemory(ended) || seen.OutOfMemory {
		if words == "" {
			words = exitWords(seen.ExitCode)
		}
		v.blame(schema.OutcomeMachine, "the task's own solution does not run here either: "+words)
		return
	}
	original, _ := parseReport(s.Test.Report.Decoded())
	switch {
	case casesDone(p, original) > 0: // the submission got further
		return
	case c.Called && !c.Solution: // doing nothing is no answer
		return
	case seen.How == TimedOut && (c.Answered || p.Test.Limit <= 0 || p.Test.Limit > plan.ControlLimit):
		return // the task may need longer
	}
	v.blame(schema.OutcomeHarness, "the task does not work with its own solution either: "+taskFault(c.Phase, seen, r, raised, words))
}

// blame takes the fault from the submission.
func (v *Judgment) blame(name, words string) {
	v.Outcome = schema.Outcomef(name, "%s", words)
	x := &schema.Explanation{Error: explain.Line(words)}
	if v.Explanation != nil {
		x.NotRun = v.Explanation.NotRun
	}
	v.Explanation = x
}

// taskFault says what is wrong with a task, from its control run.
func taskFault(p *plan.Phase, seen *Process, r explain.Raised, raised bool, words string) string {
	switch {
	case seen.How == TimedOut:
		return fmt.Sprintf("it had no answer after %s", ShownLimit(p.Test.Limit))
	case !raised:
		if words != "" {
			words = ": " + words
		}
		return "the tester " + exitWords(seen.ExitCode) + words
	}
	file, line := innermost(p, r)
	where := ""
	if file != "" {
		where = fmt.Sprintf("%s:%d: ", file, line)
	}
	if module := missingModule(r); module != "" && file != "" {
		return fmt.Sprintf("%simports %s, which the image does not have", where, module)
	}
	return where + words
}

// missingModule is the module that an exception says is not there, "" for any
// other exception.
func missingModule(r explain.Raised) string {
	if r.Outcome() != schema.OutcomeMissingModule {
		return ""
	}
	module, _, _ := strings.Cut(strings.TrimPrefix(r.Message, "No module named '"), "'")
	return text.Line(module, shownError)
}

// casesDone counts the cases of which a report says how they ended.
func casesDone(p *plan.Phase, report schema.Report) (n int) {
	for _, e := range report {
		kind, what := newExpectation(p.Mode, "").kind(), e.Key[strings.LastIndexByte(e.Key, '.')+1:]
		if strings.HasPrefix(e.Key, kind+".") && (what == "status" || what == "mean") {
			n++
		}
	}
	return n
}

// machineWords are how drivers and runtimes say that the device or its driver
// does not work, whatever program asks.
var machineWords = []string{
	"no CUDA-capable device", "No CUDA GPUs are available", "Found no NVIDIA driver", "CUDA driver initialization failed",
	"CUDA driver version is insufficient", "CUDA unknown error", "CUDA-capable device(s) is/are busy", "Unexpected error from cudaGetDeviceCount",
	"uncorrectable ECC", "ECC_UNCORRECTABLE", "ECCUncorrectable", "fallen off the bus", "Driver/library version mismatch",
	"CUDA_ERROR_NO_DEVICE", "CUDA_ERROR_SYSTEM_NOT_READY", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA_ERROR_OPERATING_SYSTEM",
	"cudaErrorNoDevice", "cudaErrorDevicesUnavailable", "cudaErrorSystemNotReady", "cudaErrorInsufficientDriver", "cudaErrorInitializationError",
	"No HIP GPUs are available", "hipErrorNoDevice", "hipErrorInsufficientDriver", "CUDA driver error",
}

// MachineFault reports whether a program's errors say that the device or its
// driver does not work.
func MachineFault(errors string) bool {
	return slices.ContainsFunc(machineWords, func(words string) bool { return strings.Contains(errors, words) })
}
