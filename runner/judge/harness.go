package judge

import (
	"fmt"
	"strings"
	"syscall"

	"time"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Exit codes of harnesses that mean a verdict was reached.
const (
	ExitPass = 0
	ExitFail = 112
)

// OutOfTimeText is the outcome's text when the job's time ran out.
const OutOfTimeText = "the job's time ran out"

// outputLimit is how much a harness may print, in bytes. Nobody reads beyond
// the first 16,384 characters; it bounds what a job may keep a machine busy
// with.
const outputLimit = 1 << 30

// secret reports whether no word of the harness may go further than the result:
// it knows a secret seed, and so may the submission in it.
func secret(p *plan.Phase) bool { return p.Test.Seed != nil }

// verdict turns an ended harness into Kernelbot's run and, unless it passed,
// the outcome that it means. A run passes only when its report holds against
// what was asked; one that says "pass" and then ends badly keeps Passed, as in
// Kernelbot, where Success decides too.
func verdict(p *plan.Phase, seen *Process) (*schema.RunResult, *schema.Outcome) {
	run := &schema.RunResult{
		Command: p.Test.Text(), Stdout: seen.Stdout.Text(), Stderr: seen.Stderr.Text(),
		ExitCode: seen.ExitCode, Duration: seen.Duration.Seconds(),
	}
	switch seen.How {
	case TimedOut: // the report so far is thrown away, as in Kernelbot
		return run, schema.Outcomef(schema.OutcomeTimeout, "passed the time limit of %s", ShownLimit(p.Test.Limit))
	case OutOfTime:
		return run, schema.Outcomef(schema.OutcomeOutOfTime, OutOfTimeText)
	}
	report, contradicted := parseReport(seen.Report.Decoded())
	check, answered := report.Get("check")
	run.Result = report
	run.Success = seen.ExitCode == ExitPass || seen.ExitCode == ExitFail
	var doubt *schema.Outcome
	switch {
	case !seen.Report.Whole():
		return run, schema.Outcomef(schema.OutcomeReportTooLong, "the report has %d bytes, at most %d are allowed", seen.Report.Size, ReportLimit)
	case contradicted != "":
		doubt = inconsistent("the report gives two values for %q", text.Shorten(contradicted, 40))
	case check == "pass" && seen.ExitCode == ExitFail:
		doubt = inconsistent("check is \"pass\", and the tester ended with status %d, which says that it failed", ExitFail)
	case check == "pass":
		doubt = newExpectation(p.Mode, p.Cases).verify(report, seen.Duration)
	}
	if doubt != nil {
		if secret(p) { // what is quoted is the report's
			doubt = schema.Outcomef(doubt.Name, "")
		}
		return run, doubt
	}
	run.Passed = check == "pass"
	switch {
	case run.Passed && run.Success:
		return run, nil
	case !run.Success:
		return run, schema.Outcomef(schema.OutcomeCrashed, "the tester %s", exitWords(seen.ExitCode))
	}
	failure := firstFailure(report)
	if secret(p) {
		failure = failedCase(report)
	}
	switch {
	case failure != "":
		return run, schema.Outcomef(schema.OutcomeWrong, "%s", failure)
	case answered:
		return run, schema.Outcomef(schema.OutcomeWrong, "the check failed")
	}
	return run, schema.Outcomef(schema.OutcomeNoVerdict, "the tester ended without a verdict")
}

// ShownLimit is a limit as people wrote it: 0 is planned as a nanosecond, for 0
// means none there.
func ShownLimit(limit time.Duration) time.Duration { return limit.Truncate(time.Microsecond) }

func exitWords(code int) string {
	switch {
	case code < 0:
		return fmt.Sprintf("was killed by signal %d (%s)", -code, syscall.Signal(-code))
	case code == 110:
		return "ended with status 110 (CUDA error)"
	case code == 111:
		return "ended with status 111 (no report pipe)"
	case code == 113:
		return "ended with status 113 (it cannot read the cases)"
	}
	return fmt.Sprintf("ended with status %d", code)
}

// workerLeftStatus is what harness.py ends a harness with whose worker left.
const workerLeftStatus = 1

// workerOutcome is the outcome when the harness's worker, which ran the
// submission, ended before it had answered.
func workerOutcome(code int, outOfMemory bool) *schema.Outcome {
	const before = "the worker that ran the submission %s before it had answered"
	switch {
	case code == -int(syscall.SIGKILL) && outOfMemory:
		return schema.Outcomef(schema.OutcomeOutOfMemory, "the worker that ran the submission was ended by the kernel for want of memory")
	case code < 0:
		return schema.Outcomef(schema.OutcomeKilled, before, exitWords(code))
	}
	return schema.Outcomef(schema.OutcomeExited, before, fmt.Sprintf("ended with status %d", code))
}

// caseName matches the name of a case in a report's keys.
var caseName = text.Pattern(`^(test|benchmark)\.(0|[1-9][0-9]{0,8})$`)

// failedCase is what of firstFailure's words a secret run may tell: the case.
func failedCase(report schema.Report) string {
	for _, e := range report {
		if prefix, ok := strings.CutSuffix(e.Key, ".status"); ok && e.Value == "fail" && caseName().MatchString(prefix) {
			return prefix + " failed"
		}
	}
	return ""
}

// firstFailure says in one line which case failed, "" when none is said to
// have. Some harnesses say no more than that when they check an answer again.
func firstFailure(report schema.Report) string {
	for _, e := range report {
		prefix, ok := strings.CutSuffix(e.Key, ".status")
		if !ok || e.Value != "fail" {
			continue
		}
		words := prefix + " failed"
		if spec, ok := report.Get(prefix + ".spec"); ok {
			words += " (" + spec + ")"
		}
		if msg, ok := report.Get(prefix + ".error"); ok {
			words += ": " + msg
		}
		return text.Shorten(words, 300)
	}
	return ""
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}
