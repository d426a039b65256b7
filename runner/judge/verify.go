package runner

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// asked is what a tester was given to do; a report that says "pass" must
// answer all of it and nothing else.
type asked struct {
	mode  string   // the tester's mode
	specs []string // the cases file's lines, as Python's splitlines and strip cut them
}

func newAsked(mode, cases string) asked {
	a := asked{mode: mode}
	for line := range strings.FieldsFuncSeq(cases, lineEnd) {
		if line = strings.TrimFunc(line, space); line != "" {
			a.specs = append(a.specs, line)
		}
	}
	return a
}

// kind is the first word of the keys that a report in this mode has.
func (a asked) kind() string {
	if a.mode == schema.ModeTest {
		return "test"
	}
	return "benchmark"
}

const (
	// leastMean is the shortest mean that is believed, in nanoseconds: a call
	// that does nothing and two readings of a clock take longer. The runner
	// knows nothing of the task; what a kernel cannot reach is the scorer's.
	leastMean = 10
	// figureSlack is what figures may differ by that were rounded for printing
	// or read from two clocks, as a fraction.
	figureSlack = 0.01
	// roundingSlack is the same for figures near zero, in nanoseconds: half of
	// the last digit that C++'s to_string prints, doubled.
	roundingSlack = 1e-6
)

// A doubt is a reason not to believe a report that says "pass".
type doubt struct {
	outcome string // OutcomeInconsistent: with itself; OutcomeForged: with what the runner knows
	text    string
}

func inconsistent(format string, args ...any) *doubt {
	return &doubt{schema.OutcomeInconsistent, fmt.Sprintf(format, args...)}
}

func forged(format string, args ...any) *doubt {
	return &doubt{schema.OutcomeForged, fmt.Sprintf(format, args...)}
}

// verify holds a report that says "check: pass" against what was asked,
// against itself, and against the time that the tester was seen to run. It
// returns nil when everything adds up.
//
// What honest testers are known to leave out or to add is no doubt: Python's
// write no status for a benchmark that went well, the CUDA one does; some
// report one case of many in leaderboard mode, the last, and two of these no
// best and worst; one has further keys, and a median where others have a mean;
// one has times of 0. A report of which all of this is true
// may still be a lie, when its writer shares the tester's process.
//
// Source of the variants: gpu-mode/kernelbot examples/eval.cu, and the eval.py
// files of gpu-mode/reference-kernels.
func (a asked) verify(report schema.Report, duration time.Duration) *doubt {
	if d := a.verifyCases(report); d != nil {
		return d
	}
	if a.mode == schema.ModeTest || a.mode == schema.ModeProfile {
		return nil
	}
	total, count := 0.0, a.count(report)
	for i := range count {
		f, d := a.readFigures(report, fmt.Sprintf("benchmark.%d.", i))
		if d != nil {
			return d
		}
		if d := f.verify(i); d != nil {
			return d
		}
		total += f.runs * f.mean
	}
	if seen := float64(duration.Nanoseconds()); total > seen*(1+figureSlack) {
		return forged("the report counts %.3g s of runs, in a process that ran for %.3g s", total/1e9, seen/1e9)
	}
	return nil
}

// count is how many cases the report must have. A tester that measures only
// the last of several says so with a count of 1.
func (a asked) count(report schema.Report) int {
	if n, _ := report.Get(a.kind() + "-count"); n == "1" && a.mode == schema.ModeLeaderboard {
		return min(1, len(a.specs))
	}
	return len(a.specs)
}

// caseKey matches every key that decides something, "test.0.status".
var caseKey = regexp.MustCompile(`^(test|benchmark)\.([^.]*)\.(spec|status|runs|mean|std|err|best|worst)$`)

func (a asked) verifyCases(report schema.Report) *doubt {
	kind, count := a.kind(), a.count(report)
	if got, _ := report.Get(kind + "-count"); got != strconv.Itoa(count) {
		return forged("%s-count is %q, of %d cases", kind, shorten(got, 20), len(a.specs))
	}
	for i := range count {
		prefix := fmt.Sprintf("%s.%d.", kind, i)
		want := a.specs[i+len(a.specs)-count]
		if got, _ := report.Get(prefix + "spec"); !sameWords(got, want) {
			return forged("%sspec is %q, the case is %q", prefix, shorten(got, 100), shorten(want, 100))
		}
		status, given := report.Get(prefix + "status")
		if status != "pass" && (given || kind == "test") {
			return inconsistent("check is \"pass\", and %sstatus is %q", prefix, shorten(status, 20))
		}
	}
	for _, e := range report {
		m := caseKey.FindStringSubmatch(e.Key)
		if m == nil {
			continue
		}
		if i, err := strconv.Atoi(m[2]); err != nil || strconv.Itoa(i) != m[2] || i < 0 || i >= count || m[1] != kind {
			return forged("%q is not among what was asked", shorten(e.Key, 40))
		}
	}
	return nil
}

// sameWords compares but for white space, which testers may make even.
func sameWords(a, b string) bool {
	return a == b || strings.Join(strings.FieldsFunc(a, space), " ") == strings.Join(strings.FieldsFunc(b, space), " ")
}

// figures are one benchmark's, in nanoseconds but for runs. The two ends are
// not there in every report.
type figures struct {
	runs, mean, std, err, best, worst float64
	ends                              bool
}

// decimal is how Python's str and C++'s to_string write a number that exists.
var decimal = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(e[+-]?[0-9]{1,3})?$`)

func (a asked) readFigures(report schema.Report, prefix string) (f figures, d *doubt) {
	_, best := report.Get(prefix + "best")
	_, worst := report.Get(prefix + "worst")
	f.ends = best || worst || a.mode != schema.ModeLeaderboard
	for _, part := range []struct {
		name string
		to   *float64
	}{{"runs", &f.runs}, {"mean", &f.mean}, {"std", &f.std}, {"err", &f.err}, {"best", &f.best}, {"worst", &f.worst}} {
		text, given := report.Get(prefix + part.name)
		if !given && !f.ends && (part.to == &f.best || part.to == &f.worst) {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		if !given || err != nil || !decimal.MatchString(text) {
			return f, inconsistent("%s%s is %q, which is no decimal number", prefix, part.name, shorten(text, 40))
		}
		*part.to = value
	}
	return f, nil
}

// verify holds the figures of benchmark i against each other. For n values
// between best and worst the standard deviation, with n or n-1 in its
// denominator, has bounds of its own.
func (f figures) verify(i int) *doubt {
	wrong := func(format string, args ...any) *doubt {
		return inconsistent("benchmark.%d: "+format, append([]any{i}, args...)...)
	}
	switch {
	case f.runs < 1 || f.runs > 1e9 || f.runs != math.Trunc(f.runs):
		return wrong("%g runs", f.runs)
	case f.mean < leastMean: // best may be 0: a tester takes off what clearing a cache took
		return forged("benchmark.%d: a mean of %g ns, which no machine reaches", i, f.mean)
	case !near(f.err, f.std/math.Sqrt(f.runs)):
		return wrong("err %g ns, where std %g over %g runs gives %g", f.err, f.std, f.runs, f.std/math.Sqrt(f.runs))
	case f.ends:
		return f.verifyEnds(wrong)
	case f.runs == 1 && !near(f.std, 0):
		return wrong("one run, with std %g ns", f.std)
	}
	return nil
}

// verifyEnds holds mean and std against best and worst.
func (f figures) verifyEnds(wrong func(format string, args ...any) *doubt) *doubt {
	if below(f.mean, f.best) || below(f.worst, f.mean) {
		return wrong("mean %g ns, not between best %g and worst %g", f.mean, f.best, f.worst)
	}
	width := f.worst - f.best
	if f.runs == 1 {
		if !near(f.best, f.worst) || !near(f.std, 0) {
			return wrong("one run, with best %g, worst %g, std %g ns", f.best, f.worst, f.std)
		}
		return nil
	}
	least, most := width/math.Sqrt(2*f.runs), width/2*math.Sqrt(f.runs/(f.runs-1))
	if below(f.std, least) || below(most, f.std) {
		return wrong("std %g ns, where %g runs between best %g and worst %g have %g to %g", f.std, f.runs, f.best, f.worst, least, most)
	}
	return nil
}

// below tells whether a is less than b by more than rounding explains.
func below(a, b float64) bool { return a < b*(1-figureSlack)-roundingSlack }

func near(a, b float64) bool { return !below(a, b) && !below(b, a) }
