package backend

import (
	"context"
	"sync"

	"github.com/gpu-mode/kbgen/store"
)

// A hub tells those who watch something that it has changed.
type hub struct {
	mu       sync.Mutex
	watchers map[store.Signal]map[chan struct{}]bool
}

// Watch returns a channel that gets a value after each change of one thing, several
// at once being one, until stop is called.
func (b *Backend) Watch(signal store.Signal) (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	h := &b.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers == nil {
		h.watchers = map[store.Signal]map[chan struct{}]bool{}
	}
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
	for c := range h.watchers[signal] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
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
