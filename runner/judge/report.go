package runner

import (
	"fmt"
	"strings"
	"syscall"
	"unicode"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// parseReport reads what a tester wrote: lines of "key: value". A key that
// occurs again takes the later value, but for verdicts and figures (check, the
// counts, test.*, benchmark.*), which keep the first: a tester writes those
// once, so a different second one comes from somebody else. The first key of
// which that is true is returned as contradicted.
//
// Source of the line rules: gpu-mode/kernelbot, run_eval.py, run_program.
func parseReport(raw string) (report schema.Report, contradicted string) {
	index := map[string]int{}
	for line := range strings.FieldsFuncSeq(raw, lineEnd) {
		key, value, _ := strings.Cut(line, ":")
		if key == "" && value == "" {
			continue
		}
		key, value = text.Storable(strings.TrimFunc(key, space)), text.Storable(strings.TrimFunc(value, space))
		i, again := index[key]
		switch {
		case !again:
			index[key] = len(report)
			report = append(report, schema.Entry{Key: key, Value: value})
		case !figure(key):
			report[i].Value = value
		case report[i].Value != value && contradicted == "":
			contradicted = key
		}
	}
	return report, contradicted
}

func figure(key string) bool {
	return key == "check" || key == "test-count" || key == "benchmark-count" ||
		strings.HasPrefix(key, "test.") || strings.HasPrefix(key, "benchmark.")
}

// lineEnd holds for the characters at which Python's splitlines cuts.
func lineEnd(r rune) bool {
	switch r {
	case '\n', '\r', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		return true
	}
	return false
}

// space holds for the characters that Python's strip removes.
func space(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

// Exit codes of testers that mean a verdict was reached.
const (
	exitSuccess      = 0
	exitValidateFail = 112
)

// judge turns an ended tester into Kernelbot's run and, unless it passed, the
// ending that it means. A run passes only when its report holds against a; one
// that says "pass" and then ends badly keeps Passed, as in Kernelbot, where
// Success decides too.
func judge(c command, a asked, done *ended) (*schema.RunResult, error) {
	run := &schema.RunResult{
		Command: c.text(), Stdout: done.stdout.text(), Stderr: done.stderr.text(),
		ExitCode: done.exitCode, Duration: done.duration.Seconds(),
	}
	switch done.how {
	case killedTimeout: // the report so far is thrown away, as in Kernelbot
		return run, endf(schema.OutcomeTimeout, "passed the time limit of %s", shownLimit(c.limit))
	case killedOutOfTime:
		return run, endf(schema.OutcomeOutOfTime, "%s", errOutOfTime)
	}
	report, contradicted := parseReport(done.report.decoded())
	check, answered := report.Get("check")
	run.Result = report
	run.Success = done.exitCode == exitSuccess || done.exitCode == exitValidateFail
	var d *doubt
	switch {
	case !done.report.whole():
		return run, endf(schema.OutcomeReportTooLong, "the report has %d bytes, at most %d are allowed", done.report.size, reportLimit)
	case contradicted != "":
		d = inconsistent("the report gives two values for %q", shorten(contradicted, 40))
	case check == "pass" && done.exitCode == exitValidateFail:
		d = inconsistent("check is \"pass\", and the tester ended with status %d, which says that it failed", exitValidateFail)
	case check == "pass":
		d = a.verify(report, done.duration)
	}
	if d != nil {
		return run, endf(d.outcome, "%s", d.text)
	}
	run.Passed = check == "pass"
	switch {
	case run.Passed && run.Success:
		return run, nil
	case !run.Success:
		return run, endf(schema.OutcomeCrashed, "the tester %s", exitWords(done.exitCode))
	}
	failure := firstFailure(report)
	switch {
	case failure != "":
		return run, endf(schema.OutcomeWrong, "%s", failure)
	case answered:
		return run, endf(schema.OutcomeWrong, "the check failed")
	}
	return run, endf(schema.OutcomeNoVerdict, "the tester ended without a verdict")
}

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

// firstFailure says in one line which case failed, "" when none is said to
// have. Some testers say no more than that when they check an answer again.
func firstFailure(report schema.Report) string {
	for _, e := range report {
		prefix, ok := strings.CutSuffix(e.Key, ".status")
		if !ok || e.Value != "fail" {
			continue
		}
		text := prefix + " failed"
		if spec, ok := report.Get(prefix + ".spec"); ok {
			text += " (" + spec + ")"
		}
		if msg, ok := report.Get(prefix + ".error"); ok {
			text += ": " + msg
		}
		return shorten(text, 300)
	}
	return ""
}

func shorten(text string, limit int) string {
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit]) + "…"
	}
	return text
}
