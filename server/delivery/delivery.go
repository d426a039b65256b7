// Package delivery posts JSON to an address that an organizer has named: a chat's
// incoming webhook, or a program of the organizer's own. It does not know what it posts
// or when to try again.
//
// The address may be a secret, so it appears in no error.
package delivery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
)

// Timeout bounds one request with its answer.
const Timeout = 20 * time.Second

// maxAnswer is how much of an answer is read, in bytes.
const maxAnswer = 64 << 10

// A Target is where requests go.
type Target struct {
	url    *url.URL
	client *http.Client
}

// New makes a target of an https address, or of any address on this machine.
// Redirects are not followed.
func New(address string) (*Target, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return nil, errors.New("want an https address")
	}
	return &Target{u, &http.Client{Timeout: Timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// Host is the target's, without its port.
func (t *Target) Host() string { return t.url.Hostname() }

// An Error is a request that was not answered with a status of 200 to 299.
type Error struct {
	err       error
	Permanent bool          // the same request would be refused again
	After     time.Duration // that the receiver wants to pass before the next try; 0: it did not say
}

func (e *Error) Error() string { return e.err.Error() }

// Post sends one request and returns the beginning of the answer, 64 KiB at most: all
// of it, unless the receiver sends more or breaks off. headers are names and values by
// turns.
//
// Errors: [*Error].
func (t *Target) Post(ctx context.Context, body []byte, headers ...string) (answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, &Error{err: errors.New("the address cannot be used"), Permanent: true}
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return nil, failed(err)
	}
	defer resp.Body.Close()
	answer, _ = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // the status counts, however the body ends
	if status := resp.StatusCode; status/100 != 2 {
		return nil, &Error{fmt.Errorf("got status %d", status), !temporary(status), retryAfter(resp.Header)}
	}
	return answer, nil
}

// failed is a request that was sent and not answered, without its address.
func failed(err error) error {
	if quoting, ok := errors.AsType[*url.Error](err); ok {
		err = quoting.Err
	}
	return &Error{err: errors.New(text.Line(err.Error(), 200))}
}

func temporary(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status/100 == 5
}

// retryAfter reads how many seconds a receiver wants to pass, an hour at most.
func retryAfter(header http.Header) time.Duration {
	seconds, err := strconv.ParseFloat(header.Get("Retry-After"), 64) // or it is a date
	if err != nil || !(seconds > 0) {
		return 0
	}
	return time.Duration(min(seconds, 3600) * float64(time.Second))
}

// Pause is how long to wait before the next try, after a number of tries: first, then
// twice as long each time, and at most limit.
func Pause(tries int, first, limit time.Duration) time.Duration {
	pause := first
	for i := 1; i < tries && pause < limit; i++ {
		pause *= 2
	}
	return min(pause, limit)
}
