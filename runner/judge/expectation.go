package judge

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// An expectation is what a harness was given to do; a report that says "pass"
// must answer all of it and nothing else.
type expectation struct {
	mode  string   // the harness's mode
	specs []string // the cases file's lines, as Python's splitlines and strip cut them
}

func newExpectation(mode, cases string) expectation {
	e := expectation{mode: mode}
	for line := range strings.FieldsFuncSeq(cases, lineEnd) {
		if line = strings.TrimFunc(line, space); line != "" {
			e.specs = append(e.specs, line)
		}
	}
	return e
}

// kind is the first word of the keys that a report in this mode has.
func (e expectation) kind() string {
	if e.mode == schema.ModeTest {
		return "test"
	}
	return "benchmark"
}

// inconsistent and forged are why a report that says "pass" is not believed: it does
// not agree with itself, or with what the runner knows.
func inconsistent(format string, args ...any) *schema.Outcome {
	return schema.Outcomef(schema.OutcomeInconsistent, format, args...)
}

func forged(format string, args ...any) *schema.Outcome {
	return schema.Outcomef(schema.OutcomeForged, format, args...)
}

// verify compares a report that says "check: pass" with what was asked, with
// itself, and with the time that the harness was seen to run. It returns nil
// when all of this fits.
//
// What honest harnesses are known to leave out or to add is no mismatch. The
// Python ones write no status for a benchmark that went well, the CUDA one
// does. Some report only the last case in leaderboard mode, and two of these
// give no best and worst. One has further keys, and a median where others have
// a mean. One has times of 0.
//
// A report that passes here may still be a lie, when its writer shares the
// harness's process.
//
// Source of the variants: gpu-mode/kernelbot examples/eval.cu, and the eval.py
// files of gpu-mode/reference-kernels.
func (e expectation) verify(report schema.Report, duration time.Duration) *schema.Outcome {
	if m := e.verifyCases(report); m != nil {
		return m
	}
	if e.mode == schema.ModeTest || e.mode == schema.ModeProfile {
		return nil
	}
	total, count := 0.0, e.count(report)
	for i := range count {
		f, m := e.readFigures(report, fmt.Sprintf("benchmark.%d.", i))
		if m != nil {
			return m
		}
		if m := f.verify(i); m != nil {
			return m
		}
		total += f.runs * f.mean
	}
	if seen := float64(duration.Nanoseconds()); total > seen*(1+figureSlack) {
		return forged("the report counts %.3g s of runs, in a process that ran for %.3g s", total/1e9, seen/1e9)
	}
	return nil
}

// count is how many cases the report must have. A harness that measures only
// the last of several says so with a count of 1.
func (e expectation) count(report schema.Report) int {
	if n, _ := report.Get(e.kind() + "-count"); n == "1" && e.mode == schema.ModeLeaderboard {
		return min(1, len(e.specs))
	}
	return len(e.specs)
}

// caseKey matches every key that decides something, "test.0.status".
var caseKey = regexp.MustCompile(`^(test|benchmark)\.([^.]*)\.(spec|status|runs|mean|std|err|best|worst)$`)

func (e expectation) verifyCases(report schema.Report) *schema.Outcome {
	kind, count := e.kind(), e.count(report)
	if got, _ := report.Get(kind + "-count"); got != strconv.Itoa(count) {
		return forged("%s-count is %q, of %d cases", kind, text.Shorten(got, 20), len(e.specs))
	}
	for i := range count {
		prefix := fmt.Sprintf("%s.%d.", kind, i)
		want := e.specs[i+len(e.specs)-count]
		if got, _ := report.Get(prefix + "spec"); !sameWords(got, want) {
			return forged("%sspec is %q, the case is %q", prefix, text.Shorten(got, 100), text.Shorten(want, 100))
		}
		status, given := report.Get(prefix + "status")
		if status != "pass" && (given || kind == "test") {
			return inconsistent("check is \"pass\", and %sstatus is %q", prefix, text.Shorten(status, 20))
		}
	}
	for _, entry := range report {
		parts := caseKey.FindStringSubmatch(entry.Key)
		if parts == nil {
			continue
		}
		if i, err := strconv.Atoi(parts[2]); err != nil || strconv.Itoa(i) != parts[2] || i < 0 || i >= count || parts[1] != kind {
			return forged("%q is not among what was asked", text.Shorten(entry.Key, 40))
		}
	}
	return nil
}

// sameWords compares without regard to white space, which harnesses may change.
func sameWords(a, b string) bool {
	return a == b || strings.Join(strings.FieldsFunc(a, space), " ") == strings.Join(strings.FieldsFunc(b, space), " ")
}
