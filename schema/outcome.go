package schema

import (
	"fmt"

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
	OutcomeRejected      = "rejected" // by kbserve's hook or an admin, before anything ran
)

// A Cause says what decided an outcome, if the details shown depend on it.
type Cause int

// Causes.
const (
	CauseOther  Cause = iota // nothing that changes the details
	CauseAnswer              // a case failed its check: the first failure and both values are shown
	CauseTime                // a time limit: cases that did not run lacked time
	CauseReport              // the report cannot be believed, so nothing that it says is shown
)

// A Disclosure says whether the text of an outcome may be shown after a run with a
// secret seed.
type Disclosure int

// Disclosures.
const (
	Withheld Disclosure = iota // replaced by the row's text: a submission may have chosen its words
	Shown                      // made of limits and exit statuses
)

// An outcomeRow is all that follows from an outcome.
type outcomeRow struct {
	Outcome
	cause      Cause
	disclosure Disclosure
	next       string // what the reader can do, in one sentence
}

// What the reader can do about several outcomes.
const (
	tellOperator = "Nothing in your code: tell whoever runs the competition."
	tellAuthor   = "Nothing: tell the task's author. Your submission was not judged."
	otherMachine = "Nothing: the job is run again on another machine. Your submission was not judged."
	runAgain     = "Nothing: the job is run again. Your submission was not judged."
	runYourself  = "This was not your submission's fault, and it was not judged. Run it again."
	submitAgain  = "Submit again if you did not end it yourself."
	correct      = "Correct the submission, and submit again."
)

// outcomes has one row for each outcome. Another machine is tried only if the fault
// is the machine's, the runner's or the operator's.
var outcomes = func() []outcomeRow {
	row := func(name, fault string, cause Cause, disclosure Disclosure, text, next string) outcomeRow {
		retry := fault == FaultMachine || fault == FaultRunner || fault == FaultOperator
		return outcomeRow{Outcome{Name: name, Fault: fault, Retry: retry, Text: text}, cause, disclosure, next}
	}
	return []outcomeRow{
		row(OutcomePassed, FaultNone, CauseOther, Withheld, "every phase passed",
			""),
		row(OutcomeWrong, FaultSubmission, CauseAnswer, Withheld, "a case failed its check: the answer is wrong",
			"Compare your answer with the reference for the case that failed, and submit again."),
		row(OutcomeRecheckFailed, FaultSubmission, CauseAnswer, Withheld, "the answers passed the tests and were wrong when they were checked again while being timed",
			"Look for what depends on earlier calls: the answer has to be right for new inputs every time, also while it is timed."),
		row(OutcomeSyntaxError, FaultSubmission, CauseOther, Withheld, "the submission is not valid Python",
			"Correct the line shown, and submit again."),
		row(OutcomeMissingModule, FaultSubmission, CauseOther, Withheld, "the submission imports a module that the image does not have",
			"Use the modules that the task's image has, or ask its author to add this one."),
		row(OutcomeException, FaultSubmission, CauseOther, Withheld, "the submission raised an exception",
			"Correct what the line shown raises, and submit again."),
		row(OutcomeExited, FaultSubmission, CauseOther, Withheld, "the submission ended its own process",
			"Return from custom_kernel: a submission must not end its process."),
		row(OutcomeCrashed, FaultSubmission, CauseOther, Withheld, "the program ended with an error before it had a verdict",
			"Check the type, shape and number of what you return, and what your submission prints before it ends."),
		row(OutcomeKilled, FaultSubmission, CauseOther, Withheld, "the program was ended by a signal, like a segmentation fault",
			"Look for accesses beyond an array's end: try the case with a memory checker, and submit again."),
		row(OutcomeOutOfMemory, FaultSubmission, CauseOther, Withheld, "the program wanted more memory than a job may have",
			"Use less memory in the case shown: free what you keep between calls, or work in pieces."),
		row(OutcomeOutOfDisk, FaultSubmission, CauseOther, Withheld, "the program filled the disk that a job has",
			"Write less: a job's disk is small, and build caches count."),
		row(OutcomeTimeout, FaultSubmission, CauseTime, Shown, "a phase passed its time limit",
			"Look for what waits or never ends; if it is only slow, make it faster, for the limit holds for all cases together."),
		row(OutcomeNoVerdict, FaultSubmission, CauseOther, Withheld, "the program ended well and without a verdict, as if it had left early",
			"Return from custom_kernel: a submission must not end its process."),
		row(OutcomeInconsistent, FaultSubmission, CauseReport, Withheld, "the report contradicts itself",
			"Leave the report to the harness: nothing else may write it."),
		row(OutcomeForged, FaultSubmission, CauseReport, Withheld, "the report does not agree with what the judge saw happen",
			"Leave the report to the harness: nothing else may write it."),
		row(OutcomeReportTooLong, FaultSubmission, CauseReport, Withheld, "the report is longer than allowed",
			"Keep what you print and raise short: the report has a limit."),
		row(OutcomeOutputTooLong, FaultSubmission, CauseReport, Withheld, "the program printed more than allowed",
			"Print less."),
		row(OutcomeCompileFailed, FaultSubmission, CauseOther, Shown, "the submission does not compile",
			"Correct the compiler's first error, and submit again."),
		row(OutcomeCompileTime, FaultSubmission, CauseOther, Shown, "compiling took longer than its limit",
			"Make the code smaller: fewer templates and variants compile faster."),
		row(OutcomeRejected, FaultSubmission, CauseOther, Withheld, "the organizers' check rejected the submission, and nothing ran",
			"Change what the reason names, and submit again."),
		row(OutcomeOutOfTime, FaultSubmission, CauseTime, Shown, "the job's whole time ran out before the last phase ended",
			"Make it faster, or ask the task's author for more time: the limits of all phases together were too long for the job."),
		row(OutcomeHarness, FaultTask, CauseOther, Withheld, "the task's own harness did not work; this is not the submission's fault",
			tellAuthor),
		row(OutcomeBadPayload, FaultLauncher, CauseOther, Withheld, "the payload cannot be used",
			tellOperator),
		row(OutcomeUnsupported, FaultLauncher, CauseOther, Withheld, "this machine or runner cannot do what the payload asks",
			tellOperator),
		row(OutcomeNoCompiler, FaultMachine, CauseOther, Shown, "the machine has no working compiler for this submission",
			otherMachine),
		row(OutcomeNoProfiler, FaultMachine, CauseOther, Withheld, "the machine has no working profiler",
			otherMachine),
		row(OutcomeAmbiguous, FaultMachine, CauseOther, Withheld, "the machine was too busy to measure times that hold",
			otherMachine),
		row(OutcomeWrongMachine, FaultMachine, CauseOther, Withheld, "the machine is not of the GPU type that the job is for",
			otherMachine),
		row(OutcomeGPUMissing, FaultMachine, CauseOther, Withheld, "the machine shows no GPU",
			otherMachine),
		row(OutcomeGPUUnhealthy, FaultMachine, CauseOther, Withheld, "the machine's GPU is not healthy",
			otherMachine),
		row(OutcomeGPUBusy, FaultMachine, CauseOther, Withheld, "another process uses the machine's GPU",
			otherMachine),
		row(OutcomeWeakSandbox, FaultMachine, CauseOther, Withheld, "the machine cannot shut a submission in as its GPU type requires",
			otherMachine),
		row(OutcomeDiskFull, FaultMachine, CauseOther, Withheld, "the machine's disk is full",
			otherMachine),
		row(OutcomeMachine, FaultMachine, CauseOther, Withheld, "the machine could not run the evaluation",
			otherMachine),
		row(OutcomeRunner, FaultRunner, CauseOther, Withheld, "the judge itself failed; this is a bug in kbrun",
			runAgain),
		row(OutcomeCanceled, FaultOperator, CauseOther, Withheld, "the job was ended from outside",
			submitAgain),
	}
}()

// Outcomes lists every outcome. Text holds the words used if the runner has nothing
// more exact to say. docs/outcomes.md is made from it.
func Outcomes() []Outcome {
	list := make([]Outcome, len(outcomes))
	for i, r := range outcomes {
		list[i] = r.Outcome
	}
	return list
}

// row returns the outcome's row. An outcome of a later version has one made from its
// fault.
func (o Outcome) row() outcomeRow {
	for _, r := range outcomes {
		if r.Name == o.Name {
			return r
		}
	}
	next := map[string]string{FaultSubmission: correct, FaultTask: tellAuthor, FaultLauncher: tellOperator, FaultMachine: otherMachine, FaultRunner: runAgain, FaultOperator: submitAgain}
	return outcomeRow{Outcome: o, next: next[o.Fault]}
}

// Cause returns what decided the outcome.
func (o Outcome) Cause() Cause { return o.row().cause }

// Disclosure returns whether Text may be shown after a run with a secret seed.
func (o Outcome) Disclosure() Disclosure { return o.row().disclosure }

// Next returns what the reader can do, in one sentence; "" if there is nothing to do.
func (o Outcome) Next() string { return o.row().next }

// NextAtLast is [Outcome.Next] for a job that is not run again by itself, because all
// of its attempts are used up.
func (o Outcome) NextAtLast() string {
	switch o.Fault {
	case FaultMachine, FaultRunner:
		return runYourself
	}
	return o.Next()
}

// FindOutcome returns the outcome of that name, and whether there is one.
func FindOutcome(name string) (Outcome, bool) {
	for _, r := range outcomes {
		if r.Name == name {
			return r.Outcome, true
		}
	}
	return Outcome{}, false
}

// NewOutcome returns the outcome of that name with words in place of its usual
// ones, unless words is empty. A name that is not in [Outcomes] is a fault of
// the caller and becomes OutcomeRunner, saying so.
func NewOutcome(name, words string) Outcome {
	o, known := FindOutcome(name)
	if !known {
		return NewOutcome(OutcomeRunner, fmt.Sprintf("no outcome is called %q", name))
	}
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
