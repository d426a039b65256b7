package launcher

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
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
// before the pause that [watcher.spacing] names has passed since the last.
type watcher struct {
	c    *Client
	wake chan struct{} // 1 deep: the runs, or what they need, have changed

	mu       sync.Mutex
	runs     map[*run]bool
	stop     context.CancelFunc
	recalled map[kind]bool // older builds of that kind were asked for
	ended    time.Time     // when the newest ended build seen ended, by Buildkite's clock
	opened   time.Time     // when the open builds were listed last, here
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
	hold     time.Duration
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
		err := w.c.persist(ctx, "polling", func() error { return w.poll(ctx) })
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
		due, any := w.due(last)
		var alarm <-chan time.Time
		if any {
			t := time.NewTimer(time.Until(due))
			defer t.Stop()
			alarm = t.C
		}
		select {
		case <-ctx.Done():
			return false
		case <-alarm:
			return ctx.Err() == nil
		case <-w.wake:
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
		at := r.created.Add(w.c.known.next(r.kind, r.asked, r.started))
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

// poll asks once.
func (w *watcher) poll(ctx context.Context) error {
	runs := w.polled()
	var err error
	switch {
	case len(runs) == 0:
		return nil
	case len(runs) == 1:
		err = w.one(ctx, runs[0])
	default:
		err = w.many(ctx, runs)
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range runs {
		r.asked = time.Since(r.created)
	}
	return nil
}

// one asks about a lone run. The first time, the newest builds of its GPU type
// are listed, it among them: they show when to ask again.
func (w *watcher) one(ctx context.Context, r *run) error {
	w.mu.Lock()
	recall := !w.recalled[r.kind] && !w.c.known.have(r.kind) && r.gpu != ""
	w.recalled[r.kind] = true
	w.mu.Unlock()
	if recall {
		if err := w.recall(ctx, r); !permanent(err) { // a refusal is no matter: it was a wish
			return err
		}
	}
	b, err := w.c.get(ctx, r.number)
	if status(err) == http.StatusNotFound && time.Since(r.created) < w.c.delay {
		return nil // it was not there a moment ago, either
	}
	if err != nil {
		return err
	}
	w.deliver(r, update{build: b, jobs: true})
	return nil
}

// recalledBuilds is how many builds are listed to see how long they take: each
// repeats its payload.
const recalledBuilds = 5

func (w *watcher) recall(ctx context.Context, r *run) error {
	builds, _, err := page[Build](ctx, w.c, w.c.path+"/builds", url.Values{
		"meta_data[gpu]": {r.gpu}, "exclude_pipeline": {"true"}, "per_page": {strconv.Itoa(recalledBuilds)},
	})
	if err != nil {
		return err
	}
	for i := range builds {
		b := &builds[i]
		if b.Number == r.number {
			w.deliver(r, update{build: b, jobs: true})
		} else if b.MetaData["mode"] == r.kind.mode && b.MetaData["queue"] == r.kind.queue {
			w.c.known.add(r.kind, b)
		}
	}
	return nil
}

// many asks about several runs at once.
func (w *watcher) many(ctx context.Context, runs []*run) error {
	w.mu.Lock()
	every := min(max(time.Duration(len(runs))*time.Second, leastOpen), mostOpen)
	open := time.Since(w.opened) >= time.Duration(float64(every)*w.c.quota.scale())
	w.mu.Unlock()
	seen := map[int]bool{}
	if open {
		// First the open ones: what ends meanwhile is among the ended.
		err := w.list(ctx, seen, true, url.Values{"state[]": openStates})
		if err != nil {
			return err
		}
	}
	q := url.Values{"state[]": terminalStates, "exclude_jobs": {"true"}}
	if from := w.from(runs); !from.IsZero() {
		q.Set("finished_from", from.UTC().Format(time.RFC3339))
	}
	if err := w.list(ctx, seen, false, q); err != nil {
		return err
	}
	if !open {
		return nil
	}
	now := time.Now()
	w.mu.Lock()
	w.opened = now
	w.mu.Unlock()
	for _, r := range runs {
		if !seen[r.number] && w.absent(r, now) {
			w.deliver(r, update{left: true})
		}
	}
	return nil
}

// list delivers this client's builds that q matches.
func (w *watcher) list(ctx context.Context, seen map[int]bool, jobs bool, q url.Values) error {
	q.Set("meta_data[launcher]", w.c.id)
	q.Set("exclude_pipeline", "true")
	builds, err := w.c.list(ctx, q)
	if err != nil {
		return err
	}
	byNumber := map[int]*Build{}
	w.mu.Lock()
	for i := range builds {
		b := &builds[i]
		byNumber[b.Number], seen[b.Number] = b, true
		if end := moment(b.FinishedAt); end.After(w.ended) {
			w.ended = end
		}
	}
	w.mu.Unlock()
	for _, r := range w.polled() {
		if b := byNumber[r.number]; b != nil {
			w.deliver(r, update{build: b, jobs: jobs})
		}
	}
	return nil
}

// overlap is how far two lists of ended builds overlap: builds may show in
// listings in another order than they ended.
const overlap = 30 * time.Second

// from is the time before which no ended build is of interest: the last one
// seen, or the first of the runs was made later. Both are times of Buildkite's
// clock; zero: unknown.
func (w *watcher) from(runs []*run) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	var first time.Time
	for i, r := range runs {
		if r.made.IsZero() {
			return time.Time{}
		}
		if i == 0 || r.made.Before(first) {
			first = r.made
		}
	}
	if last := w.ended.Add(-overlap); last.After(first) {
		return last
	}
	return first.Add(-time.Second)
}

// absent reports whether it means something that r is in no listing.
func (w *watcher) absent(r *run, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return now.After(r.absentAt)
}

// deliver moves r's lifecycle on and hands u to its waiter, in place of an
// older update.
func (w *watcher) deliver(r *run, u update) {
	if u.build != nil && u.build.Over() {
		w.c.known.add(r.kind, u.build)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
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
