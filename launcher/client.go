package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
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

	// Installation names whoever makes builds here, in their meta-data, and has
	// to be the same after a restart for builds that are adopted to be found by
	// the shared polling: letters, digits, - and _, at most 60. Empty: a name by
	// chance, which is right for a process that leaves no build behind.
	Installation string

	// ListingDelay is after how long a new build is sure to be found in
	// listings; 0: [defaultListingDelay]. Buildkite does not say.
	ListingDelay time.Duration

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
	delay time.Duration
	log   *slog.Logger

	quota    *quota
	known    *estimates
	counters *counters
	watcher  *watcher
	pause    func(context.Context, time.Duration) error
}

// New checks o and makes a client. It sends nothing.
func New(o Options) (*Client, error) {
	return newClient(o, newHTTPTransport(), newHTTPTransport())
}

// newClient makes a client that speaks to the API and to the artifact store
// through the given transports.
func newClient(o Options, api, store http.RoundTripper) (*Client, error) {
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
		base:     base,
		path:     "v2/organizations/" + url.PathEscape(o.Org) + "/pipelines/" + url.PathEscape(o.Pipeline),
		id:       o.Installation,
		delay:    o.ListingDelay,
		log:      o.Log,
		quota:    newQuota(time.Now),
		known:    newEstimates(),
		counters: &counters{},
		pause:    pause,
	}
	c.id = cmp.Or(c.id, "kblaunch-"+randomHex(6))
	if !namePattern.MatchString(c.id) {
		return nil, fmt.Errorf("installation: got %q, want 1 to 60 letters, digits, - and _", c.id)
	}
	if c.delay <= 0 {
		c.delay = defaultListingDelay
	}
	c.log = cmp.Or(c.log, slog.New(slog.DiscardHandler))
	c.watcher = newWatcher(c)
	apiHTTP := &http.Client{
		Transport: &transport{
			base:     api,
			quota:    c.quota,
			counters: c.counters,
			// c.pause is looked up late: tests replace it.
			pause:  func(ctx context.Context, d time.Duration) error { return c.pause(ctx, d) },
			log:    c.log,
			jitter: func() time.Duration { return time.Second + mathrand.N(4*time.Second) },
		},
		// The token never follows a redirect.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.store = newStoreClient(base, store)
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
	s = cmp.Or(s, DefaultBaseURL)
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

// loopback reports whether host is this machine.
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
