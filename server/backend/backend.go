// Package backend is what a competition does, whoever asks for it: it takes
// submissions, shows them to those who may see them, cancels and repeats them. The
// HTTP API and the pages both stand on it, so that both keep the same rules: who
// may see what is decided here and nowhere else.
//
// It knows no HTTP and no Buildkite. What runs and what waits it asks a [Queue].
package backend

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/store"
)

// A Viewer is who asks. The zero Viewer is somebody who did not log in.
type Viewer struct {
	ID    string // of the user, decimal digits; "" for nobody, and for an admin by token
	Name  string
	Admin bool
}

// Known reports whether the viewer is a user or an admin.
func (v Viewer) Known() bool { return v.ID != "" || v.Admin }

// ErrForbidden is what a viewer may not do, though they know that it is there.
// What they may not even see is [store.ErrNotFound].
var ErrForbidden = errors.New("not allowed")

// Options are what a backend stands on.
type Options struct {
	Store *store.Store
	Queue Queue
	Fleet pipelines.Table // GPU types that evaluate submissions; empty: any
	Check bool            // submissions wait for the organizers' decision, see [store.Store.Decide]
}

// serves returns an error for a GPU type that evaluates no submissions.
func (b *Backend) serves(gpu string) error {
	if len(b.o.Fleet) == 0 {
		return nil
	}
	_, err := b.o.Fleet.Lookup(gpu)
	if err != nil {
		err = store.NewRefusal(store.UnknownGPU, "%v", err)
	}
	return err
}

// A Backend may be used from many goroutines.
type Backend struct {
	o    Options
	hub  hub
	logs logs
	day  struct {
		sync.Mutex
		read time.Time
		days map[string]*store.Day
	}
}

// New makes a backend. Its pages learn of changes once Run is called.
func New(o Options) *Backend {
	return &Backend{o: o, hub: hub{watchers: map[store.Signal]map[chan struct{}]bool{}, changes: map[string]uint64{}}}
}

// Queue is what runs at Buildkite and what waits for it.
type Queue interface {
	// Wake says that runs were planned.
	Wake()
	// Drop cancels the builds of runs that nobody wants any more. It returns at
	// once; what cannot be cancelled now is tried again.
	Drop(runs []store.PlannedRun)
	// Status lists the GPU types that boards have, in the fleet's order, with those
	// that the fleet does not know last.
	Status(ctx context.Context) ([]GPUStatus, error)
	// Wait says where a submission that has not finished stands; false: nothing of
	// it waits or runs.
	Wait(ctx context.Context, submission int64) (Wait, bool, error)
	// Log returns the log of a run's evaluation, printable lines, its last 4 MiB.
	Log(ctx context.Context, run store.PlannedRun) (string, error)
}

// A Wait says where a submission stands in the line of its GPU type.
type Wait struct {
	GPU      string
	Place    int           // runs that go before its first; 0: none, or it runs
	Running  bool          // at least one of its runs has a build
	Check    bool          // it is in no line yet: it waits for the organizers' decision
	Expected time.Duration // until its first run begins, by how long such runs took lately; 0: unknown, or it runs
}

// A GPUStatus is the line of one GPU type.
type GPUStatus struct {
	GPU   string
	Queue string // Buildkite's; "" for a GPU type that the fleet does not know
	Off   string // why nothing is sent there; "" where something is

	Known                bool // the numbers of machines are
	Agents, Busy, Paused int  // machines connected and not paused, those of them with a job, paused ones

	Waiting, Running int           // runs of this competition
	Typical          time.Duration // what a run took lately, in the middle; 0: unknown
	Runs             []QueuedRun   // those that run, then those that wait in the order in which they go; at most 100
}

// A QueuedRun is one run in a line.
type QueuedRun struct {
	Submission int64
	UserID     string
	Board      string
	Mode       string
	Secret     bool
	Running    bool
	Since      time.Time // it was accepted, or began
}

// A hub tells those who watch something that it has changed.
type hub struct {
	mu       sync.Mutex
	watchers map[store.Signal]map[chan struct{}]bool
	changes  map[string]uint64 // signals by their kind
}

// About returns the organizer's text about the competition, in Markdown; "" for none.
func (b *Backend) About(ctx context.Context) (string, error) { return b.o.Store.About(ctx) }

// Watch returns a channel that gets a value after each change of one thing, several
// at once being one, until stop is called.
func (b *Backend) Watch(signal store.Signal) (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	h := &b.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers[signal] == nil {
		h.watchers[signal] = map[chan struct{}]bool{}
	}
	h.watchers[signal][c] = true
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers[signal], c)
		if len(h.watchers[signal]) == 0 {
			delete(h.watchers, signal)
		}
	}
}

// Changed wakes those who watch what a signal is about. Whoever reads the store's
// signals calls it.
func (b *Backend) Changed(signal store.Signal) {
	h := &b.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes[signal.Kind]++ // before watchers are told and read the store
	for c := range h.watchers[signal] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Changes counts the signals of some kinds. What was made from the store before the
// number rose may be out of date.
func (b *Backend) Changes(kinds ...string) (n uint64) {
	h := &b.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, kind := range kinds {
		n += h.changes[kind]
	}
	return n
}

// Run hands the store's signals to those who watch, until ctx ends; other gets each
// of them first.
func (b *Backend) Run(ctx context.Context, other func(store.Signal)) {
	for signal := range b.o.Store.Signals(ctx) {
		if other != nil {
			other(signal)
		}
		b.Changed(signal)
	}
}
