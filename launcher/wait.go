package launcher

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// wait is one submission between the creation of its build and its result.
type wait struct {
	c     *Client
	s     Submission
	runID string
	build *Build // as last seen
	line  Timeline

	phase   Phase
	phaseAt time.Time // when the clock that runs now began
	warned  string    // the unknown state that was logged
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
func (w *wait) result(ctx context.Context) (*Report, error) {
	run := w.c.watcher.add(w.build.Number, w.s.Queue)
	defer w.c.watcher.remove(run)
	for {
		n, err := w.next(ctx, run)
		if err != nil {
			return nil, err
		}
		if n.gone {
			if n.build != nil && n.build.State == "passed" {
				// Every job ended well, so its result can be asked for without
				// another look at the build, unless there is none.
				w.line.Finished = time.Now()
				report, err := w.fetch(ctx)
				if report != nil || err != nil && !errors.Is(err, errNoArtifact) {
					return report, w.ended(ctx, err)
				}
			}
			if n.build, err = w.c.build(ctx, w.build.Number); err != nil {
				return nil, w.ended(ctx, fmt.Errorf("asking for build %d: %w", w.build.Number, err))
			}
			n.jobs = true
		}
		w.see(n)
		switch {
		case w.build.Blocked:
			return nil, errors.Join(w.noResult(ctx), w.cancel(ctx))
		case w.build.Over():
			return w.collect(ctx)
		case n.gone:
			w.c.watcher.postpone(run)
		}
	}
}

// next returns the next news of the build, or the error with which waiting
// ends.
func (w *wait) next(ctx context.Context, run *watched) (news, error) {
	limit := time.NewTimer(time.Until(w.deadline()))
	defer limit.Stop()
	select {
	case n := <-run.news:
		if n.err != nil {
			err := fmt.Errorf("asking for build %d (%s): %w", w.build.Number, w.build.WebURL, n.err)
			return n, errors.Join(err, w.cancel(ctx))
		}
		return n, nil
	case <-ctx.Done():
		return news{}, w.ended(ctx, ctx.Err())
	case <-limit.C:
	}
	// One look of its own: the last poll may be old.
	b, err := w.c.build(ctx, w.build.Number)
	if err == nil {
		n := news{build: b, jobs: true}
		w.see(n)
		if b.Over() || b.Blocked || time.Now().Before(w.deadline()) {
			return n, nil
		}
	}
	gave := &GaveUpError{Phase: w.phase, After: time.Since(w.phaseAt), Build: w.build.Number,
		BuildURL: w.build.WebURL, State: w.build.State, CancelErr: w.cancel(ctx)}
	return news{}, errors.Join(gave, err)
}

// deadline is the end of the clock that runs now.
func (w *wait) deadline() time.Time {
	if w.phase == PhaseRunning {
		return w.phaseAt.Add(w.s.RunTimeout)
	}
	return w.phaseAt.Add(w.s.QueueTimeout)
}

// see takes in a look at the build. A job that is retried goes back to the
// queue, and its clock starts anew.
func (w *wait) see(n news) {
	web := w.build.WebURL
	w.build = n.build
	if w.build.WebURL == "" {
		w.build.WebURL = web
	}
	if !n.build.known() && w.warned != n.build.State {
		w.warned = n.build.State
		w.c.log.Warn("unknown build state, waiting on", "build", n.build.Number, "state", firstLine(n.build.State, 60))
	}
	phase := w.phase
	if n.jobs {
		phase = PhaseQueued
		if j := n.build.evaluation(w.s.Queue); j != nil && j.StartedAt != nil {
			phase = PhaseRunning
		}
	}
	if phase != w.phase {
		w.phaseAt = time.Now()
	}
	if phase == PhaseRunning && w.line.Running.IsZero() {
		w.line.Running = time.Now()
	}
	w.phase = phase
	w.tell(phase)
}

// tell reports progress.
func (w *wait) tell(p Phase) {
	if w.s.Progress == nil {
		return
	}
	e := Event{Phase: p, RunID: w.runID, Elapsed: time.Since(w.line.Submitted)}
	if w.build != nil {
		e.Build, e.BuildURL, e.State = w.build.Number, w.build.WebURL, w.build.State
	}
	w.s.Progress(e)
}

// ended adds the build's cancellation to err when it was ctx that ended the
// wait.
func (w *wait) ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if cancelErr := w.cancel(ctx); cancelErr != nil {
		return fmt.Errorf("build %d (%s) may still run: %w", w.build.Number, w.build.WebURL, errors.Join(cancelErr, err))
	}
	return fmt.Errorf("build %d (%s) is cancelled: %w", w.build.Number, w.build.WebURL, err)
}

// cancel cancels the build, also when ctx is over.
func (w *wait) cancel(ctx context.Context) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), partingTime)
	defer stop()
	return w.c.Cancel(ctx, w.build.Number)
}

// lateArtifact is how long a result may take to show in listings after the end
// of its build.
const lateArtifact = time.Second

// collect fetches the result of a build that is over.
func (w *wait) collect(ctx context.Context) (*Report, error) {
	w.line.Finished = time.Now()
	w.line.Jobs = w.build.times(w.s.Queue)
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
		if doubt := w.doubt(report); doubt != "" {
			lost := w.noResult(ctx)
			lost.Foreign = []string{doubt}
			return nil, lost
		}
	}
	return report, err
}

// doubt says why a result is not believed, "" when it is. kbrun ends with exit
// status 0 when it has a verdict: a verdict from a job that ended otherwise
// was left by somebody else, after kbrun was killed.
func (w *wait) doubt(r *Report) string {
	j := w.build.evaluation(w.s.Queue)
	o := r.Result.Outcome
	if o.Name == "" || o.ExitStatus() != 0 || j == nil || j.ExitStatus == nil || *j.ExitStatus == 0 {
		return ""
	}
	return fmt.Sprintf("a verdict (%s) from a job that ended with exit status %d, which is not believed", firstLine(o.Name, 40), *j.ExitStatus)
}
