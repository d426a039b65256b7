package judge

import (
	"testing"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

func TestExact(t *testing.T) {
	crashed := schema.Outcomef(schema.OutcomeCrashed, "the tester was killed")
	for _, tt := range []struct {
		name    string
		outcome *schema.Outcome
		code    int
		printed int64
		oom     bool
		want    string
	}{
		{"a pass", nil, 0, 0, false, ""},
		{"a pass while others want memory", nil, 0, 0, true, ""},
		{"a pass with too much output", nil, 0, outputLimit + 1, false, schema.OutcomeOutputTooLong},
		{"just enough output", nil, 0, outputLimit, false, ""},
		{"killed by the kernel", crashed, -9, 0, true, schema.OutcomeOutOfMemory},
		{"killed by itself", crashed, -9, 0, false, schema.OutcomeKilled},
		{"a fault while others want memory", crashed, -11, 0, true, schema.OutcomeKilled},
		{"no channel, says whoever left", crashed, 111, 0, false, schema.OutcomeExited},
		{"no cases, says whoever left", crashed, 113, 0, false, schema.OutcomeExited},
		{"status 1", crashed, 1, 0, false, schema.OutcomeExited},
	} {
		p := &plan.Phase{Name: "test", Mode: schema.ModeTest, Test: &plan.Command{Seed: new(int64)}}
		seen := &Process{ExitCode: tt.code, Stdout: Stream{Size: tt.printed}, OutOfMemory: tt.oom}
		run := &schema.RunResult{Passed: tt.outcome == nil}
		got := ""
		if o := exact(p, seen, run, tt.outcome); o != nil {
			got = o.Name
		}
		if got != tt.want || run.Passed != (tt.want == "") {
			t.Errorf("%s: %q, want %q; passed %v", tt.name, got, tt.want, run.Passed)
		}
	}
}
