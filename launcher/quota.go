package launcher

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	quotaWindow  = 60 * time.Second // Buildkite counts requests in windows of this length
	defaultLimit = 200              // per window, an organization's; held until an answer says otherwise

	// Of the limit, so much may be spent at once, and so much in each window as
	// it comes. Together they stay below the limit wherever the server's windows
	// begin; the rest is for cancellations and clocks.
	burstShare, steadyShare = 0.25, 0.70

	// Of so many requests one goes to the least use that waits: a flood of
	// creates must not keep their results from being noticed.
	fairTurn = 8
)

// The two header families every answer carries. Resets are seconds from now.
var (
	orgHeaders  = [3]string{"RateLimit-Remaining", "RateLimit-Limit", "RateLimit-Reset"}
	userHeaders = [3]string{"RateLimit-User-Remaining", "RateLimit-User-Limit", "RateLimit-User-Reset"}
)

type family struct {
	ok               bool
	remaining, limit int // remaining is negative when rejected requests went on
	reset            time.Duration
}

func readFamily(h http.Header, names [3]string) family {
	var v [3]int
	for i, name := range names {
		n, err := strconv.Atoi(h.Get(name))
		if err != nil {
			return family{}
		}
		v[i] = n
	}
	return family{ok: v[1] > 0, remaining: v[0], limit: v[1], reset: time.Duration(min(max(v[2], 0), maxReset)) * time.Second}
}

// maxReset bounds what a header may make us wait, in seconds: two windows.
const maxReset = 120

// A quota admits requests at an even pace: a bucket that fills with 70 % of the
// smaller limit per window and holds 25 % of it. A few submissions never wait,
// and a minute never starves the next.
//
// Other processes spend the same limit. What they leave is in the headers of
// every answer: once that is less than the pace would spend until the window
// ends, requests are spread over what is left of it. So several processes, on
// one host or on many, share a limit without knowing of each other.
type quota struct {
	now func() time.Time

	mu      sync.Mutex
	limit   int         // requests per window
	answers int         // that there were
	tokens  float64     // in the bucket
	at      time.Time   // when tokens was right
	free    int         // what the server said is left, smaller family, less what was sent since
	until   time.Time   // how long free is worth anything
	last    time.Time   // when the last request was admitted
	flight  int         // requests that were sent and not answered
	waiting []*ticket   // in order of arrival
	turns   int         // admissions since the least use had its turn
	alarm   *time.Timer // of the next admission; nil: none is due
}

func newQuota(now func() time.Time) *quota {
	return &quota{now: now, limit: defaultLimit, tokens: burst(defaultLimit), at: now()}
}

// burst is how much a bucket of that limit holds.
func burst(limit int) float64 { return max(burstShare*float64(limit), 1) }

// A ticket is a request that waits to be admitted.
type ticket struct {
	use     use
	allowed chan struct{}
}

// byUse puts the more important use first.
func byUse(a, b *ticket) int { return cmp.Compare(a.use, b.use) }

// remove takes a ticket out of the line, and reports whether it was in it. q.mu is
// held.
func (q *quota) remove(t *ticket) bool {
	at := slices.Index(q.waiting, t)
	if at >= 0 {
		q.waiting = slices.Delete(q.waiting, at, at+1)
	}
	return at >= 0
}

// admit waits for a request's turn. A cancellation does not wait: it frees a
// GPU, and has little time when the process is about to end.
//
// Error: ctx's.
func (q *quota) admit(ctx context.Context, u use) error {
	q.mu.Lock()
	if u == useCancel {
		q.spend(q.now())
		q.mu.Unlock()
		return nil
	}
	t := &ticket{use: u, allowed: make(chan struct{})}
	q.waiting = append(q.waiting, t)
	q.serve()
	q.mu.Unlock()
	select {
	case <-t.allowed:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.remove(t) { // admitted in this moment
		return nil
	}
	return ctx.Err()
}

// serve admits whom it can, and sets the alarm for the next. q.mu is held.
func (q *quota) serve() {
	if q.alarm != nil {
		q.alarm.Stop()
		q.alarm = nil
	}
	for len(q.waiting) > 0 {
		now := q.now()
		if wait := q.wait(now); wait > 0 {
			q.alarm = time.AfterFunc(wait, func() {
				q.mu.Lock()
				defer q.mu.Unlock()
				q.serve()
			})
			return
		}
		next := slices.MinFunc(q.waiting, byUse) // of equal ones the first
		if q.turns++; q.turns >= fairTurn {
			q.turns, next = 0, slices.MaxFunc(q.waiting, byUse)
		}
		q.remove(next)
		q.spend(now)
		close(next.allowed)
	}
}

// wait is how long until the next request may go. q.mu is held.
func (q *quota) wait(now time.Time) time.Duration {
	q.refill(now)
	var wait time.Duration
	if missing := 1 - q.tokens; missing > 1e-9 {
		wait = time.Duration(missing / q.pace() * float64(time.Second))
	}
	left := q.until.Sub(now)
	if left <= 0 {
		return wait
	}
	// What others have under way is in no header yet.
	free := q.free - q.limit/40
	if free <= 0 {
		return max(wait, left)
	}
	if float64(free) < q.pace()*left.Seconds() { // others spend it too
		wait = max(wait, q.last.Add(left/time.Duration(free+1)).Sub(now))
	}
	return wait
}

// pace is how many requests a second come into the bucket.
func (q *quota) pace() float64 { return steadyShare * float64(q.limit) / quotaWindow.Seconds() }

func (q *quota) refill(now time.Time) {
	q.tokens = min(q.tokens+q.pace()*now.Sub(q.at).Seconds(), burst(q.limit))
	q.at = now
}

// spend takes a token, whether there is one or not. q.mu is held.
func (q *quota) spend(now time.Time) {
	q.refill(now)
	q.tokens--
	q.free--
	q.flight++
	q.last = now
}

// answered learns from an answer's headers; nil: there was no answer.
func (q *quota) answered(h http.Header) {
	org, user := readFamily(h, orgHeaders), readFamily(h, userHeaders)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flight--
	if h != nil {
		q.answers++
	}
	small := org
	if user.ok && (!org.ok || user.limit < org.limit) {
		small = user
	}
	if !small.ok {
		return
	}
	if small.limit != q.limit {
		now := q.now()
		q.refill(now)
		// A smaller bucket keeps what was spent of the larger one.
		q.tokens += burst(small.limit) - burst(q.limit)
		q.limit = small.limit
	}
	for _, f := range []family{org, user} {
		if f.ok && f.remaining <= small.remaining {
			small = f
		}
	}
	// What is still under way may not be counted yet.
	q.free, q.until = small.remaining-q.flight, q.now().Add(small.reset)
	q.serve()
}

// heard reports whether there was ever an answer.
func (q *quota) heard() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.answers > 0
}

// scale is how many times smaller the limit is than an organization's usual
// one; at least 1. Polls are so many times rarer.
func (q *quota) scale() float64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(float64(defaultLimit)/float64(q.limit), 1)
}

// retryAfter reads the header of that name, which is seconds or a date; 0
// without one.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if text == "" {
		return 0
	}
	var d time.Duration
	if seconds, err := strconv.Atoi(text); err == nil {
		d = time.Duration(min(seconds, int(maxRetryAfter/time.Second))) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}

// A use is what a request is for. It decides who goes first when requests are
// short, the smaller before the greater, and where the request is counted.
type use int

const (
	useCancel use = iota // frees a GPU
	useCreate
	useLookup // of a build whose creation was uncertain
	useArtifacts
	useDownload
	useOther // jobs of a failed build, log tails, queues
	usePoll  // shared by all builds that are waited for
	uses     // how many there are
)

type useKey struct{}

// withUse says what the requests made under ctx are for.
func withUse(ctx context.Context, u use) context.Context {
	return context.WithValue(ctx, useKey{}, u)
}

func useOf(ctx context.Context) use {
	if u, ok := ctx.Value(useKey{}).(use); ok {
		return u
	}
	return useOther
}

// Calls counts requests by what they were for: each page of a list, and each
// repetition, is one.
type Calls struct {
	Total     int // everything sent to the API
	Creates   int
	Lookups   int // of a build whose creation was uncertain
	Polls     int // shared by all builds that are waited for
	Artifacts int // artifact lists
	Downloads int // links to an artifact; the store itself is not the API
	Others    int // cancel, jobs of a failed build, log tails
}

// counters count the requests of one client.
type counters struct{ sent [uses]atomic.Int64 }

// Calls returns what this client has sent so far.
func (c *Client) Calls() Calls {
	n := func(u use) int { return int(c.counters.sent[u].Load()) }
	calls := Calls{
		Creates: n(useCreate), Lookups: n(useLookup), Polls: n(usePoll),
		Artifacts: n(useArtifacts), Downloads: n(useDownload), Others: n(useOther) + n(useCancel),
	}
	calls.Total = calls.Creates + calls.Lookups + calls.Polls + calls.Artifacts + calls.Downloads + calls.Others
	return calls
}

// String lists the requests: "6: 1 create, 3 polls, …".
func (n Calls) String() string {
	return fmt.Sprintf("%d: %d create, %d polls, %d artifact lists, %d downloads, %d other",
		n.Total, n.Creates, n.Polls, n.Artifacts, n.Downloads, n.Total-n.Creates-n.Polls-n.Artifacts-n.Downloads)
}
