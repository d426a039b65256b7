package launcher

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// cancelTimeout bounds a cancellation after the caller's context has ended.
const cancelTimeout = 15 * time.Second

// Cancel cancels a build. One that is over already is as good as cancelled.
func (c *Client) Cancel(ctx context.Context, number int) error {
	path, err := c.buildPath(number)
	if err != nil {
		return err
	}
	c.counters.others.Add(1)
	_, err = c.do(ctx, http.MethodPut, path+"/cancel", nil, nil)
	if status(err) == http.StatusUnprocessableEntity {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cancelling build %d: %w", number, err)
	}
	return nil
}
