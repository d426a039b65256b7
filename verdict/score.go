package verdict

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// ErrNoScore is a result without a leaderboard run that passed.
var ErrNoScore = errors.New("no score: no leaderboard run that passed")

// score returns the seconds that rank a result, lower is better, under one of
// [schema.Rankings] ("" is last).
//
// The geometric mean is Kernelbot's to the last bit while its product of
// seconds can be held; below that, where Kernelbot scores 0, logarithms are
// summed. Times that are not above zero are refused.
//
// Errors: [ErrNoScore]; a report whose benchmarks cannot be used.
//
// Source: gpu-mode/kernelbot, src/libkernelbot/submission.py, compute_score.
func score(r *schema.Result, ranking string) (float64, error) {
	run := r.Runs.Get(schema.ModeLeaderboard)
	if run == nil {
		return 0, ErrNoScore
	}
	return RunScore(run.Run, ranking)
}

// RunScore is score of a leaderboard run; nil is one that did not happen.
func RunScore(run *schema.RunResult, ranking string) (float64, error) {
	if run == nil || !run.Success || !run.Passed {
		return 0, ErrNoScore
	}
	means, err := seconds(run.Result)
	if err != nil {
		return 0, fmt.Errorf("score: %w", err)
	}
	return combine(means, ranking)
}

// combine makes one figure of the seconds of several benchmarks.
func combine(seconds []float64, ranking string) (float64, error) {
	switch ranking {
	case schema.RankLast, "":
		if len(seconds) != 1 {
			return 0, fmt.Errorf("score: got %d benchmarks, want one with ranking by last", len(seconds))
		}
		return seconds[0], nil
	case schema.RankMean:
		sum := 0.0
		for _, s := range seconds {
			sum += s
		}
		return sum / float64(len(seconds)), nil
	case schema.RankGeom:
		return geometricMean(seconds), nil
	}
	return 0, fmt.Errorf("score: got ranking %q, want one of %q", ranking, schema.Rankings())
}

// Interval returns the 95 % interval of a leaderboard run's score, if every
// benchmark of the run has one.
func Interval(run *schema.RunResult, measured []schema.Measurement, ranking string) (low, high float64, ok bool) {
	count, _ := run.Result.Get("benchmark-count")
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > len(run.Result) {
		return 0, 0, false
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
		return 0, 0, false
	}
	low, err = combine(lows, ranking)
	high, _ = combine(highs, ranking) // fails as the one above
	return low, high, err == nil
}

// seconds reads the benchmarks' means, which testers write in nanoseconds.
func seconds(report schema.Report) ([]float64, error) {
	count, _ := report.Get("benchmark-count")
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > len(report) {
		return nil, fmt.Errorf("benchmark-count: got %q, want the number of benchmarks", text.Line(count, 40))
	}
	means := make([]float64, n)
	for i := range means {
		key := fmt.Sprintf("benchmark.%d.mean", i)
		mean, _ := report.Get(key)
		ns, err := strconv.ParseFloat(mean, 64)
		if err != nil || !(ns/1e9 > 0) || math.IsInf(ns, 0) { // 5e-324 is above zero, and in seconds it is not
			return nil, fmt.Errorf("%s: got %q, want nanoseconds above zero", key, text.Line(mean, 40))
		}
		means[i] = ns / 1e9
	}
	return means, nil
}

func geometricMean(v []float64) float64 {
	product, logs := 1.0, 0.0
	for _, x := range v {
		product *= x
		logs += math.Log(x)
	}
	n := float64(len(v))
	if product < 0x1p-1022 || math.IsInf(product, 0) { // digits are lost already
		return math.Exp(logs / n)
	}
	return math.Pow(product, 1/n)
}
