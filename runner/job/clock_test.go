package job

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

func TestClockNests(t *testing.T) {
	start := time.Now()
	for _, tt := range []struct {
		limit    time.Duration
		timeout  string
		deadline time.Duration // 0: none
	}{
		{0, "", 0},
		{0, "false", 0},
		{0, "15", 14*time.Minute + 30*time.Second},
		{0, "1", 30 * time.Second},
		{7 * time.Minute, "15", 7 * time.Minute},
		{20 * time.Minute, "15", 14*time.Minute + 30*time.Second},
		{7 * time.Minute, "", 7 * time.Minute},
	} {
		env := Env{Lookup: func(string) (string, bool) { return tt.timeout, tt.timeout != "" }}
		c := newClock(start, tt.limit, env)
		if tt.deadline == 0 {
			if c != (clock{start: start}) || c.left(time.Hour) != time.Hour {
				t.Errorf("%+v: %+v", tt, c)
			}
			continue
		}
		if got := c.deadline.Sub(start); got != tt.deadline {
			t.Errorf("%+v: deadline after %s", tt, got)
		}
		if !c.deadline.Before(c.late) || !c.late.Before(c.end) || c.end.After(c.deadline.Add(deadlineMargin)) {
			t.Errorf("%+v does not nest: %+v", tt, c)
		}
		if got := c.left(24 * time.Hour); got > tt.deadline+deadlineMargin {
			t.Errorf("%+v: %s left", tt, got)
		}
	}
}

func TestGuarded(t *testing.T) {
	passed := &schema.Result{Outcome: schema.NewOutcome(schema.OutcomePassed, "")}
	hang := func(context.Context) *schema.Result { select {} }
	past := clock{late: time.Now()}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, tt := range map[string]struct {
		ctx     context.Context
		clock   clock
		judge   func(context.Context) *schema.Result
		outcome string
		trusted bool
	}{
		"returns":  {context.Background(), clock{}, func(context.Context) *schema.Result { return passed }, schema.OutcomePassed, true},
		"panics":   {context.Background(), clock{}, func(context.Context) *schema.Result { panic("index 3 \x1b[0m") }, schema.OutcomeRunner, false},
		"hangs":    {context.Background(), past, hang, schema.OutcomeMachine, false},
		"canceled": {canceled, clock{}, func(ctx context.Context) *schema.Result { <-ctx.Done(); return passed }, schema.OutcomePassed, true},
	} {
		var stderr strings.Builder
		r, trusted := guarded(tt.ctx, tt.clock, "run-1", &stderr, tt.judge)
		if r.Outcome.Name != tt.outcome || trusted != tt.trusted || name != "returns" && name != "canceled" && (r.RunID != "run-1" || r.Outcome.ExitStatus() != 75) {
			t.Errorf("%s: %+v, trusted %v", name, r, trusted)
		}
		if name == "panics" && (!strings.HasPrefix(stderr.String(), "kbrun: panic: index 3\n") || !strings.Contains(stderr.String(), "clock_test.go")) {
			t.Errorf("stderr %q", stderr.String())
		}
	}
}

// A judge that a signal does not end is left behind.
func TestGuardedAfterASignal(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the whole limit")
	}
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	start := time.Now()
	r, trusted := guarded(ctx, clock{}, "r", nil, func(context.Context) *schema.Result { select {} })
	if took := time.Since(start); r.Outcome.Name != schema.OutcomeCanceled || trusted || took < cancelLimit {
		t.Errorf("%+v after %s", r, took)
	}
}
