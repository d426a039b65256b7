package judge

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/gpu-mode/kbgen/runner/explain"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// exact finds the more exact outcome behind verdict's, from what else was seen.
//
// A submission can print whatever it likes, a traceback of another file among
// it. So what is read from the output chooses between outcomes that are all the
// submission's fault; only a control run, which has nothing of the submission in
// it, moves the fault away (see [Blame]).
func exact(p *plan.Phase, seen *Process, run *schema.RunResult, o *schema.Outcome) *schema.Outcome {
	if printed := seen.Stdout.Size + seen.Stderr.Size; printed > outputLimit {
		run.Passed = false
		return schema.Outcomef(schema.OutcomeOutputTooLong, "the tester printed %d bytes, at most %d are allowed", printed, outputLimit)
	}
	if o == nil {
		return nil
	}
	switch o.Name {
	case schema.OutcomeWrong:
		if p.Mode == schema.ModeLeaderboard {
			return schema.Outcomef(schema.OutcomeRecheckFailed, "the tests had passed, and then %s", o.Text)
		}
	case schema.OutcomeOutOfTime:
		if p.Budget != "" {
			return schema.Outcomef(o.Name, "%s; the task's limits allow %s in all", o.Text, p.Budget)
		}
	case schema.OutcomeNoVerdict:
		if seen.Shared { // the harness itself does not leave before it has one, see Blame
			return schema.Outcomef(schema.OutcomeExited, "the submission ended the tester's process with status %d, before it had a verdict", seen.ExitCode)
		}
	case schema.OutcomeCrashed:
		return crashed(p, seen, o)
	}
	return o
}

// crashed is the outcome of a harness that ended badly.
func crashed(p *plan.Phase, seen *Process, o *schema.Outcome) *schema.Outcome {
	code, name, words := seen.ExitCode, o.Name, ""
	if code == workerLeftStatus && seen.Worker != nil {
		return workerOutcome(*seen.Worker, seen.OutOfMemory)
	}
	if code < 0 {
		if code == -int(syscall.SIGKILL) && seen.OutOfMemory {
			return schema.Outcomef(schema.OutcomeOutOfMemory, "the tester was ended by the kernel for want of memory")
		}
		return schema.Outcomef(schema.OutcomeKilled, "%s", o.Text)
	}
	last := lastLine(seen.Stderr.End())
	raised, found := raisedIn(p, seen)
	switch {
	case found:
		words = raised.Text()
		file, line := innermost(p, raised)
		switch {
		case ownFile(file):
			name, words = raised.Outcome(), fmt.Sprintf("%s:%d: %s", file, line, words)
		case explain.OutOfMemory(raised.Text()):
			name = schema.OutcomeOutOfMemory
		}
	case explain.OutOfMemory(last):
		name, words = schema.OutcomeOutOfMemory, last
	case p.Compile == nil && p.Profile == nil:
		name = schema.OutcomeExited
		if code == exitUncaught { // sys.exit with words
			words = last
		}
	default:
		words = last
	}
	switch {
	case secret(p) && name == schema.OutcomeCrashed, words == "" && name != schema.OutcomeExited:
		return schema.Outcomef(name, "%s", o.Text)
	case secret(p) && name != schema.OutcomeExited:
		return schema.Outcomef(name, "")
	case name == schema.OutcomeExited:
		o.Text = "the submission ended its own process: " + o.Text
	}
	if words == "" || secret(p) {
		return schema.Outcomef(name, "%s", o.Text)
	}
	if name == schema.OutcomeCrashed || name == schema.OutcomeExited || name == schema.OutcomeOutOfMemory {
		return schema.Outcomef(name, "%s: %s", o.Text, text.Line(words, shownError))
	}
	return schema.Outcomef(name, "%s", text.Line(words, shownError))
}

const (
	// exitUncaught is Python's exit status for an exception that nobody caught.
	exitUncaught = 1
	// shownError bounds an error in an outcome's text, in characters.
	shownError = 200
)

// raisedIn returns the exception that ended a harness in Python.
func raisedIn(p *plan.Phase, seen *Process) (explain.Raised, bool) {
	if p.Compile != nil || seen.How != Exited || seen.ExitCode != exitUncaught {
		return explain.Raised{}, false
	}
	r, _, found := explain.Traceback(seen.Stderr.End())
	return r, found
}

// innermost returns the name of the payload's file in which an exception was
// raised, and the line; "" when it was raised in none of them.
func innermost(p *plan.Phase, r explain.Raised) (file string, line int) {
	for i := len(r.Frames) - 1; i >= 0; i-- {
		name := path.Base(r.Frames[i].File)
		if _, there := p.Files.Get(name); there {
			return name, r.Frames[i].Line
		}
	}
	return "", 0
}

// ownFile reports whether a file of a payload is the submitter's.
func ownFile(name string) bool {
	return name == plan.SubmissionFile || strings.HasPrefix(name, "submission.cu")
}

// own returns the submitter's files of a phase.
func own(p *plan.Phase) schema.Files {
	return slices.DeleteFunc(slices.Clone(p.Files), func(f schema.File) bool { return !ownFile(f.Name) })
}
