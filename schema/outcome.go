package schema

import (
	"fmt"
	"slices"

	"github.com/gpu-mode/kbgen/schema/text"
)

// Faults: who has to act on an outcome.
const (
	FaultNone       = "none"
	FaultSubmission = "submission" // the submitter: wrong, slow or breaking the rules
	FaultTask       = "task"       // whoever wrote the task's harness
	FaultLauncher   = "launcher"   // whoever made the payload or configured the job
	FaultMachine    = "machine"    // the machine the job ran on
	FaultRunner     = "runner"     // kbrun itself: a bug
	FaultOperator   = "operator"   // somebody ended the job
)

// Faults lists every fault there is.
func Faults() []string {
	return []string{FaultNone, FaultSubmission, FaultTask, FaultLauncher, FaultMachine, FaultRunner, FaultOperator}
}

// An Outcome says how one evaluation ended: result.json's own key beside
// Kernelbot's.
type Outcome struct {
	Name  string // one of Outcomes
	Fault string // one of Faults
	Retry bool   // the same job may end differently elsewhere
	Text  string // one line for people; may quote the submission's output, cleaned
	Phase string // the run's key where it ended, "profile.0"; "" outside of all phases
}

// Names of outcomes.
const (
	OutcomePassed        = "passed"
	OutcomeWrong         = "wrong"
	OutcomeRecheckFailed = "recheck-failed"
	OutcomeSyntaxError   = "syntax-error"
	OutcomeMissingModule = "missing-module"
	OutcomeException     = "exception"
	OutcomeExited        = "exited"
	OutcomeCrashed       = "crashed"
	OutcomeKilled        = "killed"
	OutcomeOutOfMemory   = "out-of-memory"
	OutcomeOutOfDisk     = "out-of-disk"
	OutcomeTimeout       = "timeout"
	OutcomeNoVerdict     = "no-verdict"
	OutcomeInconsistent  = "inconsistent"
	OutcomeForged        = "forged"
	OutcomeReportTooLong = "report-too-long"
	OutcomeOutputTooLong = "output-too-long"
	OutcomeCompileFailed = "compile-failed"
	OutcomeCompileTime   = "compile-timeout"
	OutcomeOutOfTime     = "out-of-time"
	OutcomeHarness       = "harness-fault"
	OutcomeBadPayload    = "bad-payload"
	OutcomeUnsupported   = "unsupported"
	OutcomeNoCompiler    = "no-compiler"
	OutcomeNoProfiler    = "no-profiler"
	OutcomeAmbiguous     = "ambiguous"
	OutcomeWrongMachine  = "wrong-machine"
	OutcomeGPUMissing    = "gpu-missing"
	OutcomeGPUUnhealthy  = "gpu-unhealthy"
	OutcomeGPUBusy       = "gpu-busy"
	OutcomeWeakSandbox   = "weak-sandbox"
	OutcomeDiskFull      = "disk-full"
	OutcomeMachine       = "machine"
	OutcomeRunner        = "runner-fault"
	OutcomeCanceled      = "canceled"
)

// Outcomes lists every outcome there is. Text holds the words used when the
// runner has nothing more exact to say. docs/outcomes.md is made from it.
func Outcomes() []Outcome {
	outcome := func(name, fault string, retry bool, text string) Outcome {
		return Outcome{Name: name, Fault: fault, Retry: retry, Text: text}
	}
	return []Outcome{
		outcome(OutcomePassed, FaultNone, false, "every phase passed"),

		outcome(OutcomeWrong, FaultSubmission, false, "a case failed its check: the answer is wrong"),
		outcome(OutcomeRecheckFailed, FaultSubmission, false, "the answers passed the tests and were wrong when they were checked again while being timed"),
		outcome(OutcomeSyntaxError, FaultSubmission, false, "the submission is not valid Python"),
		outcome(OutcomeMissingModule, FaultSubmission, false, "the submission imports a module that the image does not have"),
		outcome(OutcomeException, FaultSubmission, false, "the submission raised an exception"),
		outcome(OutcomeExited, FaultSubmission, false, "the submission ended its own process"),
		outcome(OutcomeCrashed, FaultSubmission, false, "the program ended with an error before it had a verdict"),
		outcome(OutcomeKilled, FaultSubmission, false, "the program was ended by a signal, like a segmentation fault"),
		outcome(OutcomeOutOfMemory, FaultSubmission, false, "the program wanted more memory than a job may have"),
		outcome(OutcomeOutOfDisk, FaultSubmission, false, "the program filled the disk that a job has"),
		outcome(OutcomeTimeout, FaultSubmission, false, "a phase passed its time limit"),
		outcome(OutcomeNoVerdict, FaultSubmission, false, "the program ended well and without a verdict, as if it had left early"),
		outcome(OutcomeInconsistent, FaultSubmission, false, "the report contradicts itself"),
		outcome(OutcomeForged, FaultSubmission, false, "the report does not agree with what the judge saw happen"),
		outcome(OutcomeReportTooLong, FaultSubmission, false, "the report is longer than allowed"),
		outcome(OutcomeOutputTooLong, FaultSubmission, false, "the program printed more than allowed"),
		outcome(OutcomeCompileFailed, FaultSubmission, false, "the submission does not compile"),
		outcome(OutcomeCompileTime, FaultSubmission, false, "compiling took longer than its limit"),
		outcome(OutcomeOutOfTime, FaultSubmission, false, "the job's whole time ran out before the last phase ended"),

		outcome(OutcomeHarness, FaultTask, false, "the task's own harness did not work; this is not the submission's fault"),
		outcome(OutcomeBadPayload, FaultLauncher, false, "the payload cannot be used"),
		outcome(OutcomeUnsupported, FaultLauncher, false, "this machine or runner cannot do what the payload asks"),

		outcome(OutcomeNoCompiler, FaultMachine, true, "the machine has no working compiler for this submission"),
		outcome(OutcomeNoProfiler, FaultMachine, true, "the machine has no working profiler"),
		outcome(OutcomeAmbiguous, FaultMachine, true, "the machine was too busy to measure times that hold"),
		outcome(OutcomeWrongMachine, FaultMachine, true, "the machine is not of the GPU type that the job is for"),
		outcome(OutcomeGPUMissing, FaultMachine, true, "the machine shows no GPU"),
		outcome(OutcomeGPUUnhealthy, FaultMachine, true, "the machine's GPU is not healthy"),
		outcome(OutcomeGPUBusy, FaultMachine, true, "another process uses the machine's GPU"),
		outcome(OutcomeWeakSandbox, FaultMachine, true, "the machine cannot shut a submission in as its GPU type requires"),
		outcome(OutcomeDiskFull, FaultMachine, true, "the machine's disk is full"),
		outcome(OutcomeMachine, FaultMachine, true, "the machine could not run the evaluation"),
		outcome(OutcomeRunner, FaultRunner, true, "the judge itself failed; this is a bug in kbrun"),
		outcome(OutcomeCanceled, FaultOperator, true, "the job was ended from outside"),
	}
}

// NewOutcome returns the outcome of that name with words in place of its usual
// ones, unless words is empty. A name that is not in [Outcomes] is a fault of
// the caller and becomes OutcomeRunner, saying so.
func NewOutcome(name, words string) Outcome {
	all := Outcomes()
	at := slices.IndexFunc(all, func(o Outcome) bool { return o.Name == name })
	if at < 0 {
		return NewOutcome(OutcomeRunner, fmt.Sprintf("no outcome is called %q", name))
	}
	o := all[at]
	if words != "" {
		o.Text = text.Storable(words)
	}
	return o
}

// Outcomef is [NewOutcome] with its words formatted, for those to whom no
// outcome is nil.
func Outcomef(name, format string, args ...any) *Outcome {
	o := NewOutcome(name, fmt.Sprintf(format, args...))
	return &o
}

// ExitStatus is what kbrun exits with: 0 for every verdict, [ExitTempFail] when
// the job gave none and may give one elsewhere, [ExitConfig] for a payload that
// can work nowhere.
func (o Outcome) ExitStatus() int {
	switch {
	case o.Retry:
		return ExitTempFail
	case o.Fault == FaultLauncher:
		return ExitConfig
	}
	return 0
}
