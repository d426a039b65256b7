// Package reconciler makes builds for planned runs and brings their results into
// the store. The truth about a run lies at Buildkite; what the store keeps of it is
// how far somebody was, under a lease. Whoever holds the lease reads the truth and
// goes on from there, so that recovery after a crash is no code of its own: a run
// whose build may have been made is looked up by its id before one is made.
//
// Several reconcilers may work on one database. When one is stopped it leaves its
// builds alone and gives its leases back; only [Reconciler.Drop] cancels.
//
// It knows no HTTP. Payloads appear in none of its errors and log lines.
package reconciler

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/store"
)

// Options say what a reconciler stands on. Zero durations and numbers have the
// values named.
type Options struct {
	Store    *store.Store
	Launcher *launcher.Client
	Fleet    pipelines.Table
	Owner    string // names this process among those on the database

	// Seal returns what seals the payloads of a queue, nil for payloads as they
	// are. Nil: no queue's are sealed.
	Seal func(queue string) (func(runID, encoded string) (string, error), error)

	Branch, Commit string // of the pipeline's repository

	Lease        time.Duration // after which others take the runs of a process that died; 30 s
	Sweep        time.Duration // between two looks for such runs; a third of Lease
	QueueTimeout time.Duration // that a build may wait for a machine; 6 h
	RunTimeout   time.Duration // that it may take on one; 1 h
	Limit        int           // runs worked on at once; [DefaultLimit]

	// Room is how many builds of a GPU type may be under way where the number of
	// its machines is not known; 8. Where it is known, it is somewhat more than
	// they are: what waits in our own line goes in turn, what waits at Buildkite
	// does not.
	Room int

	Log     *slog.Logger
	Observe func(Event) // is told of what happened; must not block
}

const (
	// DefaultLimit is how many runs one process works on at once.
	DefaultLimit = 1000

	// MaxCreating is how many of them may have no build yet. When the rate limit of
	// the REST API holds builds back, runs then wait in the store's queue, where users
	// take turns, and not in the launcher, which knows no turns.
	MaxCreating = 64
)

// An Event is something that happened to a run.
type Event struct {
	Kind      EventKind
	GPU, Mode string
	Secret    bool
	Took      time.Duration // of Recorded: since the run was planned
}

// An EventKind says what happened.
type EventKind string

const (
	Created   EventKind = "created"   // its build is there
	Adopted   EventKind = "adopted"   // the build that an earlier process made
	Recorded  EventKind = "recorded"  // its result is in the store
	Failed    EventKind = "failed"    // it has none
	Postponed EventKind = "postponed" // something is in the way that is no matter of the submission
)

// A Reconciler works on planned runs once [Reconciler.Run] is called.
type Reconciler struct {
	o        Options
	wake     chan struct{} // 1 deep
	machines machines
	line     lineCache

	shortPause, longPause time.Duration // replaced in tests

	dropping sync.WaitGroup

	mu      sync.Mutex
	working map[string]*work // by run id
}

// New makes a reconciler.
func New(o Options) *Reconciler {
	o.Lease = cmp.Or(max(o.Lease, 0), 30*time.Second)
	o.Sweep = cmp.Or(max(o.Sweep, 0), o.Lease/3)
	o.QueueTimeout = cmp.Or(max(o.QueueTimeout, 0), 6*time.Hour)
	o.RunTimeout = cmp.Or(max(o.RunTimeout, 0), time.Hour)
	o.Limit = cmp.Or(max(o.Limit, 0), DefaultLimit)
	o.Room = cmp.Or(max(o.Room, 0), 8)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	if o.Seal == nil {
		o.Seal = func(string) (func(string, string) (string, error), error) { return nil, nil }
	}
	return &Reconciler{o: o, wake: make(chan struct{}, 1), shortPause: shortPause, longPause: longPause, working: map[string]*work{}}
}

// Wake says that runs were planned, or that there is room for more.
func (r *Reconciler) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Hint says that somebody believes the build of a run to be over. Of a run that
// another instance works on, that one is told. It is believed by nobody before
// Buildkite says the same.
func (r *Reconciler) Hint(ctx context.Context, runID string) {
	if r.hint(runID) {
		return
	}
	if err := r.o.Store.Signal(ctx, store.Signal{Kind: store.SignalHint, ID: runID}); err != nil {
		r.o.Log.Warn("passing a hint on", "run", runID, "error", err)
	}
}

// hint reports whether this process works on the run.
func (r *Reconciler) hint(runID string) bool {
	w := r.worker(runID)
	if w == nil {
		return false
	}
	if build := w.build.Load(); build > 0 {
		r.o.Launcher.Hint(int(build))
	}
	return true
}

// worker returns the work on a run, nil if this process does not work on it.
func (r *Reconciler) worker(runID string) *work {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.working[runID]
}

// Signal takes a signal of the store in: whoever reads those calls it.
func (r *Reconciler) Signal(s store.Signal) {
	switch s.Kind {
	case store.SignalPlanned:
		r.line.forget()
		r.Wake()
	case store.SignalHint:
		r.hint(s.ID)
	case store.SignalSubmission:
		r.line.forget()
	}
}

// leaveTime is how long those who work on runs have to give their leases back.
const leaveTime = 10 * time.Second

// Run works until ctx ends. Then it gives its leases back and returns; the builds
// go on.
func (r *Reconciler) Run(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	tick := time.NewTicker(r.o.Sweep)
	defer tick.Stop()
	clock := time.NewTicker(clockCheck)
	defer clock.Stop()
	for ctx.Err() == nil {
		for r.take(ctx, &working) {
		}
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-tick.C:
		case <-clock.C:
			r.checkClock(ctx)
		}
	}
}

// clockCheck is how often to look for runs whose times lie in the future because the
// clock was set back.
const clockCheck = time.Minute

func (r *Reconciler) checkClock(ctx context.Context) {
	n, err := r.o.Store.FreeAfterClockJump(ctx, 10*max(r.o.Lease, longPause))
	if n > 0 {
		r.o.Log.Warn("the clock was set back: freed the runs that could not be claimed", "runs", n)
	}
	if err != nil && ctx.Err() == nil {
		r.o.Log.Warn("looking for runs that cannot be claimed", "error", err)
	}
}

// claimSize is how many runs are claimed in one transaction.
const claimSize = 32

// take claims runs and begins to work on them. It reports whether there may be
// more to claim.
func (r *Reconciler) take(ctx context.Context, working *sync.WaitGroup) bool {
	r.mu.Lock()
	free := min(r.o.Limit-len(r.working), MaxCreating-r.creating(), claimSize)
	r.mu.Unlock()
	if free <= 0 || ctx.Err() != nil {
		return false
	}
	claimed, err := r.o.Store.Claim(ctx, r.o.Owner, free, r.room(ctx), r.o.Lease)
	if err != nil {
		if ctx.Err() == nil {
			r.o.Log.Error("claiming runs", "error", err)
		}
		return false
	}
	for _, p := range claimed {
		w := &work{r: r, p: p}
		w.build.Store(p.BuildNumber)
		r.mu.Lock()
		r.working[p.RunID] = w
		r.mu.Unlock()
		working.Go(func() {
			defer func() {
				r.mu.Lock()
				if r.working[p.RunID] == w { // it may have been claimed here anew
					delete(r.working, p.RunID)
				}
				r.mu.Unlock()
				r.Wake()
			}()
			w.do(ctx)
		})
	}
	return len(claimed) == free
}

// creating counts the runs that have no build yet. r.mu is held.
func (r *Reconciler) creating() (n int) {
	for _, w := range r.working {
		if w.build.Load() == 0 {
			n++
		}
	}
	return n
}

// Working is how many runs this process works on.
func (r *Reconciler) Working() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.working)
}
