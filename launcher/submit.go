package launcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Submit makes a build for s, or finds the one that was made for its RunID,
// waits for its end and fetches the result of its own run id. A wrong submission
// is a [Report], not an error.
//
// Errors: those of [Client.Create] and [Client.Collect]. Unlike those, Submit
// cancels the build that it gives up, when ctx ends too, or the error says that
// it has not.
func (c *Client) Submit(ctx context.Context, s Submission) (*Report, error) {
	run, err := c.CreateOrAdopt(ctx, s)
	if uncertain, ok := errors.AsType[*UncertainError](err); ok {
		return nil, errors.Join(err, c.cancelUnseen(ctx, uncertain.RunID))
	}
	if err != nil {
		return nil, err
	}
	report, over, err := c.collect(ctx, run)
	if err == nil || over {
		return report, err
	}
	return nil, c.abandon(ctx, run, err)
}

// CreateOrAdopt is [Client.Create] for a run id whose caller does not know
// whether somebody has begun with it: an earlier process, or another one at this
// moment. It looks for a build before it makes one, and again after: of two that
// were made at once, all callers take the older, and the other is cancelled.
//
// Errors: those of Create, [APIError] of the first look, ctx's.
func (c *Client) CreateOrAdopt(ctx context.Context, s Submission) (*Run, error) {
	if s.RunID == "" || !s.Attempted.IsZero() {
		return c.Create(ctx, s)
	}
	asking, stop := context.WithTimeout(ctx, orDefault(s.QueueTimeout))
	defer stop()
	run, err := c.Adopt(asking, s.RunID)
	switch {
	case err == nil:
		return run.asked(s), nil
	case !errors.Is(err, ErrNoBuild):
		return nil, err
	}
	if run, err = c.Create(asking, s); err != nil {
		return nil, err
	}
	found, err := c.lookup(asking, run.ID, run.Submitted.Add(-lookupMargin))
	if err != nil {
		c.log.Warn("looking for a second build of a run", "run", run.ID, "error", err)
		return run, nil
	}
	if !slices.ContainsFunc(found, func(b Build) bool { return b.Number == run.Build }) {
		found = append(found, *run.seen) // its number is the newest that this process knows
	}
	slices.SortFunc(found, func(a, b Build) int { return a.Number - b.Number })
	if kept := c.keepOne(asking, found); kept.Number != run.Build {
		return runOf(kept).asked(s), nil
	}
	return run, nil
}

// asked takes over what s says of a run that somebody else made.
func (r *Run) asked(s Submission) *Run {
	r.GPU, r.Queue = s.GPU, s.Queue
	r.QueueTimeout, r.RunTimeout, r.Progress = orDefault(s.QueueTimeout), orDefault(s.RunTimeout), s.Progress
	return r
}

// lateBuilds are the pauses between two looks for a build that is to be
// cancelled.
var lateBuilds = [...]time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second}

// cancelUnseen cancels what an uncertain create left, although ctx may be over. A
// build that shows later than this takes goes on: err, which it is joined to,
// says that there may be one.
func (c *Client) cancelUnseen(ctx context.Context, runID string) error {
	ctx, stop := last(ctx)
	defer stop()
	for _, wait := range lateBuilds {
		if err := c.pause(ctx, wait); err != nil {
			break
		}
		if found, err := c.cancelRun(ctx, runID); found || err != nil {
			return err
		}
	}
	return nil
}

// abandon cancels the build of a run whose collecting ended with err, and says
// whether it could.
func (c *Client) abandon(ctx context.Context, run *Run, err error) error {
	ended := ctx.Err() != nil
	ctx, stop := last(ctx)
	defer stop()
	cancelErr := c.Cancel(ctx, run.Build)
	var gave *GaveUpError
	switch {
	case errors.As(err, &gave):
		gave.Canceled, gave.CancelErr = cancelErr == nil, cancelErr
		return err
	case cancelErr != nil:
		return fmt.Errorf("build %d (%s) may still run: %w", run.Build, run.BuildURL, errors.Join(cancelErr, err))
	case ended:
		return fmt.Errorf("build %d (%s) is cancelled: %w", run.Build, run.BuildURL, err)
	}
	return err
}

// Create makes the build of s, or finds the one that an earlier attempt made:
// of one run id there is one build in the end. An answer that got lost is looked
// up by the run id, until the listing delay has surely passed; only then is the
// create repeated. All of this goes on until there is a build, s.QueueTimeout is
// over, or ctx ends, which cancels nothing.
//
// Errors: [schema.ErrPayloadTooLong] and faults of the payload, before anything
// is sent; [APIError] for a refusal; [UncertainError] when the time was over
// first and there may be a build; otherwise there is none.
func (c *Client) Create(ctx context.Context, s Submission) (*Run, error) {
	run, body, err := c.prepare(s)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, run.QueueTimeout)
	defer stop()
	run.progress(Event{Phase: PhaseCreating})
	b, repeated, err := c.create(ctx, run.ID, s.Since, s.Attempted, body)
	if err != nil {
		return nil, err
	}
	run.is(b)
	run.repeated = repeated
	return run, nil
}

// Adopt finds the build of a run that an earlier process made, by one look at
// the listings: a build that was made within the listing delay may be missed,
// see [Submission].Attempted for a way that does not. Of several builds of
// one run it keeps the oldest that was not cancelled, and cancels the others.
//
// Errors: [ErrNoBuild], [APIError], ctx's.
func (c *Client) Adopt(ctx context.Context, runID string) (*Run, error) {
	ctx, stop := patient(ctx)
	defer stop()
	found, err := c.builds(ctx, runID, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("looking for the build of run %s: %w", runID, err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("run %s: %w", runID, ErrNoBuild)
	}
	return runOf(c.keepOne(ctx, found)), nil
}

// Open finds the run of a build.
//
// Errors: [ErrNoBuild] for a build that has no run id, [APIError], ctx's.
func (c *Client) Open(ctx context.Context, number int) (*Run, error) {
	b, err := c.Build(ctx, number)
	if err != nil {
		return nil, err
	}
	if b.RunID() == "" {
		return nil, fmt.Errorf("build %d has no run id in its meta-data, as those of a launcher have: %w", number, ErrNoBuild)
	}
	return runOf(b), nil
}

// Collect waits for the end of the run's build and returns its result. It makes
// nothing and cancels nothing: when ctx ends, the build goes on, and may be
// collected later. Any number of runs may be collected at once; they share their
// polls.
//
// Errors: [NoResultError] for a build that ended, or cannot go on, without one;
// [WrongMachineError]; [GaveUpError] when one of the run's clocks ran out;
// [APIError]; ctx's.
func (c *Client) Collect(ctx context.Context, r *Run) (*Report, error) {
	report, _, err := c.collect(ctx, r)
	return report, err
}

// collect is Collect, and reports whether the build was seen over.
func (c *Client) collect(ctx context.Context, r *Run) (report *Report, over bool, err error) {
	copied := *r
	w := &waiter{c: c, r: &copied, build: copied.seen}
	if w.r.Submitted.IsZero() {
		w.r.Submitted = time.Now()
	}
	w.r.QueueTimeout, w.r.RunTimeout = orDefault(r.QueueTimeout), orDefault(r.RunTimeout)
	if w.build == nil {
		w.build = &Build{Number: r.Build, WebURL: r.BuildURL}
	}
	w.timeline = Timeline{Submitted: w.r.Submitted, Created: w.r.Created}
	w.life = newLifecycle(w.r)
	w.progress()
	report, err = w.result(ctx)
	if r.repeated && ctx.Err() == nil {
		c.cancelLate(ctx, w.r)
	}
	if w.over && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("build %d (%s) is over, its result was not fetched: %w", w.build.Number, w.build.WebURL, err)
	}
	return report, w.over, err
}
