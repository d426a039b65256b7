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

	leastSpacing = 500 * time.Millisecond
	mostSpacing  = 8 * time.Second
	perRun       = 200 * time.Millisecond // of spacing

	leastOpen = 5 * time.Second // between two lists of the open builds
	mostOpen  = time.Minute
)

func newWatcher(c *Client) *watcher {
	return &watcher{c: c, wake: make(chan struct{}, 1), runs: map[*run]bool{}, recalled: map[kind]bool{}}
}

// add begins to watch a build; remove must follow. The loop runs for as long
// as there are runs.
func (w *watcher) add(r *Run, b *Build, life *lifecycle) *run {
	now := time.Now()
	one := &run{
		number: b.Number, kind: kind{r.Queue, r.Mode}, gpu: r.GPU, life: life, updates: make(chan update, 1),
		created: r.Created, made: moment(b.CreatedAt), started: -1, absentAt: now.Add(firstAbsence),
	}
	if one.created.IsZero() || one.created.After(now) {
		one.created = now
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.runs) == 0 {
		var ctx context.Context
		ctx, w.stop = context.WithCancel(context.Background())
		w.ended, w.opened = time.Time{}, now
		go w.loop(withUse(ctx, usePoll))
	}
	w.runs[one] = true
	w.rouse()
	return one
}

func (w *watcher) remove(r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.runs, r)
	if len(w.runs) == 0 && w.stop != nil {
		w.stop()
		w.stop = nil
	}
	w.rouse()
}

// postpone says that a run absent from the listings is not over after all.
func (w *watcher) postpone(r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.hold = min(max(2*r.hold, time.Second), maxHold)
	r.absentAt = time.Now().Add(r.hold)
	w.rouse()
}

// rouse makes the loop work out anew when to poll.
func (w *watcher) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// loop polls until its ctx ends, which is when no run is left.
func (w *watcher) loop(ctx context.Context) {
	for last := (time.Time{}); w.sleep(ctx, last); last = time.Now() {
		err := w.c.insist(ctx, "polling", func() error { return w.poll(ctx) })
		if err != nil && ctx.Err() == nil {
			for _, r := range w.polled() {
				w.deliver(r, update{err: err})
			}
		}
	}
}

// sleep waits until the next poll after last is due, which a new run may make
// earlier; false when ctx has ended.
func (w *watcher) sleep(ctx context.Context, last time.Time) bool {
	for {
		wait := time.Hour // until something changes
		if due, any := w.due(last); any {
			wait = time.Until(due)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return false
		case <-t.C:
			return ctx.Err() == nil
		case <-w.wake:
			t.Stop()
		}
	}
}

// due is when the next poll is; false when nothing has to be asked about.
func (w *watcher) due(last time.Time) (time.Time, bool) {
	runs := w.polled()
	w.mu.Lock()
	defer w.mu.Unlock()
	var due time.Time
	for i, r := range runs {
		at := w.hints.due(r, r.created.Add(w.c.known.next(r.kind, r.asked, r.started)))
		if i == 0 || at.Before(due) {
			due = at
		}
	}
	if soonest := last.Add(w.spacing(len(runs))); due.Before(soonest) {
		due = soonest
	}
	return due, len(runs) > 0
}

// spacing is the least time between two polls: a result that many share the
// finding of may wait a little. It grows where the limit is small.
func (w *watcher) spacing(runs int) time.Duration {
	d := min(max(time.Duration(runs)*perRun, leastSpacing), mostSpacing)
	return time.Duration(float64(d) * w.c.quota.scale())
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
			if j := u.build.evaluation(r.kind.queue); j != nil && j.StartedAt != nil && !r.made.IsZero() {
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
