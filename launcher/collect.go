package launcher

import (
	"context"
	"errors"
	"fmt"
	"time"
)

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
	w.life.signal(buildCreated)
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
