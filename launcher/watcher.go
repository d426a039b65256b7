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

// A Watcher asks about all builds that one client waits for.
//
// One build: a get with its jobs. More: one list of this client's open builds
// (100 a page), whose cost does not grow with their number; a build no longer
// in it is over: one more list says how, for all that are gone at once. Every
// jobsRate the list includes jobs, which tell waiting for a machine from
// running on it.
//
// The pause between two polls is 12 % of the time since the youngest run
// entered its phase (waiting, running), 150 ms to 5 s, so a result is seen at
// most 12 % late; when half of the quota is spent, [quota.pollFloor] stretches
// it. Errors double it, up to 30 s.
type Watcher struct {
	c    *Client
	wake chan struct{} // 1 deep: there is a new run

	mu      sync.Mutex
	runs    map[int]*watched // by build number
	looping bool
}

// A watched run is one build in the eyes of the watcher.
type watched struct {
	number int
	queue  string
	added  time.Time
	news   chan news // 1 deep, the latest wins

	// Under Watcher.mu:
	phase    Phase
	since    time.Time // when phase was first seen
	listed   bool      // it has been in a listing
	hold     time.Duration
	absentAt time.Time // absence means nothing before this
}

// news is one look at a run.
type news struct {
	build  *Build // nil with err; with gone, unless a listing says how it ended
	gone   bool   // no longer among the open builds
	err    error  // asking again is useless
	jobs   bool   // build has its jobs
	listed bool   // build comes from the listing
}

func newWatcher(c *Client) *Watcher {
	return &Watcher{c: c, wake: make(chan struct{}, 1), runs: map[int]*watched{}}
}

// add begins to watch a build; remove must follow. The loop runs for as long
// as there are runs.
func (w *Watcher) add(number int, queue string) *watched {
	now := time.Now()
	r := &watched{number: number, queue: queue, added: now, since: now, phase: PhaseQueued,
		news: make(chan news, 1), absentAt: now.Add(firstAbsence)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[number] = r
	if !w.looping {
		w.looping = true
		go w.loop()
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return r
}

func (w *Watcher) remove(r *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.runs, r.number)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// postpone says that a run absent from the listing is not over after all.
func (w *Watcher) postpone(r *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.hold = min(max(2*r.hold, time.Second), maxHold)
	r.absentAt = time.Now().Add(r.hold)
}

// loop polls until no run is left.
func (w *Watcher) loop() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	failures, lastJobs := 0, time.Time{}
	for last := time.Now(); ; last = time.Now() {
		if !w.sleep(last, failures) {
			return
		}
		runs := w.all()
		var err error
		w.c.tally.polls.Add(1)
		switch {
		case len(runs) == 0:
			w.c.tally.polls.Add(-1)
			continue
		case len(runs) == 1:
			err = w.getOne(ctx, runs[0])
		default:
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
		if hopeless(err) {
			for _, r := range runs {
				w.tell(r, news{err: err})
			}
		}
	}
}

// sleep waits until the next poll after last is due; false when there is
// nothing left to poll for. A new run may make it due earlier.
func (w *Watcher) sleep(last time.Time, failures int) bool {
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
func (w *Watcher) interval(failures int) time.Duration {
	d := maxPoll
	for _, r := range w.runs {
		d = min(d, pollPause(time.Since(r.since)))
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

func (w *Watcher) all() []*watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	runs := make([]*watched, 0, len(w.runs))
	for _, r := range w.runs {
		runs = append(runs, r)
	}
	return runs
}

func (w *Watcher) getOne(ctx context.Context, r *watched) error {
	b, err := w.c.build(ctx, r.number)
	if err != nil {
		return err
	}
	w.tell(r, news{build: b, jobs: true})
	return nil
}

func (w *Watcher) listOpen(ctx context.Context, runs []*watched, jobs bool) error {
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
	var absent []*watched
	for _, r := range runs {
		if b := byNumber[r.number]; b != nil {
			w.tell(r, news{build: b, jobs: jobs, listed: true})
		} else if w.absent(r) {
			absent = append(absent, r)
		}
	}
	return w.tellGone(ctx, absent)
}

// finishedMargin covers clocks that differ from Buildkite's, and listings that
// lag behind.
const finishedMargin = 2 * time.Minute

// tellGone asks once how all the runs ended that are no longer open. A run
// that this does not show is looked at by its waiter.
func (w *Watcher) tellGone(ctx context.Context, absent []*watched) error {
	if len(absent) == 0 {
		return nil
	}
	w.c.tally.polls.Add(1)
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
		w.tell(r, news{gone: true, build: byNumber[r.number]})
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

// absent tells whether it means something that r is in no listing.
func (w *Watcher) absent(r *watched) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return r.listed && r.hold == 0 || time.Now().After(r.absentAt)
}

// tell hands n to r's waiter in place of older news.
func (w *Watcher) tell(r *watched, n news) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.build != nil {
		r.listed, r.hold = r.listed || n.listed, 0
		if p := r.phaseIn(n); p != r.phase {
			r.phase, r.since = p, time.Now()
		}
	}
	select {
	case <-r.news:
	default:
	}
	r.news <- n // mu is held by every sender
}

// phaseIn is the phase that n shows: running once the evaluation's job runs.
// Without jobs in n nothing has changed, for a running build may still wait
// for the machine.
func (r *watched) phaseIn(n news) Phase {
	if !n.jobs {
		return r.phase
	}
	if j := n.build.evaluation(r.queue); j != nil && j.StartedAt != nil {
		return PhaseRunning
	}
	return PhaseQueued
}
