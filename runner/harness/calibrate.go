package harness

import (
	"context"
	"slices"
	"time"
)

// calibrate times empty calls before the submission is loaded, so that no code of the
// submission can influence them. They give the resolution and the strict floor of the
// phase. Calls that had to wait for a core are left out: on a busy machine they would
// raise the resolution, and a figure below the resolution counts as the resolution.
//
// Errors: *ambiguousError, and those of a worker that breaks.
func (r *phaseRun) calibrate(ctx context.Context) error {
	begun, leftOut := time.Now(), 0
	for n := 0; len(r.echo) < echoes || len(r.strictEcho) < strictEchoes; n++ {
		took := time.Since(begun)
		if took > calibrateMost && len(r.echo) < fewEchoes {
			return &ambiguousError{counted: len(r.echo), leftOut: leftOut, least: fewEchoes}
		}
		if took > calibrateFor && len(r.echo) >= fewEchoes && (len(r.strictEcho) >= minStrict || took > 2*calibrateFor) {
			break
		}
		strict := n%strictOneIn == strictOneIn-1
		a, err := r.w.call(ctx, callOrder{mode: modeEcho, message: emptyTree(), strict: strict, limit: importLimit, bounds: func() bounds { return bounds{} }})
		switch {
		case err != nil:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return &brokenError{"worker", "failed before there was a submission: " + err.Error()} // the machine's fault
		case n < 10: // the first ones are cold
		case a.counted && a.delayed > delayAllowed:
			leftOut++
		case strict:
			r.strictEcho = append(r.strictEcho, float64(a.took))
		default:
			r.echo = append(r.echo, a.took)
		}
	}
	if r.s.onDevice {
		return r.timeFills(ctx)
	}
	return nil
}

// resolution is how far a single figure can be off: the 90th percentile of an empty
// call less the floor, at least 100 ns,
//
//	resolution = max(p90(echo) − floor, 100 ns)
//
// An empty call contains the worker's own part of a hand-over, which the floor does
// not. A submission can shorten that part, so a time below it proves nothing and is
// reported as the resolution.
func (r *phaseRun) resolution() time.Duration {
	return max(percentile(slices.Clone(r.echo), 90)-r.s.floor, 100*time.Nanosecond)
}

// strictFloor returns the floor of strict calls and how far it can be off,
//
//	floor = mean(strict echo), noise = 3 · standard error
//
// It is a mean and not a minimum because a thaw takes a different time each time and
// strict calls are compared by their mean. With fewer than minStrict empty calls
// nothing is subtracted: a score must never be better because of an unknown floor.
func (r *phaseRun) strictFloor() (floor, noise time.Duration) {
	if len(r.strictEcho) < minStrict {
		return 0, roughSpread
	}
	s := figuresOf(r.strictEcho)
	return time.Duration(s.mean), time.Duration(3 * s.err)
}

// strictSpread is how much thaws differ: p90 − p10 of the strict empty calls, at least
// 20 µs.
func (r *phaseRun) strictSpread() time.Duration {
	if len(r.strictEcho) < minStrict {
		return roughSpread
	}
	return max(time.Duration(percentile(slices.Clone(r.strictEcho), 90)-percentile(slices.Clone(r.strictEcho), 10)), 20*time.Microsecond)
}
