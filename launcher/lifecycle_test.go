package launcher

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildkite/go-buildkite/v3/buildkite"
)

// Each row is what one probe shows, and where it leaves a build that a probe a
// minute before found in a phase.
func TestLifecycle(t *testing.T) {
	started := &buildkite.Timestamp{Time: time.Unix(1e9, 0)}
	waits := []Job{{Type: "script", AgentQueryRules: []string{"queue=bootstrap"}, StartedAt: started}, {Type: "script", AgentQueryRules: []string{"queue=cpu"}}}
	runs := []Job{waits[0], {Type: "script", AgentQueryRules: []string{"queue=cpu"}, StartedAt: started}}
	open := func(jobs []Job) update { return update{jobs: jobs != nil, build: &Build{State: "running", Jobs: jobs}} }
	over := func(jobs []Job) update { return update{jobs: jobs != nil, build: &Build{State: "failed", Jobs: jobs}} }
	for _, tt := range []struct {
		name string
		from Phase
		saw  update
		to   Phase
		then action
	}{
		{"bootstrap", PhaseQueued, open(waits[:1]), PhaseQueued, keepPolling},
		{"no machine yet", PhaseQueued, open(waits), PhaseQueued, keepPolling},
		{"a machine", PhaseQueued, open(runs), PhaseRunning, keepPolling},
		{"still running", PhaseRunning, open(runs), PhaseRunning, keepPolling},
		{"retried: it waits again", PhaseRunning, open(waits), PhaseQueued, keepPolling},
		{"without its jobs nothing changes", PhaseRunning, open(nil), PhaseRunning, keepPolling},
		{"a state nobody has heard of", PhaseRunning, update{build: &Build{State: "surprising"}}, PhaseRunning, keepPolling},
		{"over", PhaseRunning, over(runs), PhaseFetching, collectResult},
		{"over before it was seen running", PhaseQueued, over(runs), PhaseFetching, collectResult},
		{"over without an evaluation", PhaseQueued, over(waits[:1]), PhaseFetching, collectResult},
		{"blocked", PhaseQueued, update{build: &Build{State: "passed", Blocked: true}}, PhaseQueued, giveBuildUp},
		{"left", PhaseRunning, update{left: true}, PhaseRunning, askByNumber},
		{"over, and running again", PhaseFetching, open(runs), PhaseRunning, keepPolling},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLifecycle(&Run{Queue: "cpu", QueueTimeout: time.Hour, RunTimeout: 10 * time.Minute})
				l.enter(tt.from)
				entered := time.Now()
				time.Sleep(time.Minute)
				then := l.observe(&tt.saw)
				phase, since := l.current()
				if phase != tt.to || then != tt.then {
					t.Errorf("from %s: got phase %s and action %d, want %s and %d", tt.from, phase, then, tt.to, tt.then)
				}
				if tt.to != tt.from {
					entered = time.Now()
				}
				if !since.Equal(entered) {
					t.Errorf("the phase began at %s, want %s", since, entered)
				}
				limit := map[Phase]time.Duration{PhaseQueued: time.Hour, PhaseRunning: 10 * time.Minute, PhaseFetching: 10 * time.Minute}[tt.to]
				if got := l.deadline(); !got.Equal(entered.Add(limit)) {
					t.Errorf("deadline: got %s, want %s", got, entered.Add(limit))
				}
				if got := l.polled(); got != (tt.to != PhaseFetching) {
					t.Errorf("polled: got %t in phase %s", got, tt.to)
				}
			})
		})
	}
}

// A retried job waits for a machine with a whole QueueTimeout again.
func TestRetriedJobWaitsAnew(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fake) {
		f.onCreate = func(b *fakeBuild) {
			begun := time.Now()
			b.script = func(b *fakeBuild) {
				state := "scheduled"
				if age := time.Since(begun); age > 20*time.Minute && age < 30*time.Minute {
					state = "running"
				} else if age > 50*time.Minute {
					b.finish("passed")
					return
				}
				b.state, b.jobs = "running", []map[string]any{scriptJob("job-1", "evaluate", "cpu", state)}
			}
		}
		s := submission()
		s.QueueTimeout, s.RunTimeout = 25*time.Minute, 15*time.Minute
		r, err := f.client().Submit(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if ran := r.Timeline.Running.Sub(r.Timeline.Created); ran < 20*time.Minute || ran > 21*time.Minute {
			t.Errorf("first seen running after %s, want about 20 minutes", ran)
		}
	})
}
