package runner

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

func TestOutcomeOf(t *testing.T) {
	for want, err := range map[string]error{
		schema.OutcomePassed:      nil,
		schema.OutcomeWrong:       inPhase("test", endf(schema.OutcomeWrong, "x")),
		schema.OutcomeDiskFull:    fmt.Errorf("writing: %w", syscall.ENOSPC),
		schema.OutcomeMachine:     fmt.Errorf("writing: %w", syscall.EIO),
		schema.OutcomeWeakSandbox: endf(schema.OutcomeWeakSandbox, "x"),
	} {
		if got := outcomeOf(err); got.Name != want || (got.Phase == "test") != (want == schema.OutcomeWrong) {
			t.Errorf("outcomeOf(%v) = %+v, want %s", err, got, want)
		}
	}
}

func TestExplain(t *testing.T) {
	crashed := endf(schema.OutcomeCrashed, "the tester was killed")
	for _, tt := range []struct {
		name    string
		err     error
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
		{"no channel", crashed, 111, 0, false, schema.OutcomeHarness},
		{"status 1", crashed, 1, 0, false, schema.OutcomeCrashed},
	} {
		ph := &phase{evaluation: &evaluation{p: pythonPayload("")}, step: step{"test", schema.ModeTest, -1}}
		done := &ended{exitCode: tt.code, stdout: &capture{size: tt.printed}, stderr: &capture{}}
		run := &schema.RunResult{Passed: tt.err == nil}
		got := ""
		if err := ph.explain(tt.err, done, run, tt.oom); err != nil {
			got = outcomeOf(err).Name
		}
		if got != tt.want || run.Passed != (tt.want == "") {
			t.Errorf("%s: %q, want %q; passed %v", tt.name, got, tt.want, run.Passed)
		}
	}
}
