package schema

import "fmt"

// Faults: who has to act on an ending.
const (
	FaultNone       = "none"
	FaultSubmission = "submission" // the submitter: wrong, slow or breaking the rules
	FaultLauncher   = "launcher"   // whoever made the payload or configured the job
	FaultMachine    = "machine"    // the machine the job ran on
	FaultOperator   = "operator"   // somebody ended the job
)

// An Outcome is the ending of one evaluation: result.json's own key beside
// Kernelbot's.
type Outcome struct {
	Name  string // one of Outcomes
	Fault string // one of the Fault constants
	Retry bool   // the same job may end differently elsewhere
	Text  string // one line for people; may quote the submission's output, cleaned
}

// Names of endings.
const (
	OutcomePassed        = "passed"
	OutcomeWrong         = "wrong"
	OutcomeCrashed       = "crashed"
	OutcomeTimeout       = "timeout"
	OutcomeNoVerdict     = "no-verdict"
	OutcomeInconsistent  = "inconsistent"
	OutcomeReportTooLong = "report-too-long"
	OutcomeCompileFailed = "compile-failed"
	OutcomeOutOfTime     = "out-of-time"
	OutcomeBadPayload    = "bad-payload"
	OutcomeUnsupported   = "unsupported"
	OutcomeNoCompiler    = "no-compiler"
	OutcomeMachine       = "machine"
	OutcomeCanceled      = "canceled"
)

// Outcomes lists every ending there is; Text holds the words used when the
// runner has nothing more exact to say.
func Outcomes() []Outcome {
	return []Outcome{
		{OutcomePassed, FaultNone, false, "every phase passed"},
		{OutcomeWrong, FaultSubmission, false, "a case failed its check"},
		{OutcomeCrashed, FaultSubmission, false, "the tester ended with an error"},
		{OutcomeTimeout, FaultSubmission, false, "a phase passed its time limit"},
		{OutcomeNoVerdict, FaultSubmission, false, "the tester ended without a verdict"},
		{OutcomeInconsistent, FaultSubmission, false, "the report contradicts itself"},
		{OutcomeReportTooLong, FaultSubmission, false, "the report is longer than allowed"},
		{OutcomeCompileFailed, FaultSubmission, false, "the submission does not compile"},
		{OutcomeOutOfTime, FaultSubmission, false, "the job's time ran out"},
		{OutcomeBadPayload, FaultLauncher, false, "the payload cannot be used"},
		{OutcomeUnsupported, FaultLauncher, false, "this runner cannot do what the payload asks"},
		{OutcomeNoCompiler, FaultMachine, true, "the machine has no nvcc"},
		{OutcomeMachine, FaultMachine, true, "the machine could not run the evaluation"},
		{OutcomeCanceled, FaultOperator, true, "the job was ended from outside"},
	}
}

// NewOutcome returns the ending of that name with text in place of its usual
// words, unless text is empty. A name that is not in [Outcomes] is a fault of
// the caller and becomes OutcomeMachine, saying so.
func NewOutcome(name, text string) Outcome {
	for _, o := range Outcomes() {
		if o.Name == name {
			if text != "" {
				o.Text = Clean(text)
			}
			return o
		}
	}
	return NewOutcome(OutcomeMachine, fmt.Sprintf("no ending is called %q", name))
}

// ExitStatus is what kbrun exits with: 0 for every verdict; 75 (EX_TEMPFAIL)
// when the job gave no verdict and may give one elsewhere; 78 (EX_CONFIG) for a
// payload that can work nowhere.
func (o Outcome) ExitStatus() int {
	switch {
	case o.Retry:
		return 75
	case o.Fault == FaultLauncher:
		return 78
	}
	return 0
}
