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

	"github.com/gpu-mode/kbgen/launcher/pace"
)

// The two header families every answer carries. Resets are seconds from now.
var (
	orgHeaders  = [3]string{"RateLimit-Remaining", "RateLimit-Limit", "RateLimit-Reset"}
	userHeaders = [3]string{"RateLimit-User-Remaining", "RateLimit-User-Limit", "RateLimit-User-Reset"}
)

func readFamily(h http.Header, names [3]string) pace.Family {
	var v [3]int
	for i, name := range names {
		n, err := strconv.Atoi(h.Get(name))
		if err != nil {
			return pace.Family{}
		}
		v[i] = n
	}
	return pace.Family{Known: v[1] > 0, Remaining: v[0], Limit: v[1], Reset: time.Duration(min(max(v[2], 0), maxReset)) * time.Second}
}

// maxReset bounds what a header may make us wait, in seconds: two windows.
const maxReset = 120

// A quota admits requests by the rules of [pace].
type quota struct {
	now func() time.Time

	mu      sync.Mutex
	bucket  pace.Bucket
	turns   pace.Turns
	answers int         // that there were
	waiting []*ticket   // in order of arrival
	alarm   *time.Timer // of the next admission; nil: none is due
}

func newQuota(now func() time.Time) *quota {
	return &quota{now: now, bucket: pace.NewBucket(now())}
}

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
		q.bucket.Spend(q.now())
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
		if wait := q.bucket.Wait(now); wait > 0 {
			q.alarm = time.AfterFunc(wait, func() {
				q.mu.Lock()
				defer q.mu.Unlock()
				q.serve()
			})
			return
		}
		next := slices.MinFunc(q.waiting, byUse) // of equal ones the first
		if q.turns.Least() {
			next = slices.MaxFunc(q.waiting, byUse)
		}
		q.remove(next)
		q.bucket.Spend(now)
		close(next.allowed)
	}
}

// answered learns from an answer's headers; nil: there was no answer.
func (q *quota) answered(h http.Header) {
	org, user := readFamily(h, orgHeaders), readFamily(h, userHeaders)
	q.mu.Lock()
	defer q.mu.Unlock()
	if h != nil {
		q.answers++
	}
	q.bucket.Answered(q.now(), org, user)
	if org.Known || user.Known {
		q.serve()
	}
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
	return max(float64(pace.DefaultLimit)/float64(q.bucket.Limit()), 1)
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
