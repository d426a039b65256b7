package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

func wrote(text string) Stream { return Stream{Head: []byte(text), Size: int64(len(text))} }

// TestPhase goes once through every way in which a phase can end.
func TestPhase(t *testing.T) {
	const pass = "test-count: 1\ntest.0.spec: n: 1\ntest.0.status: pass\ncheck: pass\n"
	const fail = "test-count: 1\ntest.0.spec: n: 1\ntest.0.status: fail\ntest.0.error: off by one\ncheck: fail\n"
	limit := 10 * time.Second
	py := plan.Phase{Name: "test", Mode: schema.ModeTest, Cases: "n: 1\n", Test: &plan.Command{Argv: []string{"python3", "eval.py"}, Limit: limit}}
	warm, cu, profile := py, py, py
	warm.WarmUp = &plan.Command{Argv: []string{"python3", "submission.py"}}
	cu.Compiler, cu.Version, cu.Compile = "nvcc", &plan.Command{}, &plan.Command{Argv: []string{"nvcc", "a.cu"}, Limit: limit}
	profile.Mode, profile.Profile = schema.ModeProfile, &plan.Profile{Program: "ncu"}
	noCompiler := schema.NewOutcome(schema.OutcomeNoCompiler, "the machine has no nvcc")
	refused := plan.Phase{Compiler: "nvcc", Refused: &noCompiler}
	version, compiled := &Process{Stdout: wrote("built\nV1.0\n")}, &Process{}
	profiled := strings.NewReplacer("test-", "benchmark-", "test.", "benchmark.").Replace(pass)
	for _, tt := range []struct {
		name    string
		plan    plan.Phase
		seen    Seen
		outcome string // "": none
		text    string
		passed  bool
		runs    bool
	}{
		{"a pass", py, Seen{Test: &Process{Report: wrote(pass)}}, "", "", true, true},
		{"a wrong answer", py, Seen{Test: &Process{ExitCode: 112, Report: wrote(fail)}}, schema.OutcomeWrong, "test.0 failed (n: 1): off by one", false, true},
		{"a pass, and then another status", py, Seen{Test: &Process{ExitCode: 7, Report: wrote(pass)}}, schema.OutcomeExited, "ended its own process: the tester ended with status 7", true, true},
		{"a pass of something else", py, Seen{Test: &Process{Report: wrote(strings.ReplaceAll(pass, "n: 1", "n: 2"))}}, schema.OutcomeForged, `test.0.spec is "n: 2"`, false, true},
		{"no word", py, Seen{Test: &Process{}}, schema.OutcomeNoVerdict, "", false, true},
		{"a report that was cut", py, Seen{Test: &Process{Report: Stream{Head: []byte(pass), Size: ReportLimit + 1}}}, schema.OutcomeReportTooLong, "", false, true},
		{"too slow", py, Seen{Test: &Process{How: TimedOut, ExitCode: ExitTimeout, Report: wrote(pass)}}, schema.OutcomeTimeout, "passed the time limit of 10s", false, true},
		{"out of the job's time", py, Seen{Test: &Process{How: OutOfTime, ExitCode: ExitTimeout}}, schema.OutcomeOutOfTime, OutOfTimeText, false, true},
		{"canceled", py, Seen{Test: &Process{How: Canceled, ExitCode: ExitTimeout}}, "", "", false, false},
		{"ended before the harness", warm, Seen{WarmUp: &Process{}}, "", "", false, false},
		{"compiled", cu, Seen{Version: version, Compile: compiled, Test: &Process{Report: wrote(pass)}}, "", "", true, true},
		{"compiled, and no program", cu, Seen{Version: version, Compile: compiled, Test: &Process{NotStarted: "exec format error"}}, schema.OutcomeCrashed, "cannot be started: exec format error", false, true},
		{"does not compile", cu, Seen{Version: version, Compile: &Process{ExitCode: 1}}, schema.OutcomeCompileFailed, "nvcc ends with status 1", false, true},
		{"compiles for too long", cu, Seen{Version: version, Compile: &Process{How: TimedOut, ExitCode: ExitTimeout}}, schema.OutcomeCompileTime, "nvcc passed its limit of 10s", false, true},
		{"a compiler that does not work", cu, Seen{Version: &Process{ExitCode: 3}}, schema.OutcomeNoCompiler, "nvcc --version ends with status 3", false, true},
		{"no compiler", refused, Seen{}, schema.OutcomeNoCompiler, "the machine has no nvcc", false, true},
		{"profiled", profile, Seen{Test: &Process{Report: wrote(profiled)}}, "", "", true, true},
		{"a profiler that does not work", profile, Seen{Test: &Process{ExitCode: 127}}, schema.OutcomeNoProfiler, "ncu ended with status 127", false, true},
	} {
		v := Phase(&tt.plan, &tt.seen)
		outcome, text := "", ""
		if v.Outcome != nil {
			outcome, text = v.Outcome.Name, v.Outcome.Text
		}
		if outcome != tt.outcome || !strings.Contains(text, tt.text) {
			t.Errorf("%s: outcome %q: %q, want %q with %q", tt.name, outcome, text, tt.outcome, tt.text)
		}
		if (v.Run != nil) != tt.runs || v.Run != nil && v.Run.Passed != tt.passed {
			t.Errorf("%s: run %+v, want one: %v, passed %v", tt.name, v.Run, tt.runs, tt.passed)
		}
		if tt.plan.Compile != nil && v.Compiler != "" && v.Compiler != "nvcc: V1.0" {
			t.Errorf("%s: compiler %q", tt.name, v.Compiler)
		}
		if v.Profiled != (tt.name == "profiled") {
			t.Errorf("%s: profiled %v", tt.name, v.Profiled)
		}
	}
}

// A C++ harness is linked with the submission; a Python one tells when it
// imports that; the known ones share theirs even when they do not tell. A pass
// of any of them is the submission's own word, and nothing else is.
func TestSharedJudge(t *testing.T) {
	py := plan.Phase{Mode: schema.ModeTest, Test: &plan.Command{}}
	cu, known := py, py
	cu.Version, cu.Compile = &plan.Command{}, &plan.Command{}
	known.Variant = &plan.Variant{Name: "pmpp_v2"}
	for _, tt := range []struct {
		name string
		p    plan.Phase
		told bool
		want bool
	}{{"unknown", py, false, false}, {"unknown that told", py, true, true}, {"C++", cu, false, true}, {"known", known, false, true}} {
		for report, passed := range map[string]bool{"test-count: 0\ncheck: pass\n": true, "check: fail\n": false} {
			s := Seen{Version: &Process{}, Compile: &Process{}, Test: &Process{Shared: tt.told, Report: wrote(report)}}
			if v := Phase(&tt.p, &s); v.SharedJudge != tt.want || v.SelfChecked != (tt.want && passed) || v.Run.Passed != passed {
				t.Errorf("%s, passed %v: shared judge %v, self-checked %v, want %v", tt.name, v.Run.Passed, v.SharedJudge, v.SelfChecked, tt.want)
			}
		}
	}
}
