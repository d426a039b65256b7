package launcher

import (
	"context"
	"net/url"
	"sync"
	"time"
)

const (
	minPoll  = 150 * time.Millisecond
	maxPoll  = 5 * time.Second
	pollRate = 0.12 // of the age of the youngest phase
	jobsRate = 5 * time.Second

	firstAbsence = time.Second // a build may take this long to show in listings
	maxHold      = 30 * time.Second
)

// A watcher asks about all builds that one client waits for.
//
// One build: a get with its jobs. More: one list of this client's open builds
// (100 a page), whose cost does not grow with their number; a build no longer
// in it is over: one more list says how, for all that have left at once. Every
// jobsRate the list includes jobs, which tell waiting for a machine from
// running on it. Builds whose results are being fetched are not asked about.
//
// The pause between two polls is 12 % of the time since the youngest run
// entered its phase (waiting, running), 150 ms to 5 s, so a result is seen at
// most 12 % late; when half of the quota is spent, [quota.pollFloor] stretches
// it. Errors double it, up to 30 s.
type watcher struct {
	c    *Client
	wake chan struct{} // 1 deep: the runs, or what they need, have changed

	mu      sync.Mutex
	runs    map[int]*run // by build number
	looping bool
}

// A run is one build in the eyes of the watcher.
type run struct {
	number  int
	life    *lifecycle
	updates chan update // 1 deep, the latest wins

	// Under watcher.mu:
	listed   bool // it has been in a listing
	hold     time.Duration
	absentAt time.Time // absence means nothing before this
}

func newWatcher(c *Client) *watcher {
	return &watcher{c: c, wake: make(chan struct{}, 1), runs: map[int]*run{}}
}

// add begins to watch a build; remove must follow. The loop runs for as long
// as there are runs.
func (w *watcher) add(number int, life *lifecycle) *run {
	r := &run{number: number, life: life, updates: make(chan update, 1), absentAt: time.Now().Add(firstAbsence)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[number] = r
	if !w.looping {
		w.looping = true
		go w.loop()
	}
	w.rouse()
	return r
}

func (w *watcher) remove(r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.runs, r.number)
	w.rouse()
}

// postpone says that a run absent from the listing is not over after all.
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

// loop polls until no run is left.
func (w *watcher) loop() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	failures, lastJobs := 0, time.Time{}
	for last := time.Now(); ; last = time.Now() {
		if !w.sleep(last, failures) {
			return
		}
		runs := w.polled()
		if len(runs) == 0 {
			continue
		}
		w.c.counters.polls.Add(1)
		var err error
		if len(runs) == 1 {
			err = w.getOne(ctx, runs[0])
		} else {
			jobs := time.Since(lastJobs) >= jobsRate
			if err = w.listOpen(ctx, runs, jobs); err == nil && jobs {
				lastJobs = time.Now()
			}
		}
		if err == nil {
			failures = 0
			continue
		}
		failures++
		w.c.log.Warn("polling", "error", err, "in a row", failures)
		if permanent(err) {
			for _, r := range runs {
				w.deliver(r, update{err: err})
			}
		}
	}
}

// sleep waits until the next poll after last is due; false when there is
// nothing left to poll for. A new run may make it due earlier.
func (w *watcher) sleep(last time.Time, failures int) bool {
	for {
		w.mu.Lock()
		if len(w.runs) == 0 {
			w.looping = false
			w.mu.Unlock()
			return false
		}
		d := w.interval(failures)
		w.mu.Unlock()
		t := time.NewTimer(time.Until(last.Add(d)))
		select {
		case <-t.C:
			return true
		case <-w.wake:
			t.Stop()
		}
	}
}

// interval is the pause between two polls. w.mu is held.
func (w *watcher) interval(failures int) time.Duration {
	d := maxPoll
	for _, r := range w.runs {
		if r.life.polled() {
			_, since := r.life.current()
			d = min(d, pollPause(time.Since(since)))
		}
	}
	d = max(d, w.c.quota.pollFloor(len(w.runs)))
	if failures > 0 {
		d = max(d, min(time.Second/2<<min(failures, 6), 30*time.Second))
	}
	return d
}

// pollPause is the pause for a run that is in its phase for that long.
func pollPause(age time.Duration) time.Duration {
	return min(max(time.Duration(float64(age)*pollRate), minPoll), maxPoll)
}

// polled returns the runs that have to be asked about.
func (w *watcher) polled() []*run {
	w.mu.Lock()
	defer w.mu.Unlock()
	runs := make([]*run, 0, len(w.runs))
	for _, r := range w.runs {
		if r.life.polled() {
			runs = append(runs, r)
		}
	}
	return runs
}

func (w *watcher) getOne(ctx context.Context, r *run) error {
	b, err := w.c.build(ctx, r.number)
	if err != nil {
		return err
	}
	w.deliver(r, update{build: b, jobs: true})
	return nil
}

func (w *watcher) listOpen(ctx context.Context, runs []*run, jobs bool) error {
	q := url.Values{
		"state[]":             openStates,
		"meta_data[launcher]": {w.c.id},
		"exclude_pipeline":    {"true"},
	}
	if !jobs {
		q.Set("exclude_jobs", "true")
	}
	open, err := w.c.list(ctx, q)
	if err != nil {
		return err
	}
	byNumber := index(open)
	var absent []*run
	for _, r := range runs {
		if b := byNumber[r.number]; b != nil {
			w.deliver(r, update{build: b, jobs: jobs, listed: true})
		} else if w.absent(r) {
			absent = append(absent, r)
		}
	}
	return w.deliverLeft(ctx, absent)
}

// finishedMargin covers clocks that differ from Buildkite's, and listings that
// lag behind.
const finishedMargin = 2 * time.Minute

// deliverLeft asks once how all the runs ended that are no longer open. A run
// that this does not show is asked for by its waiter.
func (w *watcher) deliverLeft(ctx context.Context, absent []*run) error {
	if len(absent) == 0 {
		return nil
	}
	w.c.counters.polls.Add(1)
	ended, err := w.c.list(ctx, url.Values{
		"state[]":             terminalStates,
		"meta_data[launcher]": {w.c.id},
		"finished_from":       {time.Now().Add(-finishedMargin).UTC().Format(time.RFC3339)},
		"exclude_pipeline":    {"true"},
		"exclude_jobs":        {"true"},
	})
	if err != nil {
		return err
	}
	byNumber := index(ended)
	for _, r := range absent {
		w.deliver(r, update{left: true, build: byNumber[r.number]})
	}
	return nil
}

func index(builds []Build) map[int]*Build {
	out := make(map[int]*Build, len(builds))
	for i := range builds {
		out[builds[i].Number] = &builds[i]
	}
	return out
}

// absent reports whether it means something that r is in no listing.
func (w *watcher) absent(r *run) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return r.listed && r.hold == 0 || time.Now().After(r.absentAt)
}

// deliver moves r's lifecycle on and hands u to its waiter, in place of an
// older update.
func (w *watcher) deliver(r *run, u update) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if u.build != nil {
		r.listed, r.hold = r.listed || u.listed, 0
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
