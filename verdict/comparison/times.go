package comparison

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"golang.org/x/perf/benchmath"

	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/verdict"
)

// confidence is of the intervals that are shown, alpha the p-value from which on
// two samples are held for the same.
const (
	confidence = 0.95
	alpha      = 0.05
)

// timeOf is a case's time with its confidence interval: of the samples, else of
// the mean and the error that the tester wrote. Nil when it was not timed.
func timeOf(c *verdict.Case) *Time {
	if s := samples(c); len(s) > 0 {
		sum := benchmath.AssumeNothing.Summary(benchmath.NewSample(s, &benchmath.DefaultThresholds), confidence)
		low, high := sum.Lo, sum.Hi
		if math.IsInf(low, 0) || math.IsInf(high, 0) { // too few for an interval
			low, high = s[0], s[len(s)-1]
		}
		return &Time{NS: sum.Center, Low: low, High: high, Samples: len(s)}
	}
	mean, e, ok := figures(c)
	if !ok {
		return nil
	}
	return &Time{NS: mean, Low: max(0, mean-1.96*e), High: mean + 1.96*e}
}

// isTime reports whether a number may be a time in nanoseconds: more than a
// millionth of a microsecond, less than thirty years. What is beyond would leave
// the numbers of the comparison, and JSON has no word for infinity.
func isTime(ns float64) bool { return ns >= 1e-3 && ns <= 1e18 }

// samples are the calls of a case that are times, in a slice of its own.
func samples(c *verdict.Case) []float64 {
	return slices.DeleteFunc(slices.Clone(c.Samples), func(v float64) bool { return !isTime(v) })
}

func figures(c *verdict.Case) (mean, err float64, ok bool) {
	mean, meanErr := strconv.ParseFloat(c.Mean, 64)
	if meanErr != nil || !isTime(mean) {
		return 0, 0, false
	}
	if e, parseErr := strconv.ParseFloat(c.Err, 64); parseErr == nil && e >= 0 && e <= 1e18 {
		err = e
	}
	return mean, err, true
}

// delta tests whether two cases differ: by ranks where both have samples, else
// by the errors of their means. The warnings say why it can find none.
func delta(older, newer *verdict.Case, a, b *Time) (d *Delta, warnings []error) {
	d = &Delta{Percent: (b.NS/a.NS - 1) * 100}
	x, y := samples(older), samples(newer)
	if len(x) > 0 && len(y) > 0 {
		t := &benchmath.DefaultThresholds
		compared := benchmath.AssumeNothing.Compare(benchmath.NewSample(x, t), benchmath.NewSample(y, t))
		d.P, warnings = compared.P, compared.Warnings
	} else {
		_, ea, _ := figures(older)
		_, eb, _ := figures(newer)
		if spread := math.Hypot(ea, eb); spread > 0 {
			d.P = math.Erfc(math.Abs(b.NS-a.NS) / spread / math.Sqrt2)
		} else {
			d.P = 1 // nobody knows how exact they are
		}
	}
	d.Significant = d.P < alpha
	return d, warnings
}

// String is the time and how far the interval reaches, as benchstat shows it.
func (t *Time) String() string {
	if t == nil {
		return "-"
	}
	wide := max(t.High/t.NS-1, 1-t.Low/t.NS) * 100
	s := fmt.Sprintf("%s ± %.0f%%", format.Time(t.NS), wide)
	if t.Samples > 0 {
		s += fmt.Sprintf(" n=%d", t.Samples)
	}
	return s
}
