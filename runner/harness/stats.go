package harness

import (
	"fmt"
	"math"
	"slices"

	"github.com/gpu-mode/kbgen/schema"
)

// stats are Kernelbot's figures of a list of times, in nanoseconds.
type stats struct {
	runs                        int
	mean, std, err, best, worst float64
}

// figuresOf returns mean, sample deviation (n-1), standard error of the mean and
// both ends. Fewer than two samples have no deviation.
func figuresOf(samples []float64) stats {
	s := stats{runs: len(samples), best: math.Inf(1), worst: math.Inf(-1)}
	if s.runs == 0 {
		return stats{}
	}
	for _, x := range samples {
		s.mean += x
		s.best, s.worst = min(s.best, x), max(s.worst, x)
	}
	s.mean /= float64(s.runs)
	if s.runs < 2 {
		return s
	}
	var squares float64
	for _, x := range samples {
		squares += (x - s.mean) * (x - s.mean)
	}
	s.std = math.Sqrt(squares / float64(s.runs-1))
	s.err = s.std / math.Sqrt(float64(s.runs))
	return s
}

// interval is the 95 % confidence interval of the mean.
func (s stats) interval() [2]float64 {
	half := student95(s.runs-1) * s.err
	return [2]float64{s.mean - half, s.mean + half}
}

// lacks says what a figure needs that this one does not have, "" for nothing.
func (s stats) lacks(want schema.MinEvidence) string {
	interval := s.interval()
	width := interval[1] - interval[0]
	switch {
	case s.runs < want.Runs:
		return fmt.Sprintf("%d calls count, and the task wants %d", s.runs, want.Runs)
	case want.Width > 0 && width > want.Width*s.mean:
		return fmt.Sprintf("the 95 %% interval has a width of %.1f %% of the mean, and the task wants at most %.1f %%", 100*width/s.mean, 100*want.Width)
	}
	return ""
}

// student95 is the 97.5th percentile of Student's distribution.
func student95(freedom int) float64 {
	table := []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086}
	switch {
	case freedom < 1:
		return 0
	case freedom <= len(table):
		return table[freedom-1]
	}
	return 1.96 + 2.5/float64(freedom) // within 0.002 from here on
}

// withMoved adds to counted calls those that answered elsewhere and took longer than
// the average. The submission decides where it answers. A short call there, whose output
// could not be looked at in time, gains nothing, and a long call is not hidden.
func withMoved(counted, moved []float64) []float64 {
	mean := figuresOf(counted).mean
	counted = slices.Clip(counted) // the caller's stays as it is
	for _, ns := range moved {
		if ns > mean {
			counted = append(counted, ns)
		}
	}
	return counted
}

// peeked reports whether calls that could see their input early were faster than
// strict ones, which could not. Either they are faster on average by more than chance
// and the noise of a thaw explain,
//
//	strict.mean − fast.mean > noise + 3 · √(fast.err² + strict.err²)
//
// The same test is made without the longest quarter of both kinds, and with longer calls
// cut to twice the median of the fast ones, so that a few long strict calls cannot hide
// the difference. Or the best of them is faster than any strict call by more than a
// quarter and the spread of thaws, which finds a kernel that peeks in a few calls only:
//
//	fast.best < ¾ · strict.best − spread
func peeked(fast, strict []float64, noise, spread float64) bool {
	longest := 2 * percentile(slices.Clone(fast), 50)
	short := func(list []float64) []float64 {
		cut := slices.Sorted(slices.Values(list))
		cut = cut[:len(cut)-len(cut)/4]
		for i := range cut {
			cut[i] = min(cut[i], longest)
		}
		return cut
	}
	onAverage := func(fast, strict stats) bool {
		return strict.mean-fast.mean > noise+3*math.Hypot(fast.err, strict.err)
	}
	f, s := figuresOf(fast), figuresOf(strict)
	return onAverage(f, s) || onAverage(figuresOf(short(fast)), figuresOf(short(strict))) || f.best < s.best*3/4-spread
}

// rounded keeps tenths of a nanosecond.
func rounded(samples []float64) []float64 {
	list := make([]float64, len(samples))
	for i, x := range samples {
		list[i] = float64(int64(x*10+0.5)) / 10
	}
	return list
}
