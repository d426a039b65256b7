package verdict

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

func ranked(means ...string) *schema.Result {
	report := schema.Report{{Key: "benchmark-count", Value: fmt.Sprint(len(means))}}
	for i, m := range means {
		report = append(report, schema.Entry{Key: fmt.Sprintf("benchmark.%d.mean", i), Value: m})
	}
	run := schema.EvalResult{Run: &schema.RunResult{Success: true, Passed: true, Result: report}}
	return &schema.Result{Runs: schema.Runs{{Name: "leaderboard", EvalResult: run}}}
}

// The figures of the first two rows were computed by Kernelbot's compute_score.
func TestScore(t *testing.T) {
	t.Parallel()
	tiny := make([]string, 60)
	for i := range tiny {
		tiny[i] = "100"
	}
	for _, tt := range []struct {
		ranking string
		result  *schema.Result
		want    float64
	}{
		{"last", ranked("1500000.5"), 0.0015000005},
		{"", ranked("1500000.5"), 0.0015000005},
		{"mean", ranked("1500000.5", "6000000"), 0.00375000025},
		{"geom", ranked("1500000.5", "6000000"), math.Pow(0.0015000005*0.006, 1.0/2)},
		{"geom", ranked("1e6", "2e6", "4e6"), math.Pow(0.001*0.002*0.004, 1.0/3)},
	} {
		got, err := score(tt.result, tt.ranking)
		if err != nil || got != tt.want {
			t.Errorf("Score by %q: got %v, %v, want %v", tt.ranking, got, err, tt.want)
		}
	}
	// Kernelbot's product underflows here and scores 0.
	if got, err := score(ranked(tiny...), "geom"); err != nil || math.Abs(got/1e-7-1) > 1e-12 {
		t.Errorf("Score of 60 times 100 ns: got %v, %v, want 1e-07", got, err)
	}
}

func TestScoreRefusals(t *testing.T) {
	t.Parallel()
	failed := ranked("1")
	failed.Runs[0].Run.Passed = false
	for _, r := range []*schema.Result{{}, failed, {Runs: schema.Runs{{Name: "leaderboard"}}}} {
		if _, err := score(r, "last"); !errors.Is(err, ErrNoScore) {
			t.Errorf("Score without a passed leaderboard run: got %v, want ErrNoScore", err)
		}
	}
	for want, r := range map[string]*schema.Result{
		"got 2 benchmarks": ranked("1", "2"),
		`got "0"`:          ranked("0"),
		`got "-5"`:         ranked("-5"),
		`got "5e-324"`:     ranked("5e-324"), // above zero, but not in seconds
		`got "nan"`:        ranked("nan"),
		`got "inf"`:        ranked("inf"),
		`got ""`:           ranked(""),
		`benchmark-count`:  ranked(),
	} {
		if _, err := score(r, "last"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Score: got %v, want %q", err, want)
		}
	}
}

// The figures are those of the contract's example.
func TestRunScore(t *testing.T) {
	run := func(means ...string) *schema.RunResult {
		r := &schema.RunResult{Success: true, Passed: true, Result: schema.Report{{Key: "benchmark-count", Value: fmt.Sprint(len(means))}}}
		for i, m := range means {
			r.Result = append(r.Result, schema.Entry{Key: fmt.Sprintf("benchmark.%d.mean", i), Value: m})
		}
		return r
	}
	long := make([]string, 60)
	for i := range long {
		long[i] = "100"
	}
	for _, tt := range []struct {
		by   string
		run  *schema.RunResult
		want float64
	}{
		{"last", run("1500000.5"), 0.0015000005},
		{"mean", run("1500000.5", "6000000"), 0.00375000025},
		{"geom", run("1500000.5", "6000000"), 0.0030000005},
		{"geom", run(long...), 1e-7}, // the product underflows
		{"last", run("1", "2"), -1},
		{"mean", run("0"), -1}, {"mean", run("NaN"), -1}, {"mean", run("-1"), -1}, {"mean", run("Inf"), -1}, {"mean", run("x"), -1}, {"mean", run(), -1},
	} {
		got, err := RunScore(tt.run, tt.by)
		if (err == nil) != (tt.want >= 0) || err == nil && math.Abs(got-tt.want) > 1e-9*tt.want+1e-15 {
			t.Errorf("RunScore by %s = %v, %v, want %g", tt.by, got, err, tt.want)
		}
	}
	huge := run("1")
	huge.Result[0].Value = "99999999999"
	if got, err := RunScore(huge, "mean"); err == nil {
		t.Errorf("the score of a report that lacks its benchmarks = %v", got)
	}
}
