package judge

import (
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

func TestTold(t *testing.T) {
	for words, want := range map[string]struct {
		shared bool
		worker int // 999: none
	}{
		"": {false, 999}, "1": {true, 999}, "111": {true, 999}, "w-11;": {false, -11}, "w1;": {false, 1}, "1w0;": {true, 0}, "w3;1": {true, 3},
		"w9999;": {true, 999}, "w256;": {false, 999}, "w-65;": {false, 999}, "w-11": {true, 999}, "w;": {false, 999},
	} {
		shared, worker := Told([]byte(words))
		got := 999
		if worker != nil {
			got = *worker
		}
		if shared != want.shared && !strings.HasPrefix(words, "w9999") && words != "w-11" || got != want.worker {
			t.Errorf("Told(%q) = %v, %d, want %v, %d", words, shared, got, want.shared, want.worker)
		}
	}
}

func TestWorkerOutcome(t *testing.T) {
	for _, tt := range []struct {
		code          int
		oom           bool
		outcome, text string
	}{
		{-11, false, schema.OutcomeKilled, "the worker that ran the submission was killed by signal 11 (segmentation fault) before it had answered"},
		{-9, false, schema.OutcomeKilled, "killed by signal 9"},
		{-9, true, schema.OutcomeOutOfMemory, "want of memory"},
		{3, true, schema.OutcomeExited, "the worker that ran the submission ended with status 3 before it had answered"},
		{112, false, schema.OutcomeExited, "status 112"},
		{0, false, schema.OutcomeExited, "status 0"},
	} {
		for _, secret := range []bool{false, true} {
			p := secretPhase(schema.ModeTest)
			if !secret {
				p.Test = &plan.Command{Argv: p.Test.Argv}
			}
			v := Phase(p, &Seen{Test: &Process{ExitCode: 1, Worker: &tt.code, OutOfMemory: tt.oom, Stderr: wrote("x\n")}})
			if v.Outcome == nil || v.Outcome.Name != tt.outcome || !strings.Contains(v.Outcome.Text, tt.text) {
				t.Errorf("status %d, secret %v: %+v, want %s with %q", tt.code, secret, v.Outcome, tt.outcome, tt.text)
			}
		}
	}
	// A word of a worker changes nothing where the harness itself came to an end.
	code := -11
	if v := Phase(secretPhase(schema.ModeTest), &Seen{Test: &Process{Worker: &code, Report: wrote("check: fail\n")}}); v.Outcome.Name != schema.OutcomeWrong {
		t.Errorf("outcome %+v", v.Outcome)
	}
}
