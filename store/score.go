package store

import (
	"fmt"
	"math"
	"strconv"

	"github.com/gpu-mode/kbgen/schema"
)

// score is a leaderboard run's figure in seconds, as Kernelbot computes it: from
// the means of its benchmarks, which the report has in nanoseconds. nil: the run
// did not pass, or its report lacks a figure above zero.
func score(rankingBy string, r *schema.RunResult) *float64 {
	if r == nil || !r.Success || !r.Passed {
		return nil
	}
	text, _ := r.Result.Get("benchmark-count")
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > len(r.Result) {
		return nil
	}
	means := make([]float64, n)
	for i := range means {
		text, _ := r.Result.Get(fmt.Sprintf("benchmark.%d.mean", i))
		mean, err := strconv.ParseFloat(text, 64)
		if err != nil || !(mean > 0) || math.IsInf(mean, 0) {
			return nil
		}
		means[i] = mean / 1e9
	}
	return combine(rankingBy, means)
}

// combine makes one figure of several seconds. The product underflows with many
// short benchmarks; sums of logarithms then take its place.
func combine(rankingBy string, seconds []float64) *float64 {
	n := float64(len(seconds))
	var figure float64
	switch rankingBy {
	case schema.RankMean:
		for _, s := range seconds {
			figure += s
		}
		figure /= n
	case schema.RankGeom:
		product, logs := 1.0, 0.0
		for _, s := range seconds {
			product *= s
			logs += math.Log(s)
		}
		if figure = math.Pow(product, 1/n); product < 1e-300 || math.IsInf(product, 0) {
			figure = math.Exp(logs / n)
		}
	default:
		if len(seconds) != 1 {
			return nil
		}
		figure = seconds[0]
	}
	return &figure
}

// interval is the score's 95 % interval where every benchmark of the leaderboard
// run has one.
func interval(rankingBy string, r *schema.RunResult, measured []schema.Measurement) (low, high *float64) {
	text, _ := r.Result.Get("benchmark-count")
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > len(r.Result) {
		return nil, nil
	}
	lows, highs := make([]float64, n), make([]float64, n)
	found := 0
	for _, m := range measured {
		if m.Phase == schema.ModeLeaderboard && m.Case >= 0 && m.Case < n && lows[m.Case] == 0 && 0 < m.Interval[0] && m.Interval[0] <= m.Interval[1] {
			lows[m.Case], highs[m.Case] = m.Interval[0]/1e9, m.Interval[1]/1e9
			found++
		}
	}
	if found < n {
		return nil, nil
	}
	return combine(rankingBy, lows), combine(rankingBy, highs)
}
