package launcher

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/buildkite/go-buildkite/v3/buildkite"

	"github.com/gpu-mode/kbgen/schema/text"
)

// An APIError is an answer of the API that is not the wanted one.
type APIError struct {
	Method, Path string
	Status       int           // HTTP status
	Message      string        // what the answer says, one line
	RetryAfter   time.Duration // how long the answer asks to wait; 0: it does not
}

func (e *APIError) Error() string {
	return fmt.Sprintf("%s %s: %d %s: %s", e.Method, e.Path, e.Status, http.StatusText(e.Status), e.Message)
}

// do sends one request through go-buildkite and decodes the answer into v. It
// does not repeat it, but for 429.
//
// Errors: [APIError] when there was an answer, [RateLimitError], or what the
// transport said; all reachable with errors.As.
func (c *Client) do(ctx context.Context, method, path string, body, v any) (*buildkite.Response, error) {
	req, err := c.api.NewRequest(method, path, body)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	resp, err := c.api.Do(req.WithContext(ctx), &buf)
	if err != nil {
		return resp, c.explain(req, resp, &buf, err)
	}
	if v == nil {
		return resp, nil
	}
	if err := json.Unmarshal(buf.Bytes(), v); err != nil {
		return resp, c.explain(req, resp, &buf, err)
	}
	return resp, nil
}

// explain puts err into words an operator can use.
func (c *Client) explain(req *http.Request, resp *buildkite.Response, body *bytes.Buffer, err error) error {
	path := strings.TrimPrefix(req.URL.Path, c.base.Path)
	if refused, ok := errors.AsType[*buildkite.ErrorResponse](err); ok {
		return &APIError{
			Method: req.Method, Path: path, Status: refused.Response.StatusCode, Message: refusal(refused),
			RetryAfter: retryAfter(refused.Response.Header, time.Now()),
		}
	}
	if resp == nil || resp.Response == nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // its URL is long and says no more than path
		}
		return fmt.Errorf("%s %s: %w", req.Method, path, err)
	}
	if errors.Is(err, errTooLarge) {
		return fmt.Errorf("%s %s: %w", req.Method, path, err)
	}
	e := &APIError{Method: req.Method, Path: path, Status: resp.StatusCode}
	t := resp.Header.Get("Content-Type")
	if t != "" && !strings.Contains(t, "json") && !errors.Is(err, io.ErrUnexpectedEOF) {
		e.Message = fmt.Sprintf("the body is %s, want JSON: something between here and Buildkite answered", text.Line(t, 60))
	} else {
		e.Message = fmt.Sprintf("the body broke off or is no JSON after %d bytes: %v", body.Len(), err)
	}
	return e
}

// refusal words an error body: {"message", "errors": [{"field", "code"}]}.
func refusal(r *buildkite.ErrorResponse) string {
	if r.Message == "" {
		t := cmp.Or(r.Response.Header.Get("Content-Type"), "nothing")
		return fmt.Sprintf("no message, the body is %s of %d bytes", text.Line(t, 60), len(r.RawBody))
	}
	var details struct {
		Errors []struct{ Field, Code string } `json:"errors"`
	}
	words := text.Line(r.Message, 300)
	if json.Unmarshal(r.RawBody, &details) == nil {
		for _, d := range details.Errors {
			words += fmt.Sprintf("; %s: %s", text.Line(d.Field, 60), text.Line(d.Code, 60))
		}
	}
	return words
}

// status returns the HTTP status in err, 0 when there was no answer.
func status(err error) int {
	if e, ok := errors.AsType[*APIError](err); ok {
		return e.Status
	}
	return 0
}

// A permanentError is an error of ours that asking again cannot help.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// permanent reports whether asking again cannot help: the answer was about us.
func permanent(err error) bool {
	if errors.As(err, &permanentError{}) || errors.Is(err, errTooLarge) {
		return true
	}
	return permanentStatus(status(err))
}

func permanentStatus(s int) bool {
	return s >= 400 && s < 500 && s != http.StatusRequestTimeout && s != http.StatusTooManyRequests
}

// buildPath returns the path of one build, or of something below it. Ids come
// from the API's answers, and a strange one must not turn into another path.
func (c *Client) buildPath(number int, parts ...string) (string, error) {
	if number <= 0 {
		return "", fmt.Errorf("build number: got %d, want 1 or more", number)
	}
	path := c.path + "/builds/" + strconv.Itoa(number)
	for _, p := range parts {
		if !idPattern.MatchString(p) {
			return "", fmt.Errorf("build %d: got the id %q from the API, want letters, digits and -", number, p)
		}
		path += "/" + url.PathEscape(p)
	}
	return path, nil
}

// notSent reports whether a create certainly did not reach the API.
func notSent(err error) bool {
	var op *net.OpError
	return errors.As(err, new(*RateLimitError)) || errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect")
}

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
	var asked time.Duration
	if api, ok := errors.AsType[*APIError](err); ok {
		asked = api.RetryAfter
	} else if store, ok := errors.AsType[*storeStatusError](err); ok {
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

// persisted is persist for what try returns.
func persisted[T any](ctx context.Context, c *Client, what string, try func() (T, error)) (v T, err error) {
	err = c.persist(ctx, what, func() error {
		v, err = try()
		return err
	})
	return v, err
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
