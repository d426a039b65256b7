// Package notice posts what happens in the stand-in's engine to a URL, as
// Buildkite's notification services do: one attempt per event, signed, in no
// guaranteed order. Tests may have events doubled, delayed or
// lost.
//
// Source: Buildkite's webhook reference (buildkite/docs,
// pages/apis/webhooks/pipelines).
package notice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
)

// Options configure a [Sender]. Zero fields take the defaults named.
type Options struct {
	URL   string // where to, http or https; required
	Token string // the key of X-Buildkite-Signature; required

	// Events to send, "build.finished"; nil: all that webhooks have.
	Events []string

	// BaseURL is the origin that URLs in bodies begin with,
	// "http://127.0.0.1:7777".
	BaseURL string

	// Plan says what becomes of an event; nil: one delivery, at once. It is
	// called from one goroutine, in the order of events.
	Plan func(event string) Plan

	Timeout time.Duration // of one delivery, 10 seconds
	Workers int           // deliveries at a time, 4; with 1 the order is kept
	Backlog int           // deliveries that wait at most, 1000; more are dropped

	Client *http.Client     // its Timeout is not used; it must not follow redirects
	Now    func() time.Time // of the signature, time.Now
	Logger *slog.Logger     // may be nil
}

// A Plan is what a test does to the delivery of one event.
type Plan struct {
	Lose   bool
	Copies int           // deliveries beyond the first
	Delay  time.Duration // before the first delivery
}

// Stats count deliveries.
type Stats struct {
	Sent    int // answered with 2xx
	Failed  int // answered otherwise, or not at all
	Dropped int // not tried: lost by plan, over the backlog, or too late at the end
}

// A Sender delivers events until it is closed.
type Sender struct {
	engine *engine.Engine
	opts   Options
	sub    *engine.Subscription

	stopReading context.CancelFunc // the subscription is read to its end, then left
	stopSending context.CancelFunc // what is not sent by now is dropped
	sending     context.Context
	pending     chan delivery
	workers     sync.WaitGroup
	done        chan struct{} // closed when all goroutines have ended

	mu    sync.Mutex
	stats Stats
}

// A delivery is one request to make.
type delivery struct {
	event string
	body  []byte
	due   time.Time
}

// Start subscribes to the engine and begins to deliver. Close the sender
// before the engine.
//
// It runs 1 + Workers goroutines; they end with [Sender.Close].
func Start(e *engine.Engine, opts Options) (*Sender, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	s := &Sender{engine: e, opts: opts, sub: e.Subscribe(), pending: make(chan delivery, opts.Backlog), done: make(chan struct{})}
	reading, stopReading := context.WithCancel(context.Background())
	s.stopReading = stopReading
	s.sending, s.stopSending = context.WithCancel(context.Background())
	for range opts.Workers {
		s.workers.Go(s.deliverAll)
	}
	go func() {
		defer close(s.done)
		s.read(reading)
		close(s.pending)
		s.workers.Wait()
	}()
	return s, nil
}

// complete checks the options and fills in defaults.
func (o *Options) complete() error {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("webhook: the URL is not one of http or https") // it may hold a secret: not quoted
	case o.Token == "":
		return errors.New("webhook: there is no token")
	case o.Timeout < 0 || o.Workers < 0 || o.Backlog < 0:
		return fmt.Errorf("webhook: got timeout %v, %d workers, backlog %d, want none below 0", o.Timeout, o.Workers, o.Backlog)
	}
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.Workers = cmp.Or(o.Workers, 4)
	o.Backlog = cmp.Or(o.Backlog, 1000)
	o.Client = cmp.Or(o.Client, &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }})
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Plan == nil {
		o.Plan = func(string) Plan { return Plan{} }
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return nil
}

// read turns events into deliveries until ctx is done and the subscription is
// empty. It never waits for a receiver.
func (s *Sender) read(ctx context.Context) {
	defer s.sub.Close()
	for {
		ev, err := s.sub.Next(ctx)
		if err != nil {
			return
		}
		if strings.HasPrefix(ev.Name, "kblocal.") || s.opts.Events != nil && !slices.Contains(s.opts.Events, ev.Name) {
			continue
		}
		plan := s.opts.Plan(ev.Name)
		if plan.Lose {
			s.count(func(st *Stats) { st.Dropped++ })
			continue
		}
		body, err := s.body(ev)
		if err != nil {
			s.opts.Logger.Error("webhook: encoding an event", "event", ev.Name, "err", err)
			continue
		}
		d := delivery{event: ev.Name, body: body}
		if plan.Delay > 0 {
			d.due = time.Now().Add(plan.Delay)
		}
		for range 1 + plan.Copies {
			select {
			case s.pending <- d:
			default:
				s.count(func(st *Stats) { st.Dropped++ })
				s.opts.Logger.Warn("webhook: the backlog is full, an event is dropped", "event", ev.Name)
			}
		}
	}
}

func (s *Sender) count(change func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stats)
}

// Stats returns the counts so far.
func (s *Sender) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Close takes the events so far and delivers them until ctx is done, then
// drops the rest. It returns ctx's error when something may have been dropped
// for that. Every goroutine has ended when it returns.
func (s *Sender) Close(ctx context.Context) error {
	s.stopReading()
	var err error
	select {
	case <-s.done:
	case <-ctx.Done():
		err = ctx.Err()
		s.stopSending()
		<-s.done
	}
	s.stopSending()
	return err
}
