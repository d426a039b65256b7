package launcher

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/buildkite/go-buildkite/v3/buildkite"
)

// defaultListingDelay is far more than builds were ever seen to take until they
// show in listings.
const defaultListingDelay = 30 * time.Second

// refused reports whether the API said no, or is not the API.
func refused(err error) bool {
	return permanent(err) || errors.As(err, new(*tls.CertificateVerificationError))
}

const (
	lookupMargin = time.Hour // for a clock here that runs ahead of Buildkite's; the run id alone decides
	firstLookup  = 250 * time.Millisecond
	lastLookup   = 8 * time.Second
)

// create makes the build for runID, which must be its meta_data's run_id and
// nobody else's, unless there is one.
//
// There is no idempotency key, so an answer that got lost is looked up by run
// id, and only what cannot be found is created again. Of two builds that
// turn up after all, the first stays and the other is cancelled. repeated: a
// build of an earlier try may still turn up.
func (c *Client) create(ctx context.Context, runID string, first, attempted time.Time, body *buildkite.CreateBuild) (b *Build, repeated bool, err error) {
	since := time.Now().Add(-lookupMargin)
	if !attempted.IsZero() {
		repeated = true
		if first.IsZero() || first.After(attempted) {
			first = attempted
		}
		since = first.Add(-lookupMargin)
		b, err := c.find(ctx, runID, since, attempted.Add(c.delay))
		if b != nil || err != nil {
			return b, false, err
		}
	}
	for n := 0; ; n++ {
		b, err := c.createOnce(ctx, body)
		if err == nil {
			if repeated {
				b = c.keepFirst(ctx, runID, since, b)
			}
			return b, repeated, nil
		}
		if refused(err) {
			return nil, false, fmt.Errorf("creating build: %w", err)
		}
		if notSent(err) {
			if ctx.Err() == nil && !c.stranger(n+1, err) {
				c.log.Warn("creating a build", "run", runID, "error", err, "tries", n+1)
				if c.pause(ctx, backoff(n, err)) == nil {
					continue
				}
			}
			return nil, false, fmt.Errorf("creating build: %w", err)
		}
		if ctx.Err() != nil {
			return nil, false, &UncertainError{runID, interrupted(ctx.Err(), err)}
		}
		c.log.Warn("creating a build: it may have been made", "run", runID, "error", err)
		repeated = true
		b, ferr := c.find(ctx, runID, since, time.Now().Add(c.delay))
		if ferr != nil {
			if uncertain, ok := errors.AsType[*UncertainError](ferr); ok {
				uncertain.Err = fmt.Errorf("%w; the create's answer: %w", uncertain.Err, err)
			}
			return nil, false, ferr
		}
		if b != nil {
			c.log.Info("found the build of an interrupted create", "build", b.Number, "run", runID)
			return b, false, nil
		}
	}
}

func (c *Client) createOnce(ctx context.Context, body *buildkite.CreateBuild) (*Build, error) {
	b := &Build{}
	if _, err := c.do(withUse(ctx, useCreate), http.MethodPost, c.path+"/builds", body, b); err != nil {
		return nil, err
	}
	if b.Number <= 0 {
		return nil, fmt.Errorf("the answer names no build: number %d", b.Number)
	}
	return b, nil
}

// find looks for runID's build until one lookup after the time of sure has not
// found it: then there is none, and it returns nil.
//
// Error: [UncertainError].
func (c *Client) find(ctx context.Context, runID string, since, sure time.Time) (*Build, error) {
	var waited time.Duration // as c.pause counts
	left := time.Until(sure)
	for wait := firstLookup; ; wait = min(2*wait, lastLookup) {
		if left > 0 {
			wait = min(wait, left-waited+time.Millisecond)
			if err := c.pause(ctx, wait); err != nil {
				return nil, &UncertainError{runID, err}
			}
			waited += wait
		}
		found, err := c.builds(ctx, runID, since)
		if err != nil {
			return nil, &UncertainError{runID, err}
		}
		if len(found) > 0 {
			return c.keepOne(ctx, found), nil
		}
		if waited > left {
			return nil, nil
		}
	}
}

// keepFirst looks the run up once more after a repeated create, for a build of
// the first attempt that listings showed too late.
func (c *Client) keepFirst(ctx context.Context, runID string, since time.Time, b *Build) *Build {
	found, err := c.lookup(ctx, runID, since)
	if err != nil || len(found) == 0 || found[0].Number >= b.Number {
		return b
	}
	if !slices.ContainsFunc(found, func(f Build) bool { return f.Number == b.Number }) {
		found = append(found, *b)
	}
	c.cancelOthers(ctx, found[0].Number, found)
	return &found[0]
}

// keepOne chooses among the builds of one run, the oldest first: the first that
// was not cancelled. Those that go on beside it are cancelled.
func (c *Client) keepOne(ctx context.Context, found []Build) *Build {
	kept := slices.IndexFunc(found, func(b Build) bool {
		return !slices.Contains([]string{"canceling", "canceled", "skipped", "not_run"}, b.State)
	})
	kept = max(kept, 0)
	c.cancelOthers(ctx, found[kept].Number, found)
	return &found[kept]
}

// cancelLate cancels builds of a run beside its own, after a create that was
// repeated: the first try's may have shown in listings very late.
func (c *Client) cancelLate(ctx context.Context, r *Run) {
	found, err := c.lookup(ctx, r.ID, r.Submitted.Add(-lookupMargin))
	if err != nil {
		c.log.Warn("looking for a second build of a run", "run", r.ID, "error", err)
	}
	c.cancelOthers(ctx, r.Build, found)
}

// cancelOthers cancels the builds of a run that go on beside the one that is kept.
func (c *Client) cancelOthers(ctx context.Context, kept int, builds []Build) {
	for _, b := range builds {
		if b.Number == kept || b.Over() {
			continue
		}
		if err := c.Cancel(ctx, b.Number); err != nil {
			c.log.Warn("a second build of one run stays", "build", b.Number, "error", err)
		}
	}
}

// cancelTimeout bounds a cancellation after the caller's context has ended.
const cancelTimeout = 15 * time.Second

// Cancel cancels a build. One that is over already is as good as cancelled. It is
// asked for until there is an answer or ctx ends.
func (c *Client) Cancel(ctx context.Context, number int) error {
	path, err := c.buildPath(number)
	if err != nil {
		return err
	}
	ctx, stop := patient(ctx)
	defer stop()
	err = c.persist(ctx, "cancelling a build", func() error {
		_, err := c.do(withUse(ctx, useCancel), http.MethodPut, path+"/cancel", nil, nil)
		if status(err) == http.StatusUnprocessableEntity {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cancelling build %d: %w", number, err)
	}
	return nil
}

// CancelRun cancels every build of a run, as far as listings show them.
func (c *Client) CancelRun(ctx context.Context, runID string) error {
	ctx, stop := patient(ctx)
	defer stop()
	_, err := c.cancelRun(ctx, runID)
	return err
}

// cancelRun is CancelRun, and reports whether there was a build.
func (c *Client) cancelRun(ctx context.Context, runID string) (found bool, err error) {
	builds, err := c.builds(ctx, runID, time.Time{})
	if err != nil {
		return false, fmt.Errorf("a build with meta_data run_id %s may be left: %w", runID, err)
	}
	var errs []error
	for _, b := range builds {
		if !b.Over() {
			errs = append(errs, c.Cancel(ctx, b.Number))
		}
	}
	return len(builds) > 0, errors.Join(errs...)
}

// last is the time for a last word when ctx may be over.
func last(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
}
