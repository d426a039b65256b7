// Package fault injects faults into HTTP answers, so that tests and people can
// see what clients do with answers that are slow, wrong, cut, doubled or missing.
// It wraps any handler and knows nothing of what that serves.
package fault

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema/glob"
)

// A Rule says what to do to which requests. It has at most one of the actions
// Status or Body, Drop, DropAfter, Cut, RateLimit and Duplicate; Latency goes
// with any of them or stands alone.
type Rule struct {
	Method string `json:"method,omitempty"` // "POST"; empty is any
	Path   string `json:"path,omitempty"`   // "*" stands for any run of characters, slashes too

	After int `json:"after,omitempty"` // matching requests that are left alone first
	Count int `json:"count,omitempty"` // requests acted on after those; 0: all

	Latency Latency `json:"latency,omitempty"` // before anything else; at most [MaxLatency]

	Status int    `json:"status,omitempty"` // answered instead of the handler; 200 with a Body alone
	Body   string `json:"body,omitempty"`   // a JSON message when empty; HTML when it begins with "<"

	Drop      bool       `json:"drop,omitempty"`       // the connection is closed without an answer
	DropAfter bool       `json:"drop_after,omitempty"` // the handler runs, then the connection is closed without an answer
	Cut       int        `json:"cut,omitempty"`        // bytes of the body that are sent before the connection is closed; 0: off
	RateLimit *RateLimit `json:"rate_limit,omitempty"`
	Duplicate bool       `json:"duplicate,omitempty"` // the handler runs twice; the second answer is sent
}

// A RateLimit is answered as 429 in the form of Buildkite's REST API.
type RateLimit struct {
	Scope string `json:"scope"` // "rest" or "rest_user"
	Reset int    `json:"reset"` // seconds
}

// Latency is written "200ms".
type Latency time.Duration

func (l Latency) String() string { return time.Duration(l).String() }

// MarshalText writes it.
func (l Latency) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads it.
func (l *Latency) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("latency: got %q, want a duration such as 200ms", text)
	}
	*l = Latency(d)
	return nil
}

// MaxLatency bounds what a rule may wait.
const MaxLatency = Latency(10 * time.Minute)

// ErrRule is in every error about a rule that cannot be used.
var ErrRule = errors.New("fault rule")

// Validate returns what is wrong with the rule; it wraps [ErrRule].
func (r Rule) Validate() error {
	var actions []string
	for name, on := range map[string]bool{
		"status": r.Status != 0 || r.Body != "", "drop": r.Drop, "drop_after": r.DropAfter,
		"cut": r.Cut != 0, "rate_limit": r.RateLimit != nil, "duplicate": r.Duplicate,
	} {
		if on {
			actions = append(actions, name)
		}
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrRule, fmt.Sprintf(format, args...))
	}
	switch {
	case !strings.HasPrefix(r.Path, "/") && !strings.HasPrefix(r.Path, "*"):
		return wrong("path: got %q, want one that begins with / or *", r.Path)
	case strings.ContainsAny(r.Path, " \t\n\""):
		return wrong("path: got %q, want it without spaces and quotes", r.Path)
	case r.Method != strings.ToUpper(r.Method):
		return wrong("method: got %q, want capitals", r.Method)
	case r.After < 0 || r.Count < 0 || r.Cut < 0:
		return wrong("after, count and cut: got %d, %d and %d, want at least 0", r.After, r.Count, r.Cut)
	case r.Latency < 0 || r.Latency > MaxLatency:
		return wrong("latency: got %v, want 0 to %v", r.Latency, MaxLatency)
	case r.Status != 0 && (r.Status < 200 || r.Status > 599):
		return wrong("status: got %d, want 200 to 599", r.Status)
	case r.RateLimit != nil && r.RateLimit.Scope != "rest" && r.RateLimit.Scope != "rest_user":
		return wrong("rate_limit: got scope %q, want rest or rest_user", r.RateLimit.Scope)
	case r.RateLimit != nil && r.RateLimit.Reset < 0:
		return wrong("rate_limit: got a reset of %d seconds, want at least 0", r.RateLimit.Reset)
	case len(actions) > 1:
		return wrong("got %d actions, want one of status or body, drop, drop_after, cut, rate_limit, duplicate", len(actions))
	case len(actions) == 0 && r.Latency == 0:
		return wrong("it does nothing: want latency, status, body, drop, drop_after, cut, rate_limit or duplicate")
	}
	return nil
}

// matches reports whether the rule is about the request.
func (r *Rule) matches(req *http.Request) bool {
	return (r.Method == "" || r.Method == req.Method) && glob.Match(r.Path, req.URL.Path)
}
