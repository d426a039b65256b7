// Package pace holds the rules by which requests to Buildkite's REST API are spread
// over its rate limit. It is pure: callers say what time it is, so that the same
// rules serve the launcher and the simulation in server/simulate.
package pace

import "time"

const (
	Window       = 60 * time.Second // Buildkite counts requests in windows of this length
	DefaultLimit = 200              // of an organization, per window; used until an answer says otherwise
	PageSize     = 100              // builds or agents that one request lists

	// The bucket holds burstShare of the limit, and steadyShare of it flows in during
	// each window. Together they stay below the limit wherever the server's windows
	// begin; the rest is for cancellations and clocks.
	burstShare, steadyShare = 0.25, 0.70

	// One request in fairTurn goes to the least important use that waits: a flood of
	// creates must not keep their results from being noticed.
	fairTurn = 8
)

// Steady returns how many requests one process sends per hour at most, with a limit
// per [Window].
func Steady(limit int) int {
	return int(steadyShare * float64(limit) * float64(time.Hour/Window))
}

// A Bucket admits requests at an even pace: it fills with 70 % of the smaller limit
// per window and holds 25 % of it. A few submissions never wait, and a minute never
// starves the next.
//
// Other processes spend the same limit. What they leave is in the headers of every
// answer: once that is less than the pace would spend until the window ends, requests
// are spread over what is left of it. So several processes, on one host or on many,
// share a limit without knowing of each other.
type Bucket struct {
	limit  int       // requests per window
	tokens float64   // in the bucket
	at     time.Time // when tokens was right
	free   int       // what the server said is left, smaller family, less what was sent since
	until  time.Time // how long free is worth anything
	last   time.Time // when the last request was admitted
	flight int       // requests that were sent and not answered
}

// NewBucket returns a full bucket with the [DefaultLimit].
func NewBucket(now time.Time) Bucket {
	return Bucket{limit: DefaultLimit, tokens: burst(DefaultLimit), at: now}
}

// burst is how much a bucket of that limit holds.
func burst(limit int) float64 { return max(burstShare*float64(limit), 1) }

// Limit returns the requests per window.
func (b *Bucket) Limit() int { return b.limit }

// Wait returns how long it takes until the next request may be sent.
func (b *Bucket) Wait(now time.Time) time.Duration {
	b.refill(now)
	var wait time.Duration
	if missing := 1 - b.tokens; missing > 1e-9 {
		wait = time.Duration(missing / b.perSecond() * float64(time.Second))
	}
	left := b.until.Sub(now)
	if left <= 0 {
		return wait
	}
	// What others have under way is in no header yet.
	free := b.free - b.limit/40
	if free <= 0 {
		return max(wait, left)
	}
	if float64(free) < b.perSecond()*left.Seconds() { // others spend it too
		wait = max(wait, b.last.Add(left/time.Duration(free+1)).Sub(now))
	}
	return wait
}

// perSecond is how many requests a second come into the bucket.
func (b *Bucket) perSecond() float64 {
	return steadyShare * float64(b.limit) / Window.Seconds()
}

func (b *Bucket) refill(now time.Time) {
	b.tokens = min(b.tokens+b.perSecond()*now.Sub(b.at).Seconds(), burst(b.limit))
	b.at = now
}

// Spend takes a token, whether there is one or not.
func (b *Bucket) Spend(now time.Time) {
	b.refill(now)
	b.tokens--
	b.free--
	b.flight++
	b.last = now
}

// A Family is one of the two sets of limit headers that every answer carries: the
// organization's and the user's.
type Family struct {
	Known            bool
	Remaining, Limit int           // Remaining is negative when rejected requests went on
	Reset            time.Duration // until the window ends
}

// Answered takes in what the answer to a request that was spent says. Families that
// are not known change nothing.
func (b *Bucket) Answered(now time.Time, org, user Family) {
	b.flight--
	small := org
	if user.Known && (!org.Known || user.Limit < org.Limit) {
		small = user
	}
	if !small.Known {
		return
	}
	if small.Limit != b.limit {
		b.refill(now)
		// A smaller bucket keeps what was spent of the larger one.
		b.tokens += burst(small.Limit) - burst(b.limit)
		b.limit = small.Limit
	}
	for _, f := range []Family{org, user} {
		if f.Known && f.Remaining <= small.Remaining {
			small = f
		}
	}
	// What is still under way may not be counted yet.
	b.free, b.until = small.Remaining-b.flight, now.Add(small.Reset)
}

// Turns decides which use of requests goes next. The zero value is ready.
type Turns struct{ since int }

// Least takes a turn. It reports whether the turn belongs to the least important use
// that waits; otherwise it belongs to the most important one.
func (t *Turns) Least() bool {
	t.since = (t.since + 1) % fairTurn
	return t.since == 0
}

// Polls of a process that waits for several builds. One list of the builds that have
// ended tells of many, and now and then a list of the open ones beside it tells which
// have a machine.
const (
	Overlap     = 30 * time.Second // how far two lists of ended builds overlap: builds may show in another order than they ended
	HintedSweep = time.Minute      // between two questions about a build if events tell when builds end

	leastSpacing = 500 * time.Millisecond
	mostSpacing  = 8 * time.Second
	spacingEach  = 200 * time.Millisecond // for each build

	leastOpen = 5 * time.Second
	mostOpen  = time.Minute
)

// Spacing returns the least time between two polls for so many builds: a result that
// many share the finding of may wait a little.
func Spacing(builds int) time.Duration {
	return min(max(time.Duration(builds)*spacingEach, leastSpacing), mostSpacing)
}

// OpenEvery returns the time between two lists of the open builds.
func OpenEvery(builds int) time.Duration {
	return min(max(time.Duration(builds)*time.Second, leastOpen), mostOpen)
}
