package judge

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/runner/explain"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// explanation is what the submitter is told of a run that did not pass, beside
// its outcome; nil when there is nothing to add.
func explanation(p *plan.Phase, seen *Process, o *schema.Outcome) *schema.Explanation {
	if o == nil {
		return nil
	}
	x := &schema.Explanation{}
	report, _ := parseReport(seen.Report.Decoded())
	r, found := raisedIn(p, seen)
	switch {
	case found:
		x = explain.Exception(r, own(p))
	case o.Cause() == schema.CauseAnswer:
		message := failureMessage(report)
		x.Error = explain.Line(message)
		x.Expected, x.Got = explain.Compared(message)
	}
	x.Printed = explain.Printed(seen.Stdout.End())
	if x.Printed == "" {
		printed := seen.Stderr.End()
		if found {
			_, printed, _ = explain.Traceback(printed)
		}
		x.Printed = explain.Printed(printed)
	}
	x.NotRun = notRun(p, report, o)
	switch {
	case secret(p):
		return explain.Withhold(x)
	case x.Error == "" && x.Printed == "" && len(x.NotRun) == 0:
		return nil
	}
	return x
}

// failureMessage is the error of the first case that failed.
func failureMessage(report schema.Report) string {
	for _, e := range report {
		if prefix, ok := strings.CutSuffix(e.Key, ".status"); ok && e.Value == "fail" {
			message, _ := report.Get(prefix + ".error")
			return strings.ReplaceAll(message, `\n`, "\n") // as testers write line ends
		}
	}
	return ""
}

// notRun lists the cases that were never begun. It goes by the first case of
// which the report says nothing: a case under way has its spec there, but for
// harnesses that write it afterwards in leaderboard mode.
func notRun(p *plan.Phase, report schema.Report, o *schema.Outcome) []schema.NotRun {
	if o.Cause() == schema.CauseReport {
		return nil
	}
	e := newExpectation(p.Mode, p.Cases)
	reached, failed := 0, -1
	for _, entry := range report {
		rest, ok := strings.CutPrefix(entry.Key, e.kind()+".")
		if !ok {
			continue
		}
		number, what, _ := strings.Cut(rest, ".")
		i, err := strconv.Atoi(number)
		if err != nil || i < 0 || i >= len(e.specs) {
			continue
		}
		reached = max(reached, i+1)
		if what == "status" && entry.Value == "fail" {
			failed = i
		}
	}
	why := "the program ended in an earlier case"
	switch {
	case o.Cause() == schema.CauseTime:
		why = "the time ran out in an earlier case"
	case failed >= 0 && failed == reached-1:
		why = fmt.Sprintf("%s.%d failed", e.kind(), failed)
	case p.Mode == schema.ModeLeaderboard && len(report) > 0:
		reached++ // the one under way
	case reached == 0:
		why = "the program ended before its first case"
		if o.Cause() == schema.CauseTime {
			why = "the time ran out before the first case"
		}
	}
	if count, _ := report.Get(e.kind() + "-count"); count == "1" && p.Mode == schema.ModeLeaderboard {
		return nil // a harness that measures the last case only
	}
	return explain.NotRun(e.kind(), reached, len(e.specs), why)
}

// compileError matches a compiler's error: nvcc's, then clang's and gcc's.
var compileError = text.Pattern(`(?m)^(\S[^\n(:]{0,300})(?:\(([0-9]{1,9})\)|:([0-9]{1,9})(?::[0-9]{1,9})?): *(?:fatal )?(error\b[^\n]*)$`)

// CompileWords says in one line why a compilation of a task's own files failed:
// the first error, or how the compiler ended.
func CompileWords(compiler string, c *plan.Command, seen *Process) string {
	if seen.How == TimedOut {
		return fmt.Sprintf("%s passed its limit of %s", compiler, c.Limit)
	}
	errors := seen.Stderr.Decoded()
	if m := compileError().FindStringSubmatch(errors); m != nil {
		return text.Line(fmt.Sprintf("%s:%s: %s", path.Base(m[1]), m[2]+m[3], m[4]), shownError)
	}
	words := fmt.Sprintf("%s %s", compiler, exitWords(seen.ExitCode))
	if last := lastLine(errors); last != "" {
		words += ": " + text.Line(last, shownError)
	}
	return words
}

// compileExplanation is what the submitter is told of a compiler's first error.
// A compiler does not know the seed.
func compileExplanation(p *plan.Phase, errors string) *schema.Explanation {
	all := compileError().FindAllStringSubmatch(errors, 100)
	if len(all) == 0 {
		return nil
	}
	chosen := all[0]
	for _, m := range all {
		if ownFile(path.Base(m[1])) {
			chosen = m
			break
		}
	}
	line, _ := strconv.Atoi(chosen[2] + chosen[3])
	x := explain.Exception(explain.Raised{
		Type: path.Base(chosen[1]) + ":" + strconv.Itoa(line), Message: chosen[4],
		Frames: []explain.Frame{{File: chosen[1], Line: line}},
	}, own(p))
	x.Traceback = nil // one place is no road
	return x
}
