package launcher

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

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
