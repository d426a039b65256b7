package launcher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Pauses between two tries double from firstPause to lastPause. Each is between
// half and all of that, by chance: clients that a service failed at once should
// not come back at once.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 30 * time.Second
)

// backoff is the pause after n failed tries, of which err was the last; a
// Retry-After is obeyed.
func backoff(n int, err error) time.Duration {
	d := lastPause
	if n < 7 { // a shift that cannot overflow
		d = min(firstPause<<n, lastPause)
	}
	d = d/2 + mathrandN(d/2)
	var api *APIError
	var store *storeStatusError
	var asked time.Duration
	switch {
	case errors.As(err, &api):
		asked = api.RetryAfter
	case errors.As(err, &store):
		asked = store.retryAfter
	}
	if asked > d {
		return asked + mathrandN(time.Second)
	}
	return d
}

func mathrandN(d time.Duration) time.Duration { return rand.N(d + 1) }

// persist repeats try until it works, until asking again cannot help, or until
// ctx ends. All that is asked of the API goes this way, but for creates, which
// are not to be repeated blindly: see [Client.Create].
//
// Error: try's last; when ctx ended it, ctx's too.
func (c *Client) persist(ctx context.Context, what string, try func() error) error {
	for n := 0; ; n++ {
		err := try()
		if err == nil || permanent(err) {
			return err
		}
		if ctx.Err() != nil {
			return interrupted(ctx.Err(), err)
		}
		if c.stranger(n+1, err) {
			return err
		}
		c.log.Warn(what, "error", err, "tries", n+1)
		if perr := c.pause(ctx, backoff(n, err)); perr != nil {
			return interrupted(perr, err)
		}
	}
}

// strangerTries is how often something is asked of an API that cannot be reached
// and never could: its address is wrong more often than it is down.
const strangerTries = 4

// stranger reports whether so many tries were enough for an API that has never
// answered.
func (c *Client) stranger(tries int, err error) bool {
	return tries >= strangerTries && !c.quota.heard() && notSent(err)
}

// patience bounds a look-up whose caller named no time.
const patience = 2 * time.Minute

// patient gives ctx a deadline if it has none.
func patient(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, patience)
}

// knownTries is how often something is asked for that is there, before a refusal
// (4xx) is believed: services refuse by mistake, too, for a moment.
const knownTries = 4

// insist is persist for what is known to be there, such as a build that we made.
func (c *Client) insist(ctx context.Context, what string, try func() error) error {
	refusals := 0
	return c.persist(ctx, what, func() error {
		err := try()
		if s := status(err); permanentStatus(s) && !errors.As(err, &permanentError{}) {
			if refusals++; refusals < knownTries {
				return unbelieved{err}
			}
		}
		return err
	})
}

// An unbelieved error is a refusal that is not taken for final yet.
type unbelieved struct{ error }

// interrupted is the end of a time in which only err was answered.
func interrupted(ended, err error) error {
	if errors.Is(err, ended) {
		return err
	}
	return fmt.Errorf("%w; the last answer: %w", ended, err)
}
