package launcher

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	quotaWindow  = 60 * time.Second // Buildkite counts requests in windows of this length
	defaultLimit = 50               // per window, a new organization's user; held until an answer says more
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
	return family{ok: v[1] > 0, remaining: v[0], limit: v[1], reset: time.Duration(max(v[2], 0)) * time.Second}
}

// A quota is a bucket of tokens, 80 % of the smaller limit seen in headers; a
// spent token comes back one window later. So no span of 60 s ever holds more
// than 80 % of what is allowed, wherever the server's windows begin, and a
// single submission may still use a burst.
type quota struct {
	now func() time.Time

	mu    sync.Mutex
	limit int         // requests per window
	spent []time.Time // when each token out of the bucket was taken, oldest first
	free  int         // what the server said is left, smaller family
	until time.Time   // how long free is worth anything
}

func newQuota(now func() time.Time) *quota { return &quota{now: now, limit: defaultLimit} }

// take takes a token, or returns how long to wait before asking again.
func (q *quota) take() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	q.refill(now)
	if q.free <= 0 && now.Before(q.until) { // others spend the same quota
		return q.until.Sub(now)
	}
	if budget := q.budget(); len(q.spent) >= budget {
		return q.spent[len(q.spent)-budget].Add(quotaWindow).Sub(now)
	}
	q.spent = append(q.spent, now)
	return 0
}

// overdraw takes a token whether there is one or not.
func (q *quota) overdraw() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.spent = append(q.spent, q.now())
}

func (q *quota) budget() int { return max(q.limit*4/5, 1) }

func (q *quota) refill(now time.Time) {
	n := 0
	for n < len(q.spent) && !q.spent[n].Add(quotaWindow).After(now) {
		n++
	}
	q.spent = append(q.spent[:0], q.spent[n:]...)
}

// see learns from an answer's headers.
func (q *quota) see(h http.Header) {
	org, user := readFamily(h, orgHeaders), readFamily(h, userHeaders)
	q.mu.Lock()
	defer q.mu.Unlock()
	small := org
	if user.ok && (!org.ok || user.limit < org.limit) {
		small = user
	}
	if !small.ok {
		return
	}
	q.limit = small.limit
	for _, f := range []family{org, user} {
		if f.ok && f.remaining <= small.remaining {
			small = f
		}
	}
	q.free, q.until = small.remaining, q.now().Add(small.reset)
}

// pollFloor is the shortest time between two polls that leaves enough for the
// waiting runs, which need two requests each to fetch their results. While
// more than half of the budget is there it is 0; below that, polls are spread
// over the window.
func (q *quota) pollFloor(runs int) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	q.refill(now)
	budget := q.budget()
	left := budget - len(q.spent)
	if now.Before(q.until) {
		left = min(left, q.free*4/5)
	}
	if left > budget/2 {
		return 0
	}
	left -= min(2*runs, left/2)
	return quotaWindow / time.Duration(max(left, 4))
}
