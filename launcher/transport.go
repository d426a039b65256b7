package launcher

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/gpu-mode/kbgen/launcher/pace"
)

const (
	attemptTimeout = 60 * time.Second // one request with its whole body
	maxBody        = 64 << 20         // bytes of one API answer; a page of builds repeats their payloads
	maxRateWait    = 2 * time.Minute  // windows are one minute long
	maxRetryAfter  = time.Hour        // an order from outside, but not for ever
)

// errTooLarge is an answer of more than maxBody bytes.
var errTooLarge = fmt.Errorf("answer larger than %d bytes", maxBody)

// A RateLimitError is a request that met 429 until its caller's time was over.
// Nothing was done on the server.
type RateLimitError struct {
	Scope          string        // "rest" (organization) or "rest_user"
	Limit, Current int           // requests in the window
	Reset          time.Duration // until the window ends, without jitter

	ordered bool // Reset is the answer's Retry-After
}

func (e *RateLimitError) Error() string {
	if e.Scope == "" && e.Limit == 0 { // who answered did not say whose it is
		return fmt.Sprintf("a rate limit is used up (429), next try in %s", e.Reset)
	}
	return fmt.Sprintf("rate limit %q used up: %d of %d requests, next window in %s", e.Scope, e.Current, e.Limit, e.Reset)
}

// newHTTPTransport is net/http's transport with a limit on every part that
// could hang.
func newHTTPTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   16,
	}
}

// transport lies between go-buildkite and the network: it spends the quota,
// bounds each attempt, and absorbs every 429, so that go-buildkite's own
// backoff never sees one. It knows no token.
type transport struct {
	base     http.RoundTripper
	quota    *quota
	counters *counters
	pause    func(context.Context, time.Duration) error
	jitter   func() time.Duration // keeps several launchers from waking together
	log      *slog.Logger         // at debug level: every request, without what it carries
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	for {
		if err := t.quota.admit(ctx, useOf(ctx)); err != nil {
			return nil, err
		}
		resp, err := t.once(req)
		if err != nil {
			t.quota.answered(nil)
			return nil, err
		}
		t.quota.answered(resp.Header)
		if resp.StatusCode != http.StatusTooManyRequests {
			return resp, nil
		}
		limited := readRateLimit(resp)
		wait := min(limited.Reset+t.jitter(), maxRateWait)
		if limited.ordered {
			wait = limited.Reset + t.jitter()
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return nil, limited // it would end in the pause
		}
		if err := t.pause(ctx, wait); err != nil {
			return nil, err
		}
		if req, err = rewound(req); err != nil {
			return nil, err
		}
	}
}

// once sends req under its own time limit, which covers the body too.
func (t *transport) once(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), attemptTimeout)
	t.counters.sent[useOf(ctx)].Add(1)
	began := time.Now()
	resp, err := t.base.RoundTrip(req.WithContext(ctx))
	if err != nil {
		t.log.DebugContext(ctx, "request", "method", req.Method, "path", req.URL.Path, "error", err, "after", time.Since(began).Round(time.Millisecond))
		cancel()
		return nil, err
	}
	t.log.DebugContext(ctx, "request", "method", req.Method, "path", req.URL.Path, "status", resp.StatusCode, "after", time.Since(began).Round(time.Millisecond))
	resp.Body = &boundedBody{body: resp.Body, left: maxBody, done: cancel}
	return resp, nil
}

func rewound(req *http.Request) (*http.Request, error) {
	next := req.Clone(req.Context())
	if req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		next.Body = body
	}
	return next, nil
}

// boundedBody ends an answer that is larger than anyone needs with an error.
type boundedBody struct {
	body io.ReadCloser
	left int64
	done context.CancelFunc
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.body.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

func (b *boundedBody) Close() error {
	defer b.done()
	return b.body.Close()
}

// readRateLimit reads a 429 and closes it. The body names the scope that is
// used up; RateLimit-Reset may belong to the other one.
func readRateLimit(resp *http.Response) *RateLimitError {
	defer resp.Body.Close()
	var body struct {
		Scope          string
		Limit, Current int
		Reset          *int // seconds
	}
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if json.Unmarshal(data, &body) != nil {
		body.Scope, body.Reset = "", nil
	}
	e := &RateLimitError{Scope: body.Scope, Limit: body.Limit, Current: body.Current, Reset: pace.Window}
	org, user := readFamily(resp.Header, orgHeaders), readFamily(resp.Header, userHeaders)
	switch {
	case body.Reset != nil && *body.Reset >= 0:
		e.Reset = min(time.Duration(min(*body.Reset, 1<<20))*time.Second, maxRetryAfter)
	case body.Scope == "rest_user" && user.Known:
		e.Reset = user.Reset
	case body.Scope == "rest" && org.Known:
		e.Reset = org.Reset
	case user.Known && user.Remaining <= 0:
		e.Reset = user.Reset
	case org.Known && org.Remaining <= 0:
		e.Reset = org.Reset
	}
	if after := retryAfter(resp.Header, time.Now()); after > e.Reset {
		e.Reset, e.ordered = after, true
	}
	return e
}
