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
	var uncertain *UncertainError
	if errors.As(err, &uncertain) {
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
