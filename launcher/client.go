package launcher

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/buildkite/go-buildkite/v3/buildkite"
)

// DefaultBaseURL is Buildkite's own API.
const DefaultBaseURL = buildkite.DefaultBaseURL

// Options say where builds are made, and as whom.
type Options struct {
	BaseURL   string // "https://api.buildkite.com/"; http only to loopback, since the token would travel in the clear
	Token     string // needs write_builds, read_builds, read_artifacts; read_build_logs for log tails
	Org       string // slug, "gpu-mode"
	Pipeline  string // slug, "kernelbot"
	UserAgent string // "kblaunch/v1.2.3"; empty: go-buildkite's

	// Log takes what is odd but not worth failing for, such as a build state
	// nobody has heard of. Nil: nowhere.
	Log *slog.Logger
}

// A Client makes builds on one pipeline and waits for them. It may be used by
// many goroutines at once; they share one quota and one polling loop.
type Client struct {
	api   *buildkite.Client
	base  *url.URL
	store *http.Client // fetches artifacts from wherever the API points; has no token
	path  string       // "v2/organizations/{org}/pipelines/{pipeline}"
	id    string       // names this client in meta_data, so that it can list its own builds
	log   *slog.Logger

	quota   *quota
	tally   *tally
	watcher *Watcher
	pause   func(context.Context, time.Duration) error
}

// New checks o and makes a client. It sends nothing.
func New(o Options) (*Client, error) {
	base, err := parseBase(o.BaseURL)
	if err != nil {
		return nil, err
	}
	if o.Token == "" {
		return nil, errors.New("no API token")
	}
	if err := errors.Join(checkSlug("organization", o.Org), checkSlug("pipeline", o.Pipeline)); err != nil {
		return nil, err
	}
	c := &Client{
		base:  base,
		path:  "v2/organizations/" + url.PathEscape(o.Org) + "/pipelines/" + url.PathEscape(o.Pipeline),
		id:    "kblaunch-" + randomHex(6),
		log:   o.Log,
		quota: newQuota(time.Now),
		tally: &tally{},
		pause: pause,
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.watcher = newWatcher(c)
	apiHTTP := &http.Client{
		Transport: &transport{
			base:  newHTTPTransport(),
			quota: c.quota,
			tally: c.tally,
			// c.pause is looked up late: tests replace it.
			pause:  func(ctx context.Context, d time.Duration) error { return c.pause(ctx, d) },
			jitter: func() time.Duration { return time.Second + mathrand.N(4*time.Second) },
		},
		// The token never follows a redirect.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.store = newStoreClient(base)
	c.api, err = buildkite.NewOpts(
		buildkite.WithBaseURL(base.String()),
		buildkite.WithTokenAuth(o.Token),
		buildkite.WithHTTPClient(apiHTTP),
	)
	if err != nil {
		return nil, err
	}
	if o.UserAgent != "" {
		c.api.UserAgent = o.UserAgent
	}
	return c, nil
}

// parseBase reads the API's address. A missing final slash is added: without
// it go-buildkite would drop the last part of the path.
func parseBase(s string) (*url.URL, error) {
	if s == "" {
		s = DefaultBaseURL
	}
	if !strings.HasSuffix(s, "/") {
		s += "/"
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, fmt.Errorf("API URL: %v", err)
	case u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("API URL: got %q, want scheme, host and path only, as in %s", u.Redacted(), DefaultBaseURL)
	case strings.HasSuffix(u.Path, "/v2/"):
		return nil, fmt.Errorf("API URL: got %q, want it without the final v2/", s)
	case u.Scheme == "https":
	case u.Scheme == "http" && loopback(u.Hostname()):
	default:
		return nil, fmt.Errorf("API URL: got %q, want https (http only to this machine): the token would be readable on the way", s)
	}
	return u, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

var (
	slugPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)
	idPattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,99}$`)
)

func checkSlug(what, s string) error {
	if !slugPattern.MatchString(s) {
		return fmt.Errorf("%s: got %q, want a slug: letters, digits, - and _, at most 100", what, s)
	}
	return nil
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

// An APIError is an answer of the API that is not the wanted one.
type APIError struct {
	Method, Path string
	Status       int    // HTTP status
	Message      string // what the answer says, one line
}

func (e *APIError) Error() string {
	return fmt.Sprintf("%s %s: %d %s: %s", e.Method, e.Path, e.Status, http.StatusText(e.Status), e.Message)
}

// do sends one request through go-buildkite and decodes the answer into v.
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
	var refused *buildkite.ErrorResponse
	if errors.As(err, &refused) {
		return &APIError{Method: req.Method, Path: path, Status: refused.Response.StatusCode, Message: refusal(refused)}
	}
	if resp == nil || resp.Response == nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // its URL is long and says no more than path
		}
		return fmt.Errorf("%s %s: %w", req.Method, path, err)
	}
	e := &APIError{Method: req.Method, Path: path, Status: resp.StatusCode}
	t := resp.Header.Get("Content-Type")
	if t != "" && !strings.Contains(t, "json") && !errors.Is(err, io.ErrUnexpectedEOF) {
		e.Message = fmt.Sprintf("the body is %s, want JSON: something between here and Buildkite answered", firstLine(t, 60))
	} else {
		e.Message = fmt.Sprintf("the body broke off or is no JSON after %d bytes: %v", body.Len(), err)
	}
	return e
}

// refusal words an error body: {"message", "errors": [{"field", "code"}]}.
func refusal(r *buildkite.ErrorResponse) string {
	if r.Message == "" {
		t := r.Response.Header.Get("Content-Type")
		if t == "" {
			t = "nothing"
		}
		return fmt.Sprintf("no message, the body is %s of %d bytes", firstLine(t, 60), len(r.RawBody))
	}
	var details struct {
		Errors []struct{ Field, Code string } `json:"errors"`
	}
	text := firstLine(r.Message, 300)
	if json.Unmarshal(r.RawBody, &details) == nil {
		for _, d := range details.Errors {
			text += fmt.Sprintf("; %s: %s", firstLine(d.Field, 60), firstLine(d.Code, 60))
		}
	}
	return text
}

// status returns the HTTP status in err, 0 when there was no answer.
func status(err error) int {
	var e *APIError
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// final marks an error of ours that asking again cannot help.
type final struct{ error }

func (e final) Unwrap() error { return e.error }

// hopeless tells that asking again cannot help: the answer was about us.
func hopeless(err error) bool {
	if errors.As(err, &final{}) {
		return true
	}
	s := status(err)
	return s >= 400 && s < 500 && s != http.StatusRequestTimeout && s != http.StatusTooManyRequests
}

// firstLine returns s as one printable line of at most n runes.
func firstLine(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if r := []rune(s); len(r) > n {
		s = string(r[:n]) + "…"
	}
	return strings.TrimSpace(s)
}

// pause waits for d or for the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
