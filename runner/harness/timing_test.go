package harness

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
)

// spin is a kernel that is on a core for the time work before it answers, by its thread's
// CPU clock. The system's clock goes on while the thread waits. The code in lie runs
// first in each call.
func spin(work time.Duration, lie string) string {
	return preamble + fmt.Sprintf(`
clock = time.thread_time_ns


def custom_kernel(data):
    end = clock() + %d
    %s
    while clock() < end:
        pass
    a, b = data
    return array("f", map(float.__add__, a, b))
`, work.Nanoseconds(), lie)
}

// measured is a submission's measurement, in benchmark mode; nil on a machine
// that stays too busy.
func measured(t *testing.T, text string) *schema.Measurement {
	t.Helper()
	p := addPayload(right, ints("n", 64, "seed", 1))
	p.BenchmarkTimeout = schema.Seconds(40)
	s := mustOpen(t, "", p)
	r := timed(t, s, schema.ModeBenchmark, text, p)
	if r.outcome == schema.OutcomeAmbiguous {
		return nil
	}
	r.want(t, schema.OutcomePassed, "")
	if len(r.Measurements) != 1 {
		t.Fatalf("measurements: %+v", r.Measurements)
	}
	return &r.Measurements[0]
}

// No figure is below the work, however busy the machine: the floor is a
// microsecond at most, and a liar gains no more.
func TestSlowNoCallIsShorterThanItsWork(t *testing.T) {
	testenv.NeedSlow(t)
	for _, tt := range []struct {
		work time.Duration
		lie  string
	}{
		{200 * time.Microsecond, "pass"},
		{time.Millisecond, "pass"},
		{200 * time.Microsecond, "time.perf_counter_ns = time.thread_time_ns = time.monotonic_ns = time.time_ns = time.time = time.monotonic = lambda: 0"},
	} {
		m := measured(t, spin(tt.work, tt.lie))
		if m == nil {
			continue
		}
		least := float64(tt.work - time.Microsecond)
		if fastest := slices.Min(m.Samples); fastest < least || m.Interval[1] < least || m.Floor > 1000 {
			t.Errorf("%s of work: a call took %.1f ns, interval %v, floor %.1f ns", tt.work, fastest, m.Interval, m.Floor)
		}
	}
}

// A kernel that does nothing is as fast as can be told, and no faster; and no
// liar is found in it.
func TestSlowNoFigureIsFinerThanTheResolution(t *testing.T) {
	testenv.NeedSlow(t)
	p := addPayload(right, ints("n", 1, "seed", 1))
	p.Sources[1].Text = "def generate_input(n, seed):\n    return n\n\n\ndef check_implementation(data, output):\n    return output == data, 'other'\n"
	s := mustOpen(t, "", p)
	r := timed(t, s, schema.ModeBenchmark, "def custom_kernel(data):\n    return data\n", p)
	if r.outcome == schema.OutcomeAmbiguous {
		t.Skipf("the machine is too busy to measure: %s", r.text)
	}
	r.want(t, schema.OutcomePassed, "")
	m := r.Measurements[0]
	// Echoes that waited for a core would make it milliseconds.
	if fastest := slices.Min(m.Samples); fastest < m.Resolution-0.1 || m.Resolution < 100 || m.Resolution > 1e6 {
		t.Errorf("a call took %v ns, resolution %v ns", fastest, m.Resolution)
	}
}

// On a quiet machine the figure is the work, and what the same call takes
// without any: one per cent and 30 µs are what else Python and the machine may
// add. The call without work is measured beside each figure, for how long it
// takes is the machine's own: 20 µs here, 60 on a slower or a busier one.
func TestSlowFiguresAreTheWork(t *testing.T) {
	testenv.NeedSlow(t)
	for _, work := range []time.Duration{200 * time.Microsecond, time.Millisecond, 5 * time.Millisecond} {
		allowed := 0.01*float64(work) + float64(30*time.Microsecond)
		off, measurable := 0.0, false
		for range 5 { // somebody else may compute here for a while
			idle, m := measured(t, spin(0, "pass")), measured(t, spin(work, "pass"))
			if idle == nil || m == nil || busyPart*m.LeftOut > len(m.Samples) { // it is not quiet
				continue
			}
			measurable = true
			call, mean := figuresOf(idle.Samples).mean, figuresOf(m.Samples).mean
			off = mean - call - float64(work)
			t.Logf("%s of work: %.0f ns ± %.0f, without work %.0f ns, resolution %.0f ns, %d calls left out",
				work, mean, (m.Interval[1]-m.Interval[0])/2, call, m.Resolution, m.LeftOut)
			// No figure is below the work alone, whatever a call without it takes.
			if mean < 0.99*float64(work) {
				t.Errorf("%s of work: the figure is %.0f ns", work, mean)
			}
			if -allowed < off && off < allowed {
				break
			}
		}
		switch {
		case !measurable:
			t.Skipf("%s of work: the machine was too busy to measure, five times", work)
		case off <= -allowed || off >= allowed:
			t.Errorf("%s of work: the figure is off by %.0f ns, want less than %.0f", work, off, allowed)
		}
	}
}
