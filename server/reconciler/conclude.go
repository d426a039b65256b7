package reconciler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/database"
)

// record stores a result. One that cannot be stored as it is ends the run as well.
func (w *work) record(ctx context.Context, report *launcher.Report) end {
	var tooLarge *store.TooLargeError
	err := w.insist(ctx, func() error {
		err := w.r.o.Store.Record(ctx, w.p, report.Result, report.Raw)
		if errors.As(err, &tooLarge) {
			return nil
		}
		return err
	})
	switch {
	case tooLarge != nil:
		return w.fail(ctx, store.StatusFailed, schema.OutcomeReportTooLong, tooLarge.Error())
	case database.Unstorable(err):
		w.r.o.Log.Error("a result that the database does not take", "run", w.p.RunID, "error", err)
		return w.fail(ctx, store.StatusFailed, schema.OutcomeRunner, "its result cannot be kept")
	case errors.Is(err, store.ErrNotFound): // the submission was deleted
		return end{}
	case err != nil:
		return end{err, w.r.shortPause}
	}
	kind := Recorded
	if !report.Result.Success {
		kind = Failed
	}
	w.r.o.Observe(w.event(kind))
	w.r.o.Log.Info("recorded", "run", w.p.RunID, "submission", w.p.Submission, "build", report.Build, "gpu", w.p.GPU, "mode", w.p.Mode, "secret", w.p.Secret,
		"outcome", report.Result.Outcome.Name, "took", time.Since(w.p.Created).Round(time.Millisecond))
	return end{}
}

// fail ends the run without a result. outcome is the name of one of [schema.Outcomes],
// and why is for the submitter.
func (w *work) fail(ctx context.Context, status, outcome, why string) end {
	err := w.insist(ctx, func() error { return w.r.o.Store.Fail(ctx, w.p, status, outcome, why) })
	if errors.Is(err, store.ErrNotFound) {
		return end{}
	}
	if err != nil {
		return end{err, w.r.shortPause}
	}
	w.r.o.Observe(w.event(Failed))
	w.r.o.Log.Warn("a run has no result", "run", w.p.RunID, "submission", w.p.Submission, "build", w.build.Load(), "gpu", w.p.GPU, "status", status, "outcome", outcome, "why", text.Line(why, 300))
	return end{}
}

// without ends a run whose result could not be had, or puts it off where that may
// change.
func (w *work) without(ctx context.Context, err error) end {
	var none *launcher.NoResultError
	var wrong *launcher.WrongMachineError
	var gave *launcher.GaveUpError
	var api *launcher.APIError
	switch {
	case errors.As(err, &none):
		why := fmt.Sprintf("the evaluation left no result: build %d is %s", none.Build, text.Line(none.State, 40))
		if none.Reason != "" {
			why += ", " + none.Reason
		}
		w.r.o.Log.Warn("no result", "run", w.p.RunID, "error", text.Line(none.Error(), 500))
		outcome := schema.OutcomeMachine
		switch none.State {
		case "canceled", "skipped":
			outcome = schema.OutcomeCanceled
		case "not_run", "blocked":
			outcome = schema.OutcomeUnsupported
		}
		if none.State == "blocked" {
			w.cancel(ctx, none.Build)
		}
		return w.fail(ctx, store.StatusFailed, outcome, why)
	case errors.As(err, &wrong):
		w.r.o.Log.Error("a result came from the wrong machine", "run", w.p.RunID, "error", wrong)
		return w.fail(ctx, store.StatusFailed, schema.OutcomeWrongMachine, fmt.Sprintf("it was evaluated on %s, which is the wrong machine", text.Line(wrong.GotGPU, 60)))
	case errors.As(err, &gave) && gave.Err != nil && gave.Phase != launcher.PhaseFetching: // what its build does is not known
		return end{err, w.r.longPause}
	case errors.As(err, &gave):
		w.cancel(ctx, gave.Build)
		switch gave.Phase {
		case launcher.PhaseQueued:
			return w.fail(ctx, store.StatusTimedOut, schema.OutcomeMachine, fmt.Sprintf("no machine took it within %s", gave.After.Round(time.Second)))
		case launcher.PhaseRunning:
			return w.fail(ctx, store.StatusTimedOut, schema.OutcomeMachine, fmt.Sprintf("it had not finished after %s on the machine", gave.After.Round(time.Second)))
		}
		return w.fail(ctx, store.StatusFailed, schema.OutcomeMachine, "its result could not be fetched")
	case errors.As(err, &api) && api.Status == http.StatusNotFound && w.gone(ctx):
		return w.fail(ctx, store.StatusFailed, schema.OutcomeCanceled, fmt.Sprintf("its build %d is gone", w.build.Load()))
	}
	return end{err, w.r.pauseAfter(err)}
}

// gone reports whether Buildkite has no build of the run, though it shows builds.
// Where the token, the organization or the pipeline is wrong, it finds nothing.
func (w *work) gone(ctx context.Context) bool {
	_, err := w.r.o.Launcher.Adopt(ctx, w.p.RunID)
	return errors.Is(err, launcher.ErrNoBuild)
}

// cancel cancels a build that is given up.
func (w *work) cancel(ctx context.Context, build int) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	if err := w.r.o.Launcher.Cancel(ctx, build); err != nil {
		w.r.o.Log.Warn("a build that was given up goes on", "build", build, "error", err)
	}
}

// dropTime bounds the cancelling of one build.
const dropTime = 10 * time.Minute

// Drop cancels the builds of runs that nobody wants any more. It returns at once
// and goes on beside. A process that dies meanwhile leaves such builds to their
// timeouts.
func (r *Reconciler) Drop(runs []store.PlannedRun) {
	for _, p := range runs {
		number := p.BuildNumber
		if w := r.worker(p.RunID); w != nil {
			number = max(number, w.build.Load())
		}
		r.dropping.Go(func() {
			ctx, stop := context.WithTimeout(context.Background(), dropTime)
			defer stop()
			var err error
			if number > 0 {
				err = r.o.Launcher.Cancel(ctx, int(number))
			} else {
				err = r.o.Launcher.CancelRun(ctx, p.RunID)
			}
			if err != nil {
				r.o.Log.Warn("an unneeded build could not be cancelled", "run", p.RunID, "build", number, "error", err)
			}
		})
	}
	r.Wake()
}

// Dropped waits for what Drop has begun, until ctx ends. Nothing may be dropped any
// more by then.
func (r *Reconciler) Dropped(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.dropping.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		r.o.Log.Warn("builds that nobody wants may go on: there was no time to cancel them")
	}
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
