package reconciler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/trace"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/database"
)

// work is one run in the hands of this process.
type work struct {
	r     *Reconciler
	p     store.PlannedRun
	build atomic.Int64 // its build's number; 0: none yet
}

// do brings the run from wherever it is to its end, or gives it back.
func (w *work) do(ctx context.Context) {
	ctx, traced := trace.StartAt(ctx, w.p.Created, "run", trace.Submission(w.p.Submission), trace.Run(w.p.RunID), trace.Board(w.p.Board), trace.GPU(w.p.GPU), trace.Mode(w.p.Mode))
	holding, drop := context.WithCancelCause(ctx)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		w.renew(holding, drop)
	}()
	end := w.advance(holding)
	lost := errors.Is(context.Cause(holding), store.ErrLeaseLost) || errors.Is(end.err, store.ErrLeaseLost)
	drop(nil)
	<-renewed
	traced(end.err)
	switch {
	case lost:
		w.r.o.Log.Info("a run is somebody else's, or was cancelled", "run", w.p.RunID, "submission", w.p.Submission)
		w.disown(ctx)
	case ctx.Err() != nil:
		w.giveBack(ctx, 0)
	case end.err != nil:
		w.r.o.Log.Warn("a run is put off", "run", w.p.RunID, "submission", w.p.Submission, "build", w.build.Load(), "pause", end.pause, "error", end.err)
		w.r.o.Observe(w.event(Postponed))
		w.giveBack(ctx, end.pause)
	}
}

func (w *work) event(kind EventKind) Event {
	return Event{Kind: kind, GPU: w.p.GPU, Mode: w.p.Mode, Secret: w.p.Secret, Took: time.Since(w.p.Created)}
}

// giveBack lets somebody else have the run, after a pause.
func (w *work) giveBack(ctx context.Context, pause time.Duration) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer stop()
	if err := w.r.o.Store.Renew(ctx, w.p, pause); err != nil && !errors.Is(err, store.ErrLeaseLost) {
		w.r.o.Log.Warn("giving a run back: others get it when its lease ends", "run", w.p.RunID, "error", err)
	}
}

// renew keeps the lease until ctx ends. A lease that is lost, or that could not be
// renewed until it ran out, ends the work.
func (w *work) renew(ctx context.Context, drop context.CancelCauseFunc) {
	until := time.Now().Add(w.r.o.Lease)
	tick := time.NewTicker(w.r.o.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		begun := time.Now()
		trying, stop := context.WithTimeout(ctx, w.r.o.Lease/3)
		err := w.r.o.Store.Renew(trying, w.p, w.r.o.Lease)
		stop()
		switch {
		case err == nil:
			until = begun.Add(w.r.o.Lease)
		case ctx.Err() != nil:
			return
		case errors.Is(err, store.ErrLeaseLost), time.Now().Add(w.r.o.Lease / 3).After(until):
			drop(fmt.Errorf("%w: %v", store.ErrLeaseLost, err))
			return
		default:
			w.r.o.Log.Warn("renewing a lease", "run", w.p.RunID, "error", err)
		}
	}
}

// An end says what became of the work on a run: with a nil error it has finished,
// with any other it is to be tried again after the pause.
type end struct {
	err   error
	pause time.Duration
}

// Pauses before a run that was put off is tried again.
const (
	shortPause = 5 * time.Second
	longPause  = time.Minute // where a person has to do something
)

// refusals are the statuses with which Buildkite may refuse one build and no other.
// They mean the pipeline as well, such as a branch that it does not build, and so
// fail a run only when it was refused for refusedTime.
var refusals = []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}

const refusedTime = 15 * time.Minute

// advance makes the build if there is none, collects its result and stores it.
func (w *work) advance(ctx context.Context) end {
	run, e := w.buildOf(ctx)
	if run == nil {
		return e
	}
	collecting, collected := trace.Start(ctx, "collect", trace.Submission(w.p.Submission), trace.Run(w.p.RunID))
	report, err := w.r.o.Launcher.Collect(collecting, run)
	collected(err)
	if ctx.Err() != nil {
		return end{ctx.Err(), 0}
	}
	if err != nil {
		return w.without(ctx, err)
	}
	if report.Canceled && !report.Result.Success {
		return w.fail(ctx, store.StatusFailed, schema.OutcomeCanceled, "its build was cancelled at Buildkite")
	}
	recording, recorded := trace.Start(ctx, "record", trace.Submission(w.p.Submission), trace.Run(w.p.RunID))
	e = w.record(recording, report)
	recorded(e.err)
	return e
}

// buildOf returns the run with its build, which it makes unless there is one. nil:
// the work ends as end says.
func (w *work) buildOf(ctx context.Context) (*launcher.Run, end) {
	row, known := w.r.row(w.p.GPU)
	switch {
	case !known:
		return nil, w.fail(ctx, store.StatusFailed, schema.OutcomeUnsupported, "no machines serve this GPU type here")
	case row.Off != "" && w.p.State != store.StateRunning:
		return nil, end{&pipelines.OffError{Name: row.Name, Reason: row.Off}, w.r.longPause}
	}
	eval, err := w.r.o.Store.Evaluation(ctx, w.p)
	if err != nil {
		return nil, end{err, w.r.longPause}
	}
	mode := w.p.Mode
	if w.p.Secret {
		mode = schema.ModePrivate
	}
	if w.p.State == store.StateRunning {
		return &launcher.Run{ID: w.p.RunID, Build: int(w.p.BuildNumber), GPU: w.p.GPU, Queue: row.Queue, Mode: mode, Ranking: eval.Task.RankingBy,
			Submitted: w.p.Started, QueueTimeout: w.r.o.QueueTimeout, RunTimeout: w.r.o.RunTimeout}, end{}
	}
	var arch *string
	if row.Arch != "" {
		arch = &row.Arch
	}
	payload, err := eval.Task.Payload(eval.File, mode, arch, eval.Seed)
	if err != nil {
		return nil, w.fail(ctx, store.StatusFailed, schema.OutcomeBadPayload, "its payload cannot be made: "+err.Error())
	}
	seal, err := w.r.o.Seal(row.Queue)
	if err != nil {
		return nil, end{fmt.Errorf("sealing: %w", err), w.r.longPause}
	}
	s := launcher.Submission{Payload: payload, ID: strconv.FormatInt(w.p.Submission, 10), GPU: w.p.GPU, Queue: row.Queue, Task: w.p.Board, File: eval.File.Name,
		User: w.p.UserID, RunID: w.p.RunID, Seal: seal, Branch: w.r.o.Branch, Commit: w.r.o.Commit, QueueTimeout: w.r.o.QueueTimeout, RunTimeout: w.r.o.RunTimeout}
	if w.p.State == store.StateCreating { // somebody may have asked for its build up to now
		s.Attempted, s.Since = time.Now(), w.p.Started
	} else if err := w.insist(ctx, func() error { return w.r.o.Store.Creating(ctx, w.p) }); err != nil {
		return nil, end{err, w.r.shortPause}
	}
	creating, created := trace.Start(ctx, "create", trace.Submission(w.p.Submission), trace.Run(w.p.RunID))
	run, e := w.create(creating, s)
	created(e.err)
	return run, e
}

// create makes or finds the build, and keeps its number.
func (w *work) create(ctx context.Context, s launcher.Submission) (*launcher.Run, end) {
	run, err := w.r.o.Launcher.Create(ctx, s)
	var api *launcher.APIError
	switch {
	case ctx.Err() != nil && run == nil:
		return nil, end{ctx.Err(), 0}
	case errors.Is(err, schema.ErrPayloadTooLong):
		return nil, w.fail(ctx, store.StatusFailed, schema.OutcomeBadPayload, "it is too large together with its task's files: "+err.Error())
	case errors.As(err, &api) && slices.Contains(refusals, api.Status) && !w.p.Started.IsZero() && time.Since(w.p.Started) > refusedTime:
		return nil, w.fail(ctx, store.StatusFailed, schema.OutcomeUnsupported, "Buildkite refuses its build: "+text.Line(api.Message, 200))
	case err != nil:
		return nil, end{err, w.r.pauseAfter(err)}
	}
	w.build.Store(int64(run.Build))
	w.r.Wake() // one run fewer is without a build, see MaxCreating
	// The work may end just now: the number is kept all the same, if it still may.
	keeping, stop := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer stop()
	err = w.insist(keeping, func() error { return w.r.o.Store.Built(keeping, w.p, int64(run.Build), run.BuildURL) })
	if errors.Is(err, store.ErrLeaseLost) {
		w.disown(keeping)
	}
	if err != nil {
		return nil, end{err, w.r.shortPause}
	}
	kind := Created
	if !s.Attempted.IsZero() {
		kind = Adopted
	}
	w.r.o.Observe(w.event(kind))
	return run, end{}
}

// disown cancels the build of a run whose lease was lost, unless another process may
// have the run. A command without access to Buildkite may have cancelled, deleted or
// marked the submission, or deleted its board.
func (w *work) disown(ctx context.Context) {
	build := w.build.Load()
	if build == 0 {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer stop()
	runs, err := w.r.o.Store.PlannedRuns(ctx, w.p.Submission)
	for _, p := range runs {
		if p.RunID == w.p.RunID && p.State != store.StateFinished && (p.BuildNumber == build || p.BuildNumber == 0) {
			return // the new holder has the build, or will find it
		}
	}
	if err == nil || errors.Is(err, store.ErrNotFound) {
		err = w.r.o.Launcher.Cancel(ctx, int(build))
	}
	if err != nil {
		w.r.o.Log.Warn("an unneeded build could not be cancelled", "build", build, "run", w.p.RunID, "error", err)
	}
}

// insist repeats a change of the store until it is done or never will be, until the
// lease is lost, or until ctx ends.
func (w *work) insist(ctx context.Context, do func() error) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := do()
		if err == nil || errors.Is(err, store.ErrLeaseLost) || errors.Is(err, store.ErrNotFound) || database.Unstorable(err) || ctx.Err() != nil {
			return err
		}
		w.r.o.Log.Warn("the database", "run", w.p.RunID, "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// pauseAfter is how long to wait after an error of the launcher's that is no matter
// of the submission.
func (r *Reconciler) pauseAfter(err error) time.Duration {
	if api, ok := errors.AsType[*launcher.APIError](err); ok && api.Status/100 == 4 {
		return r.longPause // the token, the organization or the pipeline is wrong
	}
	return r.shortPause
}
