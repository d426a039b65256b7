package judge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

const seedText = "777190482231"

func secretPhase(mode string) *plan.Phase {
	seed := int64(777190482231)
	return &plan.Phase{Name: mode, Mode: mode, Cases: "n: 1\nn: 2\n", Test: &plan.Command{Argv: []string{"python3", "eval.py"}, Seed: &seed}}
}

// said is a process that says the seed wherever it can.
func said(code int, report string) *Process {
	return &Process{ExitCode: code, Duration: 1e9, Stdout: wrote("out " + seedText), Stderr: wrote("Traceback\nMemoryError: " + seedText), Report: wrote(report)}
}

func TestSecretReport(t *testing.T) {
	w := schema.WithheldText
	for _, tt := range []struct {
		name, mode, report, outcome, text string
		code                              int
		want                              schema.Report
	}{
		{"wrong", schema.ModeTest,
			"test-count: 2\ntest.0.spec: n:  1\ntest.0.status: pass\ntest.0.message: S\ntest.1.spec: n: 2\ntest.1.status: fail\ntest.1.error: got S\nS: 1\nnote: S\ncheck: fail\n",
			schema.OutcomeWrong, "test.1 failed; more is " + w, 112,
			schema.Report{{Key: "test-count", Value: "2"}, {Key: "test.0.spec", Value: "n: 1"}, {Key: "test.0.status", Value: "pass"}, {Key: "test.0.message", Value: w},
				{Key: "test.1.spec", Value: "n: 2"}, {Key: "test.1.status", Value: "fail"}, {Key: "test.1.error", Value: w}, {Key: "check", Value: "fail"}}},
		{"another case", schema.ModeTest, "test-count: S\ntest.0.spec: n: S\ntest.0.status: S\ntest.S.status: fail\ntest.00.status: fail\ntest.7.status: fail\ncheck: fail\n",
			schema.OutcomeWrong, "a case failed its check: the answer is wrong; more is " + w, 112,
			schema.Report{{Key: "test-count", Value: w}, {Key: "test.0.spec", Value: w}, {Key: "test.0.status", Value: w}, {Key: "check", Value: "fail"}}},
		{"another check", schema.ModeTest, "check: S\n", schema.OutcomeWrong, "a case failed its check", 0, schema.Report{{Key: "check", Value: w}}},
		{"figures of a failure", schema.ModeBenchmark, "benchmark-count: 2\nbenchmark.0.mean: S\nbenchmark.0.best: 5\nbenchmark.1.status: fail\ncheck: fail\n",
			schema.OutcomeWrong, "benchmark.1 failed", 112,
			schema.Report{{Key: "benchmark-count", Value: "2"}, {Key: "benchmark.1.status", Value: "fail"}, {Key: "check", Value: "fail"}}},
		{"a contradiction", schema.ModeTest, "check: pass\ncheck: S\n", schema.OutcomeInconsistent, "the report contradicts itself; more is " + w, 0, schema.Report{{Key: "check", Value: "pass"}}},
		{"a forgery", schema.ModeTest, "test-count: S\ncheck: pass\n", schema.OutcomeForged, "more is " + w, 0, schema.Report{{Key: "test-count", Value: w}, {Key: "check", Value: "pass"}}},
		{"no verdict", schema.ModeTest, "S\n", schema.OutcomeNoVerdict, "more is " + w, 0, nil},
		{"a crash", schema.ModeTest, "", schema.OutcomeOutOfMemory, "the tester ended with status 1", 1, nil},
		{"a signal", schema.ModeTest, "", schema.OutcomeKilled, "the tester was killed by signal 11", -11, nil},
	} {
		fill := strings.NewReplacer("S", seedText)
		v := Phase(secretPhase(tt.mode), &Seen{Test: said(tt.code, fill.Replace(tt.report))})
		if v.Outcome == nil || v.Outcome.Name != tt.outcome || !strings.Contains(v.Outcome.Text, tt.text) {
			t.Errorf("%s: outcome %+v, want %s with %q", tt.name, v.Outcome, tt.outcome, tt.text)
		}
		if diff := cmp.Diff(tt.want, v.Run.Result); diff != "" {
			t.Errorf("%s: report (-want +got):\n%s", tt.name, diff)
		}
		if v.Run.Stdout != w || v.Run.Stderr != w {
			t.Errorf("%s: stdout %q, stderr %q", tt.name, v.Run.Stdout, v.Run.Stderr)
		}
		if all := fmt.Sprintf("%+v %+v %+v", v, v.Run, v.Outcome); strings.Contains(all, seedText) {
			t.Errorf("%s: the seed is told: %s", tt.name, all)
		}
	}
}

// A pass tells its figures, which are the score.
func TestSecretPass(t *testing.T) {
	report := ""
	for i := range 2 {
		report += fmt.Sprintf("benchmark.%d.spec: n: %d\n", i, i+1)
		for _, figure := range []string{"runs: 4", "mean: 1500.5", "std: 2.0", "err: 1.0", "best: 1498.5", "worst: 1502.5"} {
			report += fmt.Sprintf("benchmark.%d.%s\n", i, figure)
		}
	}
	v := Phase(secretPhase(schema.ModeLeaderboard), &Seen{Test: said(0, "benchmark-count: 2\nseed: "+seedText+"\nbenchmark.0.message: "+seedText+"\n"+report+"check: pass\n")})
	if v.Outcome != nil || !v.Run.Passed {
		t.Fatalf("outcome %+v, run %+v, want a pass", v.Outcome, v.Run)
	}
	if got, _ := v.Run.Result.Get("benchmark.1.mean"); got != "1500.5" {
		t.Errorf("mean %q, want 1500.5", got)
	}
	if len(v.Run.Result) != 2+2*7+1 || strings.Contains(fmt.Sprint(v.Run.Result), seedText) {
		t.Errorf("report %v", v.Run.Result)
	}
}

// What compilers and build tools printed in a later phase may come from an
// earlier one, which had the seed.
func TestSecretCompilation(t *testing.T) {
	p := secretPhase(schema.ModeTest)
	p.Compiler, p.Version, p.Compile = "nvcc", &plan.Command{}, &plan.Command{Argv: []string{"nvcc", "a.cu"}}
	v := Phase(p, &Seen{Version: &Process{Stdout: wrote("V1.0\n")}, Compile: &Process{ExitCode: 2, Stdout: wrote(seedText), Stderr: wrote(seedText)}})
	if c := v.Compilation; c == nil || c.Stdout != schema.WithheldText || c.Stderr != schema.WithheldText || v.Outcome.Text != "nvcc ends with status 2" {
		t.Errorf("compilation %+v, outcome %+v", v.Compilation, v.Outcome)
	}
	p = secretPhase(schema.ModeTest)
	p.WarmUp = &plan.Command{Argv: []string{"python3", "submission.py"}}
	v = Phase(p, &Seen{WarmUp: &Process{Marked: true, Stdout: wrote(seedText)}, Test: said(0, "")})
	if c := v.Compilation; c == nil || c.Stdout != schema.WithheldText || c.Stderr != "" {
		t.Errorf("warm-up %+v", v.Compilation)
	}
}

// Without a secret seed everything is told, as before.
func TestOpenSeedWithholdsNothing(t *testing.T) {
	p := secretPhase(schema.ModeTest)
	p.Test.Seed = nil
	v := Phase(p, &Seen{Test: said(112, "note: x\ncheck: fail\n")})
	if _, ok := v.Run.Result.Get("note"); !ok || !strings.Contains(v.Run.Stdout, seedText) {
		t.Errorf("run %+v", v.Run)
	}
}
