package launcher

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/buildkite/go-buildkite/v3/buildkite"
)

// leftNothing reports whether a failed create certainly left no build. Refusals
// left none, nor did a connection that was never made.
func leftNothing(err error) bool {
	var limited *RateLimitError
	var op *net.OpError
	switch {
	case errors.As(err, &limited), errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"):
		return true
	case permanent(err):
		return true
	}
	var cert *tls.CertificateVerificationError
	return errors.As(err, &cert)
}

const (
	maxCreates   = 3
	lookupMargin = time.Hour // for a clock here that runs ahead of Buildkite's; the run id alone decides
)

// lookupDelays are the pauses before each lookup of a build that an uncertain
// create may have made. How soon a build shows in listings is not documented.
var lookupDelays = [...]time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second}

// create makes the build for runID, which must be its meta_data's run_id and
// nobody else's.
//
// There is no idempotency key, so an answer that got lost is looked up by run
// id, and only what cannot be found is created again. Of two builds that
// turn up after all, the first stays and the other is cancelled. When ctx
// ends in the middle, what was made is cancelled.
func (c *Client) create(ctx context.Context, runID string, body *buildkite.CreateBuild) (*Build, error) {
	since := time.Now().Add(-lookupMargin)
	var last error
	for n := range maxCreates {
		c.counters.creates.Add(1)
		b, err := c.createOnce(ctx, body)
		if err == nil {
			if n > 0 {
				return c.keepFirst(ctx, runID, since, b), nil
			}
			return b, nil
		}
		if leftNothing(err) {
			return nil, fmt.Errorf("creating build: %w", err)
		}
		if ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("creating build: %w", ctx.Err()), c.cancelUnseen(ctx, runID, since))
		}
		last = err
		b, err = c.adopt(ctx, runID, since)
		if err != nil {
			return nil, fmt.Errorf("creating build: %v; whether run %s has a build is unknown: %w", last, runID, err)
		}
		if b != nil {
			c.log.Info("found the build of an interrupted create", "build", b.Number, "run", runID)
			return b, nil
		}
	}
	return nil, fmt.Errorf("creating build: %d attempts left no build, the last: %w", maxCreates, last)
}

func (c *Client) createOnce(ctx context.Context, body *buildkite.CreateBuild) (*Build, error) {
	b := &Build{}
	if _, err := c.do(ctx, http.MethodPost, c.path+"/builds", body, b); err != nil {
		return nil, err
	}
	if b.Number <= 0 {
		return nil, fmt.Errorf("the answer names no build: number %d", b.Number)
	}
	return b, nil
}

// adopt looks for runID's build several times; nil when there is none.
func (c *Client) adopt(ctx context.Context, runID string, since time.Time) (*Build, error) {
	var err error
	for _, d := range lookupDelays {
		if perr := c.pause(ctx, d); perr != nil {
			return nil, errors.Join(perr, c.cancelUnseen(ctx, runID, since))
		}
		var found []Build
		found, err = c.lookup(ctx, runID, since)
		if len(found) > 0 {
			c.cancelOthers(ctx, found[1:])
			return &found[0], nil
		}
		if permanent(err) {
			break
		}
	}
	return nil, err // of the last lookup: an unanswered one permits no second create
}

// keepFirst looks the run up once more after a repeated create, for a build of
// the first attempt that listings showed too late.
func (c *Client) keepFirst(ctx context.Context, runID string, since time.Time, b *Build) *Build {
	found, err := c.lookup(ctx, runID, since)
	if err != nil || len(found) == 0 || found[0].Number == b.Number {
		return b
	}
	c.cancelOthers(ctx, found[1:])
	if !slices.ContainsFunc(found, func(f Build) bool { return f.Number == b.Number }) {
		c.cancelOthers(ctx, []Build{*b})
	}
	return &found[0]
}

// lookup lists the builds of one run, the oldest first.
func (c *Client) lookup(ctx context.Context, runID string, since time.Time) ([]Build, error) {
	c.counters.lookups.Add(1)
	q := url.Values{
		"meta_data[run_id]": {runID},
		"created_from":      {since.UTC().Format(time.RFC3339)},
		"exclude_jobs":      {"true"},
		"exclude_pipeline":  {"true"},
	}
	builds, err := c.list(ctx, q)
	if err != nil {
		return nil, err
	}
	// Whether the filter matches parts of values is not documented.
	builds = slices.DeleteFunc(builds, func(b Build) bool { return b.MetaData["run_id"] != runID })
	slices.SortFunc(builds, func(a, b Build) int { return a.Number - b.Number })
	return builds, nil
}

func (c *Client) cancelOthers(ctx context.Context, builds []Build) {
	for _, b := range builds {
		if err := c.Cancel(ctx, b.Number); err != nil {
			c.log.Warn("a second build of one run stays", "build", b.Number, "error", err)
		}
	}
}

// cancelUnseen cancels what an interrupted create may have left, although ctx
// is over.
func (c *Client) cancelUnseen(ctx context.Context, runID string, since time.Time) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer stop()
	found, err := c.lookup(ctx, runID, since)
	if err != nil {
		return fmt.Errorf("a build with meta_data run_id %s may be left: %w", runID, err)
	}
	c.cancelOthers(ctx, found)
	return nil
}
