package harness

import "math"

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
