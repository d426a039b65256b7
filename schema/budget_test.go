package schema

import (
	"testing"
	"time"
)

func TestBudget(t *testing.T) {
	p := Payload{Benchmarks: make([]Case, 3), TestTimeout: Seconds(10), RankedTimeout: Seconds(40)} // benchmark: 180 s
	for _, tt := range []struct {
		mode string
		want time.Duration
	}{
		{ModeTest, 130 * time.Second},
		{ModeBenchmark, 300 * time.Second},
		{ModeLeaderboard, (3*120 + 10 + 180 + 40) * time.Second},
		{ModePrivate, (3*120 + 10 + 180 + 40) * time.Second},
		{ModeProfile, 3 * 300 * time.Second},
	} {
		p.Mode = tt.mode
		if got, limited := p.Budget(); got != tt.want || !limited {
			t.Errorf("mode %s: Budget = %v, %t, want %v, true", tt.mode, got, limited, tt.want)
		}
	}
	p.Mode, p.TestTimeout = ModeTest, NoLimit()
	if got, limited := p.Budget(); limited {
		t.Errorf("without a limit: Budget = %v, true, want false", got)
	}
}
