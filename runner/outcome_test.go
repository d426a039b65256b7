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
		schema.OutcomeWrong:       inPhase("test", outcomef(schema.OutcomeWrong, "x")),
		schema.OutcomeDiskFull:    fmt.Errorf("writing: %w", syscall.ENOSPC),
		schema.OutcomeMachine:     fmt.Errorf("writing: %w", syscall.EIO),
		schema.OutcomeWeakSandbox: outcomef(schema.OutcomeWeakSandbox, "x"),
	} {
		if got := outcomeOf(err); got.Name != want || (got.Phase == "test") != (want == schema.OutcomeWrong) {
			t.Errorf("outcomeOf(%v) = %+v, want %s", err, got, want)
		}
	}
}
