package verdict

import "github.com/gpu-mode/kbgen/schema"

// next says for every outcome what its reader can do, in one sentence.
var next = map[string]string{
	schema.OutcomePassed:        "",
	schema.OutcomeWrong:         "Compare your answer with the reference for the case that failed, and submit again.",
	schema.OutcomeRecheckFailed: "Look for what depends on earlier calls: the answer has to be right for new inputs every time, also while it is timed.",
	schema.OutcomeSyntaxError:   "Correct the line shown, and submit again.",
	schema.OutcomeMissingModule: "Use the modules that the task's image has, or ask its author to add this one.",
	schema.OutcomeException:     "Correct what the line shown raises, and submit again.",
	schema.OutcomeExited:        "Return from custom_kernel: a submission must not end its process.",
	schema.OutcomeCrashed:       "Check the type, shape and number of what you return, and what your submission prints before it ends.",
	schema.OutcomeKilled:        "Look for accesses beyond an array's end: try the case with a memory checker, and submit again.",
	schema.OutcomeOutOfMemory:   "Use less memory in the case shown: free what you keep between calls, or work in pieces.",
	schema.OutcomeOutOfDisk:     "Write less: a job's disk is small, and build caches count.",
	schema.OutcomeTimeout:       "Look for what waits or never ends; if it is only slow, make it faster, for the limit holds for all cases together.",
	schema.OutcomeNoVerdict:     "Return from custom_kernel: a submission must not end its process.",
	schema.OutcomeInconsistent:  "Leave the report to the harness: nothing else may write it.",
	schema.OutcomeForged:        "Leave the report to the harness: nothing else may write it.",
	schema.OutcomeReportTooLong: "Keep what you print and raise short: the report has a limit.",
	schema.OutcomeOutputTooLong: "Print less.",
	schema.OutcomeCompileFailed: "Correct the compiler's first error, and submit again.",
	schema.OutcomeCompileTime:   "Make the code smaller: fewer templates and variants compile faster.",
	schema.OutcomeOutOfTime:     "Make it faster, or ask the task's author for more time: the limits of all phases together were too long for the job.",
	schema.OutcomeHarness:       "Nothing: tell the task's author. Your submission was not judged.",
	schema.OutcomeBadPayload:    "Nothing in your code: tell whoever runs the competition.",
	schema.OutcomeUnsupported:   "Nothing in your code: tell whoever runs the competition.",
	schema.OutcomeCanceled:      "Submit again if you did not end it yourself.",
}

// nextByFault is for outcomes that are not in next.
var nextByFault = map[string]string{
	schema.FaultSubmission: "Correct the submission, and submit again.",
	schema.FaultTask:       "Nothing: tell the task's author. Your submission was not judged.",
	schema.FaultLauncher:   "Nothing in your code: tell whoever runs the competition.",
	schema.FaultMachine:    "Nothing: the job is run again on another machine. Your submission was not judged.",
	schema.FaultRunner:     "Nothing: the job is run again. Your submission was not judged.",
	schema.FaultOperator:   "Submit again if you did not end it yourself.",
}

// Next is what the reader of an outcome can do, in one sentence of ours; "" for
// nothing.
func Next(o schema.Outcome) string {
	if words, known := next[o.Name]; known {
		return words
	}
	return nextByFault[o.Fault]
}
