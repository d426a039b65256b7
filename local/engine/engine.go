package engine

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Options configure an [Engine]. Zero fields take the defaults named.
type Options struct {
	Dir          string // for logs and artifacts; required
	Organization string // slug, "gpu-mode"
	URL          string // of the page, for BUILDKITE_BUILD_URL; no slash at the end

	Now         func() time.Time // time.Now
	Minute      time.Duration    // what timeout_in_minutes counts in, time.Minute; tests shorten it
	LostAfter   time.Duration    // an agent is lost after this silence, 3 minutes
	AcceptAfter time.Duration    // an offered job is offered again when it was not accepted for so long, 2 seconds
}

// An Engine is the backend. Make it with [New], end it with [Engine.Close].
type Engine struct {
	opts Options

	mu        sync.Mutex
	pipelines map[string]*pipeline
	builds    []*build // in creation order
	byID      map[string]*build
	jobs      map[string]*job
	tokens    map[string]*job // by job token
	agents    map[string]*agent
	sessions  map[string]*agent // by session token
	queues    map[string]*Queue
	artifacts map[string]*Artifact
	order     []*Artifact // in creation order
	groups    map[string]*concurrencyGroup
	ready     []*job // scheduled and limited jobs, unordered
	subs      map[*Subscription]struct{}
	seq       int
	ended     []*build // that a trigger step waits for, see settleTriggers

	stop    chan struct{}
	stopped chan struct{}
}

// New starts an engine and its clock.
func New(opts Options) (*Engine, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	opts.Organization = cmp.Or(opts.Organization, "gpu-mode")
	opts.Minute = cmp.Or(opts.Minute, time.Minute)
	opts.LostAfter = cmp.Or(opts.LostAfter, 3*time.Minute)
	opts.AcceptAfter = cmp.Or(opts.AcceptAfter, 2*time.Second)
	for _, dir := range []string{"logs", "artifacts"} {
		if err := os.MkdirAll(filepath.Join(opts.Dir, dir), 0o700); err != nil {
			return nil, err
		}
	}
	e := &Engine{
		opts:      opts,
		pipelines: map[string]*pipeline{},
		byID:      map[string]*build{},
		jobs:      map[string]*job{},
		tokens:    map[string]*job{},
		agents:    map[string]*agent{},
		sessions:  map[string]*agent{},
		queues:    map[string]*Queue{},
		artifacts: map[string]*Artifact{},
		groups:    map[string]*concurrencyGroup{},
		subs:      map[*Subscription]struct{}{},
		stop:      make(chan struct{}),
		stopped:   make(chan struct{}),
	}
	e.queue("default")
	go e.clock()
	return e, nil
}

// Close stops the clock. Nothing is deleted.
func (e *Engine) Close() error {
	close(e.stop)
	<-e.stopped
	return nil
}

// Organization is the slug of the only organization.
func (e *Engine) Organization() string { return e.opts.Organization }

// Now is the engine's time, which tests may set.
func (e *Engine) Now() time.Time { return e.now() }

// now is the time in UTC, cut to microseconds, which is what PostgreSQL and most clients keep.
func (e *Engine) now() time.Time { return e.opts.Now().UTC().Truncate(time.Microsecond) }

func newID() string { return uuid.NewString() }

func cloneMap(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return maps.Clone(m)
}

// change acts on what find finds for a key, with the lock held.
func change[T any](e *Engine, find func(key string) (T, error), key string, act func(T) error) error {
	_, err := query(e, find, key, func(found T) (struct{}, error) { return struct{}{}, act(found) })
	return err
}

// query answers a question about what find finds for a key, with the lock held.
func query[T, R any](e *Engine, find func(key string) (T, error), key string, ask func(T) (R, error)) (R, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	found, err := find(key)
	if err != nil {
		return *new(R), err
	}
	return ask(found)
}

// lookUp is the value of a key, or the refusal of one that there is not.
func lookUp[T any](all map[string]*T, key, refusal string) (*T, error) {
	found, ok := all[key]
	if !ok {
		return nil, Refuse(NotFound, "%s", refusal)
	}
	return found, nil
}
