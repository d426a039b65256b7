package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
)

// A waiter is one run between Collect's call and its return.
type waiter struct {
	c     *Client
	r     *Run
	life  *lifecycle
	build *Build // as last seen
	over  bool   // it was seen over

	timeline Timeline // without what life knows
	warned   string   // the unknown state that was logged
}

// A GaveUpError is a run that took too long in a phase.
type GaveUpError struct {
	Phase    Phase // PhaseQueued, PhaseRunning, or PhaseFetching: the build is over and its result could not be had
	After    time.Duration
	Build    int
	BuildURL string
	State    string // the build's
	Err      error  // what the last question met; may be nil

	Canceled  bool  // the build was cancelled, as Submit does
	CancelErr error // why it was not, though Submit tried
}

func (e *GaveUpError) Error() string {
	s := fmt.Sprintf("gave up on build %d (%s) after %s of %s, its state was %s", e.Build, e.BuildURL, e.After.Round(time.Millisecond), e.Phase, e.State)
	if e.Err != nil {
		s += fmt.Sprintf(", the last answer: %v", e.Err)
	}
	switch {
	case e.CancelErr != nil:
		return fmt.Sprintf("%s; it may still run: %v", s, e.CancelErr)
	case e.Canceled:
		return s + "; it is cancelled"
	case e.Phase != PhaseFetching:
		return s + "; it may still run"
	}
	return s
}

func (e *GaveUpError) Unwrap() []error {
	var errs []error
	for _, err := range []error{e.Err, e.CancelErr} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// result waits for the end of the build and returns what it left.
func (w *waiter) result(ctx context.Context) (*Report, error) {
	run := w.c.watcher.add(w.r, w.build, w.life)
	defer w.c.watcher.remove(run)
	then := keepPolling
	if w.build.Over() || w.build.Blocked { // as it was found
		u := update{build: w.build, jobs: w.build.Jobs != nil}
		then = w.life.observe(&u)
		w.take(&u)
	}
	for {
		var err error
		if then == keepPolling {
			if then, err = w.next(ctx, run); err != nil {
				return nil, err
			}
		}
		if then == askByNumber {
			asking, stop := context.WithDeadline(ctx, w.life.deadline())
			then, err = w.probe(asking)
			late := asking.Err() != nil && ctx.Err() == nil
			stop()
			switch {
			case err != nil && late:
				return nil, w.gaveUp(err)
			case err != nil:
				return nil, err
			case then == keepPolling:
				w.c.watcher.postpone(run)
			}
		}
		switch then {
		case giveBuildUp:
			return nil, w.noResult(ctx)
		case collectResult:
			report, err := w.conclude(ctx)
			if errors.Is(err, errRunsAgain) {
				then = keepPolling
				continue
			}
			return report, err
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
			return keepPolling, w.asking(u.err)
		}
		w.take(&u)
		return u.then, nil
	case <-ctx.Done():
		return keepPolling, ctx.Err()
	case <-limit.C:
	}
	// The last poll may be old.
	asking, stop := context.WithTimeout(ctx, cancelTimeout)
	defer stop()
	then, err := w.probe(asking)
	switch {
	case ctx.Err() != nil:
		return keepPolling, ctx.Err()
	case err == nil && (then != keepPolling || time.Now().Before(w.life.deadline())):
		return then, nil
	}
	return keepPolling, w.gaveUp(err)
}

// gaveUp is the end of the present phase's clock; err is what was answered last.
func (w *waiter) gaveUp(err error) error {
	phase, since := w.life.current()
	return &GaveUpError{Phase: phase, After: time.Since(since), Build: w.build.Number, BuildURL: w.build.WebURL, State: w.build.State, Err: err}
}

func (w *waiter) asking(err error) error {
	return fmt.Errorf("asking for build %d (%s): %w", w.build.Number, w.build.WebURL, err)
}

// probe asks for the build by its number, beside the polling.
func (w *waiter) probe(ctx context.Context) (action, error) {
	b, err := w.c.Build(ctx, w.build.Number)
	if err != nil {
		return keepPolling, w.asking(err)
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
	b := *u.build // others wait for the same build
	b.WebURL = cmp.Or(b.WebURL, w.build.WebURL)
	w.build = &b
	w.over = b.Over()
	if !w.build.known() && w.warned != w.build.State {
		w.warned = w.build.State
		w.c.log.Warn("unknown build state, waiting on", "build", w.build.Number, "state", text.Line(w.build.State, 60))
	}
	w.progress()
}

// progress tells the caller where the run is.
func (w *waiter) progress() {
	phase, _ := w.life.current()
	w.r.progress(Event{Phase: phase, Build: w.build.Number, BuildURL: w.build.WebURL, State: w.build.State})
}

// lateArtifacts are the pauses between two looks for the result of a build that
// passed: it may take a moment to show.
var lateArtifacts = [...]time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}

// errRunsAgain is a build that was over and is not any more: somebody retried a
// job.
var errRunsAgain = errors.New("the build runs again")

// conclude gets the result of a build that is over, in the time that the phase
// has.
func (w *waiter) conclude(ctx context.Context) (*Report, error) {
	asking, stop := context.WithDeadline(ctx, w.life.deadline())
	defer stop()
	report, err := w.found(asking)
	if err != nil && asking.Err() != nil && ctx.Err() == nil {
		return nil, w.gaveUp(err)
	}
	return report, err
}

func (w *waiter) found(ctx context.Context) (*Report, error) {
	if w.build.State != "passed" && w.build.Jobs == nil {
		// Its result counts only if the evaluation's job ended as it says.
		then, err := w.probe(ctx)
		if err != nil {
			return nil, err
		}
		if then != collectResult {
			return nil, errRunsAgain
		}
	}
	w.timeline.Jobs = w.build.times(w.r.Queue)
	if w.build.State == "skipped" || w.build.State == "not_run" {
		return nil, w.noResult(ctx)
	}
	if report, err := w.inline(ctx); report != nil || err != nil {
		return report, err
	}
	report, err := w.fetch(ctx)
	for _, late := range lateArtifacts {
		if !errors.As(err, new(*noArtifactError)) || w.build.State != "passed" {
			break
		}
		if err := w.c.pause(ctx, late); err != nil {
			return nil, err
		}
		report, err = w.fetch(ctx)
	}
	var foreign []string
	if none, ok := errors.AsType[*noArtifactError](err); ok {
		foreign = none.foreign
	} else if err != nil {
		return nil, err
	} else if why := w.mismatch(report); why != "" {
		foreign = []string{why}
	} else {
		return report, nil
	}
	lost := w.noResult(ctx)
	lost.Foreign = foreign
	return nil, lost
}

// mismatch says why a result is not believed, "" when it is. kbrun ends with
// exit status 0 when it has a verdict: a verdict from a job that ended
// otherwise was left by somebody else, after kbrun was killed.
func (w *waiter) mismatch(r *Report) string {
	j := w.build.Evaluation(w.r.Queue)
	o := r.Result.Outcome
	if o.Name == "" || o.ExitStatus() != 0 || j == nil || j.ExitStatus == nil || *j.ExitStatus == 0 {
		return ""
	}
	return fmt.Sprintf("a verdict (%s) from a job that ended with exit status %d, which is not believed", text.Line(o.Name, 40), *j.ExitStatus)
}
