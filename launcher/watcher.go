package launcher

import (
	"context"
	"sync"
	"time"
)

// A watcher asks about all builds that one client waits for.
//
// One build: a get with its jobs, when its end is to be expected. More: one list
// of this client's builds that have ended (100 a page), whose cost does not grow
// with the number of those that have not, and which brings their results along.
// Now and then a list of the open ones beside it tells waiting for a machine
// from running on it, and finds builds that are in neither. Builds whose results
// are being fetched are not asked about.
//
// A poll is due when the first of the builds is, see [estimates.next], and not
// before the pause that [watcher.spacing] names has passed since the last. Where
// hints say when builds end, see [Client.Hint], polls wait for them.
type watcher struct {
	c    *Client
	wake chan struct{} // 1 deep: the runs, or what they need, have changed

	mu       sync.Mutex
	runs     map[*run]bool
	stop     context.CancelFunc
	recalled map[kind]bool // older builds of that kind were asked for
	ended    time.Time     // when the newest ended build seen ended, by Buildkite's clock
	opened   time.Time     // when the open builds were listed last, here
	hints    hints
}

// A run is one build in the eyes of the watcher.
type run struct {
	number  int
	kind    kind
	gpu     string
	life    *lifecycle
	updates chan update // 1 deep, the latest wins

	// Under watcher.mu:
	created  time.Time     // here
	made     time.Time     // by Buildkite's clock; zero: unknown
	asked    time.Duration // age when it was asked about last
	started  time.Duration // age at which its evaluation started; below 0: not seen
	covered  bool          // a list of ended builds would have shown it since it was made
	hold     time.Duration
	hintedAt time.Time // when a hint wants it asked about; zero: none does
	absentAt time.Time // absence from listings means nothing before this
}

const (
	firstAbsence = 5 * time.Second // a build may take this long to show in listings
	maxHold      = 30 * time.Second
)

func newWatcher(c *Client) *watcher {
	return &watcher{c: c, wake: make(chan struct{}, 1), runs: map[*run]bool{}, recalled: map[kind]bool{}}
}

// rouse makes the loop work out anew when to poll.
func (w *watcher) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// polled returns the runs that have to be asked about.
func (w *watcher) polled() []*run {
	w.mu.Lock()
	defer w.mu.Unlock()
	runs := make([]*run, 0, len(w.runs))
	for r := range w.runs {
		if r.life.polled() {
			runs = append(runs, r)
		}
	}
	return runs
}

// deliver moves r's lifecycle on and hands u to its waiter, in place of an
// older update.
func (w *watcher) deliver(r *run, u update) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if u.build != nil && u.build.Over() {
		w.c.known.add(r.kind, u.build)
		w.hints.ended(r.number, !r.hintedAt.IsZero())
	}
	if u.build != nil {
		r.hold, r.made = 0, moment(u.build.CreatedAt)
		if u.jobs {
			r.started = -1
			if j := u.build.Evaluation(r.kind.queue); j != nil && j.StartedAt != nil && !r.made.IsZero() {
				r.started = max(j.StartedAt.Sub(r.made), 0)
			}
		}
	}
	if u.err == nil {
		u.then = r.life.observe(&u)
	}
	select {
	case <-r.updates:
	default:
	}
	r.updates <- u // mu is held by every sender
}

// Hint says that somebody, such as a webhook, believes a build to be over. It is
// asked about as soon as polls may come, and by nothing else is a hint believed: a
// false one costs a request. A build that nobody collects here is no matter.
//
// Where hints came for the builds that ended lately, polls wait for them, and a
// build without a hint is asked about each minute.
func (c *Client) Hint(number int) {
	w := c.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hints.came(number)
	now := time.Now()
	for r := range w.runs {
		if r.number != number || !r.hintedAt.IsZero() {
			continue
		}
		r.hintedAt = now
		if soonest := r.created.Add(r.asked + hintPause); r.asked > 0 && soonest.After(now) {
			r.hintedAt = soonest // one after the other
		}
		w.rouse()
	}
}
