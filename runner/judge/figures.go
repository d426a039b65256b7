package judge

import (
	"math"
	"regexp"
	"strconv"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

const (
	// leastMean is the shortest mean that is believed, in nanoseconds: a call
	// that does nothing and two readings of a clock take longer. The runner does
	// not know the task; a floor for a real kernel is for the scorer to set.
	leastMean = 10
	// figureSlack is what figures may differ by that were rounded for printing
	// or read from two clocks, as a fraction.
	figureSlack = 0.01
	// roundingSlack is the same for figures near zero, in nanoseconds: half of
	// the last digit that C++'s to_string prints, doubled.
	roundingSlack = 1e-6
)

// figures are those of one benchmark, in nanoseconds except for runs. Not every
// report has the two ends, best and worst.
type figures struct {
	runs, mean, std, err, best, worst float64
	ends                              bool
}

// decimal is how Python's str and C++'s to_string write a finite number.
var decimal = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(e[+-]?[0-9]{1,3})?$`)

func (e expectation) readFigures(report schema.Report, prefix string) (f figures, m *schema.Outcome) {
	_, best := report.Get(prefix + "best")
	_, worst := report.Get(prefix + "worst")
	f.ends = best || worst || e.mode != schema.ModeLeaderboard
	for _, part := range []struct {
		name string
		to   *float64
	}{{"runs", &f.runs}, {"mean", &f.mean}, {"std", &f.std}, {"err", &f.err}, {"best", &f.best}, {"worst", &f.worst}} {
		figure, given := report.Get(prefix + part.name)
		if !given && !f.ends && (part.to == &f.best || part.to == &f.worst) {
			continue
		}
		value, err := strconv.ParseFloat(figure, 64)
		if !given || err != nil || !decimal.MatchString(figure) {
			return f, inconsistent("%s%s is %q, which is no decimal number", prefix, part.name, text.Shorten(figure, 40))
		}
		*part.to = value
	}
	return f, nil
}

// verify compares the figures of benchmark i with each other. For n values
// between best and worst, the standard deviation has bounds, with n or n-1 in
// its denominator.
func (f figures) verify(i int) *schema.Outcome {
	wrong := func(format string, args ...any) *schema.Outcome {
		return inconsistent("benchmark.%d: "+format, append([]any{i}, args...)...)
	}
	switch {
	case f.runs < 1 || f.runs > 1e9 || f.runs != math.Trunc(f.runs):
		return wrong("%g runs", f.runs)
	case f.mean < leastMean: // best may be 0: a harness takes off what clearing a cache took
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

// verifyEnds compares mean and std with best and worst.
func (f figures) verifyEnds(wrong func(format string, args ...any) *schema.Outcome) *schema.Outcome {
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

// below reports whether a is less than b by more than rounding explains.
func below(a, b float64) bool { return a < b*(1-figureSlack)-roundingSlack }

func near(a, b float64) bool { return !below(a, b) && !below(b, a) }
