package judge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

const twoCases = "size: 127; seed: 4242\nsize: 128; seed: 5236\n"

// honest are reports in every shape that testers are known to write, with
// invented figures. Source of the shapes: gpu-mode/kernelbot examples/eval.cu
// and the eval.py files of gpu-mode/reference-kernels.
var honest = []struct{ name, mode, cases, report string }{
	{"test, Python", schema.ModeTest, twoCases, `
test-count: 2
test.0.spec: size: 127; seed: 4242
test.0.status: pass
test.1.spec: size: 128; seed: 5236
test.1.status: pass
check: pass`},
	{"test with notes", schema.ModeTest, twoCases, `
test-count: 2
test.0.spec: size: 127; seed: 4242
test.0.status: pass
test.0.message: forward max err=1.234e-05
and a second line of it: odd
test.1.spec: size: 128; seed: 5236
test.1.status: pass
test.1.message: fine
check: pass`},
	{"no tests", schema.ModeTest, "", "test-count: 0\ncheck: pass"},
	{"odd values", schema.ModeTest, "m: [96, 128]; s: bf16; f: 0.5; n: None; w: a  b \n", `
test-count: 1
test.0.spec: m: [96, 128]; s: bf16; f: 0.5; n: None; w: a b
test.0.status: pass
check: pass`},
	{"benchmark, Python: no status", schema.ModeBenchmark, twoCases, `
benchmark-count: 2
benchmark.0.spec: size: 127; seed: 4242
benchmark.0.runs: 100
benchmark.0.mean: 96260.01883589197
benchmark.0.std: 1200.5
benchmark.0.err: 120.05
benchmark.0.best: 94000.0
benchmark.0.worst: 101000.0
benchmark.1.spec: size: 128; seed: 5236
benchmark.1.runs: 3
benchmark.1.mean: 1e6
benchmark.1.std: 1e3
benchmark.1.err: 577.3502691896258
benchmark.1.best: 999000.0
benchmark.1.worst: 1001000.0
check: pass`},
	{"benchmark, CUDA: status, six decimals", schema.ModeBenchmark, "n: 64; seed: 9\n", `
benchmark-count: 1
benchmark.0.spec: n: 64; seed: 9
benchmark.0.status: pass
benchmark.0.runs: 4
benchmark.0.mean: 2500.250000
benchmark.0.std: 1.500000
benchmark.0.err: 0.750000
benchmark.0.best: 2499.000000
benchmark.0.worst: 2502.000000
check: pass`},
	{"benchmark: all runs alike", schema.ModeBenchmark, "n: 64\n", `
benchmark-count: 1
benchmark.0.spec: n: 64
benchmark.0.runs: 5
benchmark.0.mean: 2500.0
benchmark.0.std: 0.0
benchmark.0.err: 0.0
benchmark.0.best: 2500.0
benchmark.0.worst: 2500.0
check: pass`},
	{"benchmark: one run", schema.ModeBenchmark, "n: 64\n", `
benchmark-count: 1
benchmark.0.spec: n: 64
benchmark.0.runs: 1
benchmark.0.mean: 1.25e9
benchmark.0.std: 0.0
benchmark.0.err: 0.0
benchmark.0.best: 1.25e9
benchmark.0.worst: 1.25e9
check: pass`},
	{"benchmark: median for mean, std over n, further keys", schema.ModeBenchmark, "vocab_size: 32000\n", `
benchmark-count: 1
benchmark.0.spec: vocab_size: 32000
benchmark.0.runs: 2
benchmark.0.mean: 2000.0
benchmark.0.std: 500.0
benchmark.0.err: 353.5533905932738
benchmark.0.best: 1500.0
benchmark.0.worst: 2500.0
benchmark.0.fwd_bw: 812.5
benchmark.0.bwd_bw: 900.1
benchmark.0.combined_bw: 860.0
benchmark.0.speedup: 1.31
benchmark.0.message: fwd+bwd=0.002 ms, speedup=1.31x
check: pass`},
	{"leaderboard: only the last of two", schema.ModeLeaderboard, twoCases, `
benchmark-count: 1
benchmark.0.spec: size: 128; seed: 5236
benchmark.0.runs: 10
benchmark.0.mean: 5000.0
benchmark.0.std: 100.0
benchmark.0.err: 31.622776601683793
benchmark.0.best: 4900.0
benchmark.0.worst: 5200.0
check: pass`},
	{"leaderboard: only the last of two, no best, no worst", schema.ModeLeaderboard, twoCases, `
benchmark-count: 1
benchmark.0.spec: size: 128; seed: 5236
benchmark.0.runs: 10
benchmark.0.mean: 5000.0
benchmark.0.std: 100.0
benchmark.0.err: 31.622776601683793
check: pass`},
	{"leaderboard: a time of 0 after clearing the cache was taken off", schema.ModeLeaderboard, "n: 64\n", `
benchmark-count: 1
benchmark.0.spec: n: 64
benchmark.0.runs: 4
benchmark.0.mean: 1500.0
benchmark.0.std: 1000.0
benchmark.0.err: 500.0
benchmark.0.best: 0.0
benchmark.0.worst: 2000.0
check: pass`},
	{"profile", schema.ModeProfile, "size: 128; seed: 5236", `
benchmark-count: 1
benchmark.0.spec: size: 128; seed: 5236
benchmark.0.report: aGVsbG8=
check: pass`},
}

func TestHonestReportsAddUp(t *testing.T) {
	for _, tt := range honest {
		report, contradicted := parseReport(tt.report)
		if contradicted != "" {
			t.Errorf("%s: contradicted %q", tt.name, contradicted)
		}
		if m := newExpectation(tt.mode, tt.cases).verify(report, 2*time.Second); m != nil {
			t.Errorf("%s: %s: %s", tt.name, m.Name, m.Text)
		}
	}
}

func TestEveryHonestLineCounts(t *testing.T) {
	for _, tt := range honest {
		lines := strings.Split(strings.TrimSpace(tt.report), "\n")
		for i, line := range lines {
			key, _, _ := strings.Cut(line, ":")
			optional := !caseKey.MatchString(key) && key != "test-count" && key != "benchmark-count" || strings.Contains(key, "benchmark") && strings.HasSuffix(key, ".status")
			report, _ := parseReport(strings.Join(append(append([]string{}, lines[:i]...), lines[i+1:]...), "\n"))
			if m := newExpectation(tt.mode, tt.cases).verify(report, 2*time.Second); (m == nil) != optional {
				t.Errorf("%s without %q: %+v", tt.name, line, m)
			}
		}
	}
}

func TestReportsThatDoNotAddUp(t *testing.T) {
	good := "benchmark-count: 1\nbenchmark.0.spec: n: 1\nbenchmark.0.runs: 4\nbenchmark.0.mean: 1000\nbenchmark.0.std: 10\n" +
		"benchmark.0.err: 5\nbenchmark.0.best: 990\nbenchmark.0.worst: 1012\ncheck: pass\n"
	test := "test-count: 1\ntest.0.spec: n: 1\ntest.0.status: pass\ncheck: pass\n"
	for _, tt := range []struct{ mode, from, old, new, outcome string }{
		{"test", test, "test-count: 1", "test-count: 2", schema.OutcomeForged},
		{"test", test, "test-count: 1", "test-count: 01", schema.OutcomeForged},
		{"test", test, "n: 1", "n: 2", schema.OutcomeForged},
		{"test", test, "status: pass", "status: fail", schema.OutcomeInconsistent},
		{"test", test, "status: pass", "status: Pass", schema.OutcomeInconsistent},
		{"test", test, "check", "test.1.status: pass\ncheck", schema.OutcomeForged},
		{"test", test, "check", "test.00.status: fail\ncheck", schema.OutcomeForged},
		{"test", test, "check", "benchmark.0.mean: 5\ncheck", schema.OutcomeForged},
		{"benchmark", good, "check", "test.0.status: pass\ncheck", schema.OutcomeForged},
		{"benchmark", good, "check", "benchmark.0.status: fail\ncheck", schema.OutcomeInconsistent},
		{"benchmark", good, "check", "benchmark.1.mean: 5\ncheck", schema.OutcomeForged},
		{"benchmark", good, "runs: 4", "runs: 0", schema.OutcomeInconsistent},
		{"benchmark", good, "runs: 4", "runs: -4", schema.OutcomeInconsistent},
		{"benchmark", good, "runs: 4", "runs: 4.5", schema.OutcomeInconsistent},
		{"benchmark", good, "runs: 4", "runs: 9", schema.OutcomeInconsistent},
		{"benchmark", good, "runs: 4", "runs: 1", schema.OutcomeInconsistent},
		{"benchmark", good, "mean: 1000", "mean: nan", schema.OutcomeInconsistent},
		{"benchmark", good, "mean: 1000", "mean: inf", schema.OutcomeInconsistent},
		{"benchmark", good, "mean: 1000", "mean: 1e999", schema.OutcomeInconsistent},
		{"benchmark", good, "mean: 1000", "mean: 0x3e8", schema.OutcomeInconsistent},
		{"benchmark", good, "mean: 1000", "mean: 1_000", schema.OutcomeInconsistent},
		{"benchmark", good, "mean: 1000", "mean: -1000", schema.OutcomeInconsistent},
		{"benchmark", good, "mean: 1000", "mean: 1", schema.OutcomeForged},
		{"benchmark", good, "mean: 1000", "mean: 950", schema.OutcomeInconsistent},
		{"benchmark", good, "mean: 1000", "mean: 1100", schema.OutcomeInconsistent},
		{"benchmark", good, "best: 990", "best: 0", schema.OutcomeInconsistent},
		{"benchmark", good, "benchmark.0.best: 990\nbenchmark.0.worst: 1012\n", "", schema.OutcomeInconsistent},
		{"leaderboard", good, "benchmark.0.best: 990\n", "", schema.OutcomeInconsistent},
		{"leaderboard", good, "runs: 4\nbenchmark.0.mean: 1000\nbenchmark.0.std: 10\nbenchmark.0.err: 5\nbenchmark.0.best: 990\nbenchmark.0.worst: 1012", "runs: 1\nbenchmark.0.mean: 1000\nbenchmark.0.std: 5\nbenchmark.0.err: 5", schema.OutcomeInconsistent},
		{"benchmark", good, "err: 5", "err: 1", schema.OutcomeInconsistent},
		{"benchmark", good, "std: 10\nbenchmark.0.err: 5", "std: 0\nbenchmark.0.err: 0", schema.OutcomeInconsistent},
		{"benchmark", good, "std: 10\nbenchmark.0.err: 5", "std: 100\nbenchmark.0.err: 50", schema.OutcomeInconsistent},
		{"leaderboard", good, "n: 1", "n: 7", schema.OutcomeForged},
	} {
		a := newExpectation(tt.mode, "n: 1\n")
		sound, _ := parseReport(tt.from)
		if m := a.verify(sound, time.Second); m != nil {
			t.Fatalf("the sound report: %+v", m)
		}
		changed := strings.Replace(tt.from, tt.old, tt.new, 1)
		report, _ := parseReport(changed)
		if m := a.verify(report, time.Second); m == nil || m.Name != tt.outcome {
			t.Errorf("%s, %q for %q: %+v, want %s", tt.mode, tt.new, tt.old, m, tt.outcome)
		}
	}
}

func TestRunsMustFitTheProcess(t *testing.T) {
	text := "benchmark-count: 1\nbenchmark.0.spec: n: 1\nbenchmark.0.runs: 1000\nbenchmark.0.mean: 1000000\nbenchmark.0.std: 0\n" +
		"benchmark.0.err: 0\nbenchmark.0.best: 1000000\nbenchmark.0.worst: 1000000\ncheck: pass\n"
	report, _ := parseReport(text)
	for duration, ok := range map[time.Duration]bool{time.Second: true, 2 * time.Second: true, 900 * time.Millisecond: false} {
		if m := newExpectation("benchmark", "n: 1\n").verify(report, duration); (m == nil) != ok {
			t.Errorf("1000 runs of 1 ms in a process of %s: %+v", duration, m)
		}
	}
}

// FuzzVerify holds that what is believed can be scored: every mean is a
// positive finite number, however the report is written.
func FuzzVerify(f *testing.F) {
	for _, tt := range honest {
		f.Add(tt.mode, tt.cases, tt.report)
	}
	f.Fuzz(func(t *testing.T, mode, cases, text string) {
		report, _ := parseReport(text)
		a := newExpectation(mode, cases)
		if a.verify(report, time.Hour) != nil || a.kind() == "test" || mode == schema.ModeProfile {
			return
		}
		for i := range a.count(report) {
			var mean float64
			text, _ := report.Get(fmt.Sprintf("benchmark.%d.mean", i))
			if _, err := fmt.Sscan(text, &mean); err != nil || !(mean >= leastMean && mean < 1e13) {
				t.Errorf("mean %q is believed", text)
			}
		}
	})
}
