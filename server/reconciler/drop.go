package reconciler

import (
	"context"
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/store"
)

// dropTime bounds the cancelling of one build.
const dropTime = 10 * time.Minute

// Drop cancels the builds of runs that nobody wants any more. It returns at once
// and goes on beside. A process that dies meanwhile leaves such builds to their
// timeouts.
func (r *Reconciler) Drop(runs []store.PlannedRun) {
	for _, p := range runs {
		r.mu.Lock()
		w := r.working[p.RunID]
		r.mu.Unlock()
		number := p.BuildNumber
		if w != nil {
			number = max(number, w.build.Load())
		}
		go func() {
			ctx, stop := context.WithTimeout(context.Background(), dropTime)
			defer stop()
			var err error
			if number > 0 {
				err = r.o.Launcher.Cancel(ctx, int(number))
			} else {
				err = r.o.Launcher.CancelRun(ctx, p.RunID)
			}
			if err != nil {
				r.o.Log.Warn("a build that nobody wants goes on", "run", p.RunID, "build", number, "error", err)
			}
		}()
	}
	r.Wake()
}

// Log returns the log of a run's evaluation.
//
// Errors: [store.ErrNotFound] when there is no build, or no job yet; the launcher's.
func (r *Reconciler) Log(ctx context.Context, p store.PlannedRun) (string, error) {
	row, known := r.row(p.GPU)
	if !known || p.BuildNumber == 0 {
		return "", fmt.Errorf("the log of run %s: %w", p.RunID, store.ErrNotFound)
	}
	b, err := r.o.Launcher.Build(ctx, int(p.BuildNumber))
	if err != nil {
		return "", err
	}
	job := b.Evaluation(row.Queue)
	if job == nil {
		return "", fmt.Errorf("the log of run %s: %w", p.RunID, store.ErrNotFound)
	}
	return r.o.Launcher.Log(ctx, int(p.BuildNumber), job.ID)
}
