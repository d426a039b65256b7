package launcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
)

// A waiter is one submission between Submit's call and its return.
type waiter struct {
	c     *Client
	s     Submission
	runID string
	life  *lifecycle
	build *Build // as last seen

	timeline Timeline // without what life knows
	warned   string   // the unknown state that was logged
}

// A GaveUpError is a build that took too long. It was cancelled unless
// CancelErr says why not.
type GaveUpError struct {
	Phase     Phase // PhaseQueued or PhaseRunning
	After     time.Duration
	Build     int
	BuildURL  string
	State     string // the build's
	CancelErr error
}

func (e *GaveUpError) Error() string {
	s := fmt.Sprintf("gave up on build %d (%s) after %s of %s, its state was %s", e.Build, e.BuildURL, e.After.Round(time.Millisecond), e.Phase, e.State)
	if e.CancelErr != nil {
		return fmt.Sprintf("%s; it may still run: %v", s, e.CancelErr)
	}
	return s + "; it is cancelled"
}

func (e *GaveUpError) Unwrap() error { return e.CancelErr }

// result waits for the end of the build and returns what it left.
func (w *waiter) result(ctx context.Context) (*Report, error) {
	run := w.c.watcher.add(w.build.Number, w.life)
	defer w.c.watcher.remove(run)
	for {
		then, err := w.next(ctx, run)
		if err != nil {
			return nil, err
		}
		if then == fetchUnasked {
			// Every job ended well, so the result can be asked for without
			// probing the build again, unless there is none.
			report, err := w.fetch(ctx)
			if !errors.Is(err, errNoArtifact) {
				return report, w.ended(ctx, err)
			}
			then = askByNumber
		}
		if then == askByNumber {
			if then, err = w.probe(ctx); err != nil {
				return nil, w.ended(ctx, fmt.Errorf("asking for build %d: %w", w.build.Number, err))
			}
			if then == keepPolling {
				w.c.watcher.postpone(run)
			}
		}
		switch then {
		case giveBuildUp:
			return nil, errors.Join(w.noResult(ctx), w.cancel(ctx))
		case collectResult:
			return w.collect(ctx)
		}
	}
}

// next waits for the next update of the build and returns what to do about it,
// or the error with which waiting ends.
func (w *waiter) next(ctx context.Context, run *run) (action, error) {
	limit := time.NewTimer(time.Until(w.life.deadline()))
	defer limit.Stop()
	select {
	case u := <-run.updates:
		if u.err != nil {
			err := fmt.Errorf("asking for build %d (%s): %w", w.build.Number, w.build.WebURL, u.err)
			return keepPolling, errors.Join(err, w.cancel(ctx))
		}
		w.take(&u)
		return u.then, nil
	case <-ctx.Done():
		return keepPolling, w.ended(ctx, ctx.Err())
	case <-limit.C:
	}
	// The last poll may be old.
	then, err := w.probe(ctx)
	if err == nil && (then != keepPolling || time.Now().Before(w.life.deadline())) {
		return then, nil
	}
	phase, since := w.life.current()
	gave := &GaveUpError{Phase: phase, After: time.Since(since), Build: w.build.Number,
		BuildURL: w.build.WebURL, State: w.build.State, CancelErr: w.cancel(ctx)}
	return keepPolling, errors.Join(gave, err)
}

// probe asks for the build by its number, beside the polling.
func (w *waiter) probe(ctx context.Context) (action, error) {
	b, err := w.c.build(ctx, w.build.Number)
	if err != nil {
		return keepPolling, err
	}
	u := update{build: b, jobs: true}
	u.then = w.life.observe(&u)
	w.take(&u)
	return u.then, nil
}

// take keeps what an update shows of the build, and reports progress.
func (w *waiter) take(u *update) {
	if u.build == nil {
		return
	}
	url := w.build.WebURL
	w.build = u.build
	if w.build.WebURL == "" {
		w.build.WebURL = url
	}
	if !w.build.known() && w.warned != w.build.State {
		w.warned = w.build.State
		w.c.log.Warn("unknown build state, waiting on", "build", w.build.Number, "state", text.Line(w.build.State, 60))
	}
	w.progress()
}

// progress tells the caller where the submission is.
func (w *waiter) progress() {
	if w.s.Progress == nil {
		return
	}
	phase, _ := w.life.current()
	e := Event{Phase: phase, RunID: w.runID, Elapsed: time.Since(w.timeline.Submitted)}
	if w.build != nil {
		e.Build, e.BuildURL, e.State = w.build.Number, w.build.WebURL, w.build.State
	}
	w.s.Progress(e)
}

// ended adds the build's cancellation to err when it was ctx that ended the
// wait.
func (w *waiter) ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if cancelErr := w.cancel(ctx); cancelErr != nil {
		return fmt.Errorf("build %d (%s) may still run: %w", w.build.Number, w.build.WebURL, errors.Join(cancelErr, err))
	}
	return fmt.Errorf("build %d (%s) is cancelled: %w", w.build.Number, w.build.WebURL, err)
}

// cancel cancels the build, also when ctx is over.
func (w *waiter) cancel(ctx context.Context) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer stop()
	return w.c.Cancel(ctx, w.build.Number)
}

// lateArtifact is how long a result may take to show in listings after the end
// of its build.
const lateArtifact = time.Second

// collect fetches the result of a build that is over.
func (w *waiter) collect(ctx context.Context) (*Report, error) {
	w.timeline.Jobs = w.build.times(w.s.Queue)
	if w.build.State == "skipped" || w.build.State == "not_run" {
		return nil, w.noResult(ctx)
	}
	report, err := w.fetch(ctx)
	if errors.Is(err, errNoArtifact) && w.build.State == "passed" {
		if err := w.c.pause(ctx, lateArtifact); err != nil {
			return nil, err
		}
		report, err = w.fetch(ctx)
	}
	var none *noArtifactError
	if errors.As(err, &none) {
		lost := w.noResult(ctx)
		lost.Foreign = none.foreign
		return nil, lost
	}
	if err == nil {
		if why := w.mismatch(report); why != "" {
			lost := w.noResult(ctx)
			lost.Foreign = []string{why}
			return nil, lost
		}
	}
	return report, err
}

// mismatch says why a result is not believed, "" when it is. kbrun ends with
// exit status 0 when it has a verdict: a verdict from a job that ended
// otherwise was left by somebody else, after kbrun was killed.
func (w *waiter) mismatch(r *Report) string {
	j := w.build.evaluation(w.s.Queue)
	o := r.Result.Outcome
	if o.Name == "" || o.ExitStatus() != 0 || j == nil || j.ExitStatus == nil || *j.ExitStatus == 0 {
		return ""
	}
	return fmt.Sprintf("a verdict (%s) from a job that ended with exit status %d, which is not believed", text.Line(o.Name, 40), *j.ExitStatus)
}
