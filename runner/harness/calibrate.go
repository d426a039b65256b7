package harness

import (
	"context"
	"slices"
	"time"
)

// calibrate takes the time of empty calls before there is a submission: what a
// hand-over takes with a worker in Python, released and thawed. Those that had to
// wait for a core do not count: no figure may be finer than what is seen here, so
// that a crowd would take the place of every figure.
//
// Errors: *ambiguousError, and those of a worker that breaks.
func (r *phaseRun) calibrate(ctx context.Context) error {
	begun, leftOut := time.Now(), 0
	for n := 0; len(r.echo) < echoes || len(r.strictEcho) < strictEchoes; n++ {
		took := time.Since(begun)
		if took > calibrateMost && len(r.echo) < fewEchoes {
			return &ambiguousError{len(r.echo), leftOut, fewEchoes}
		}
		if took > calibrateFor && len(r.echo) >= fewEchoes && (len(r.strictEcho) >= minStrict || took > 2*calibrateFor) {
			return nil
		}
		strict := n%strictOneIn == strictOneIn-1
		a, err := r.w.call(ctx, callOrder{mode: modeEcho, message: emptyTree(), strict: strict, limit: importLimit, bounds: func() bounds { return bounds{} }})
		switch {
		case err != nil:
			return r.early(ctx, err)
		case n < 10: // the first ones are cold
		case a.counted && a.delayed > delayAllowed:
			leftOut++
		case strict:
			r.strictEcho = append(r.strictEcho, a.took)
		default:
			r.echo = append(r.echo, a.took)
		}
	}
	return nil
}

// early words an error of a worker that has no submission yet: the machine's.
func (r *phaseRun) early(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &brokenError{"worker", "failed before there was a submission: " + err.Error()}
}

// resolution is how far a single figure can be off: what the worker's own end of
// a hand-over takes, at its slowest but one in ten, beyond the floor.
func (r *phaseRun) resolution() time.Duration {
	return max(percentile(slices.Clone(r.echo), 90)-r.s.floor, 100*time.Nanosecond)
}

// strictFloor is what a hand-over with a thaw takes on average, and noise how far
// that can be off: three standard errors. Where too few were seen nothing is taken
// off, as nothing may be that is not known.
func (r *phaseRun) strictFloor() (floor, noise time.Duration) {
	if len(r.strictEcho) < minStrict {
		return 0, roughSpread
	}
	took := make([]float64, len(r.strictEcho))
	for i, d := range r.strictEcho {
		took[i] = float64(d)
	}
	s := figuresOf(took)
	return time.Duration(s.mean), time.Duration(3 * s.err)
}

// strictSpread is how far that goes.
func (r *phaseRun) strictSpread() time.Duration {
	if len(r.strictEcho) < minStrict {
		return roughSpread
	}
	return max(percentile(slices.Clone(r.strictEcho), 90)-percentile(slices.Clone(r.strictEcho), 10), 20*time.Microsecond)
}
