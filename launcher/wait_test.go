package launcher

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestGivingUpCancelsTheBuild(t *testing.T) {
	t.Parallel()
	queued := func(b *fakeBuild) { b.state = "scheduled" }
	running := func(b *fakeBuild) {
		b.state, b.jobs = "running", []map[string]any{scriptJob("job-1", "evaluate", "cpu", "running")}
	}
	waiting := func(b *fakeBuild) { // the build runs, its evaluation waits for a machine
		b.state, b.jobs = "running", []map[string]any{scriptJob("job-0", "upload", "bootstrap", "passed"), scriptJob("job-1", "evaluate", "cpu", "scheduled")}
	}
	for _, tt := range []struct {
		name       string
		build      func(*fakeBuild)
		queue, run time.Duration
		want       Phase
	}{
		{"never starts", queued, 30 * time.Minute, time.Hour, PhaseQueued},
		{"no machine", waiting, 30 * time.Minute, time.Hour, PhaseQueued},
		{"runs on", running, time.Hour, 30 * time.Minute, PhaseRunning},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				f.onCreate = tt.build
				s := submission()
				s.QueueTimeout, s.RunTimeout = tt.queue, tt.run
				_, err := f.client().Submit(t.Context(), s)
				var gave *GaveUpError
				if !errors.As(err, &gave) || gave.Phase != tt.want {
					t.Fatalf("Submit: got %v, want to give up while %s", err, tt.want)
				}
				if gave.After != 30*time.Minute {
					t.Errorf("gave up after %s, want 30 minutes", gave.After)
				}
				if got := f.builds[0].state; got != "canceled" {
					t.Errorf("the build is %s, want canceled", got)
				}
			})
		})
	}
}

func TestContextEndCancelsTheBuild(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	ctx, stop := context.WithCancel(t.Context())
	f.onCreate = func(b *fakeBuild) { b.script = func(b *fakeBuild) { stop() } }
	_, err := f.client().Submit(ctx, submission())
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "is cancelled") {
		t.Errorf("Submit: got %v, want context.Canceled and that the build is cancelled", err)
	}
	if got := f.builds[0].state; got != "canceled" {
		t.Errorf("the build is %s, want canceled", got)
	}
}
