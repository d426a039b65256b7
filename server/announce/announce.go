// Package announce tells a chat when the first three of a board change. It knows
// boards by their names and rankings by what the store says has changed; who may
// see a board is the store's to know, and closed boards never come here.
//
// The address that it posts to is a secret and appears in no error and no log line.
package announce

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/store"
)

// Options say what is announced and where. Zero durations have the values named.
type Options struct {
	Store *store.Store
	URL   string // of an incoming webhook: Slack's where the host is, else Discord's form

	Settle time.Duration // after a change, so that a burst is one message; 2 s
	GiveUp time.Duration // for one message; 5 min
	Pause  time.Duration // before the first retry, then twice as long each; 2 s
	Sweep  time.Duration // between two looks at all boards, as signals may get lost; 10 min

	Log *slog.Logger // nil: nowhere
}

// An Announcer posts once [Announcer.Run] is called.
type Announcer struct {
	o      Options
	form   form
	client *http.Client
	wake   chan struct{} // 1 deep

	mu      sync.Mutex
	changed map[string]bool // names of boards
}

// New makes an announcer.
//
// Errors: a URL that is neither https nor on this machine. None quotes it.
func New(o Options) (*Announcer, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return nil, errors.New("the webhook for announcements: want an https address")
	}
	for _, d := range []struct {
		of    *time.Duration
		value time.Duration
	}{{&o.Settle, 2 * time.Second}, {&o.GiveUp, 5 * time.Minute}, {&o.Pause, 2 * time.Second}, {&o.Sweep, 10 * time.Minute}} {
		if *d.of <= 0 {
			*d.of = d.value
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a := &Announcer{o: o, form: discord, wake: make(chan struct{}, 1), changed: map[string]bool{}}
	if host := u.Hostname(); host == "slack.com" || strings.HasSuffix(host, ".slack.com") {
		a.form = slack
	}
	a.client = &http.Client{Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return a, nil
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// Signal takes a signal of the store in. It does not block.
func (a *Announcer) Signal(s store.Signal) {
	if s.Kind == store.SignalBoard {
		a.look(s.ID)
	}
}

// look has boards looked at.
func (a *Announcer) look(boards ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, board := range boards {
		a.changed[board] = true
	}
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run announces until ctx ends: first what changed while nobody did. A change that
// is being posted then, or that cannot be posted in time, is not announced.
func (a *Announcer) Run(ctx context.Context) {
	a.all(ctx)
	sweep := time.NewTicker(a.o.Sweep)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			a.all(ctx)
			continue
		case <-a.wake:
		}
		if !sleep(ctx, a.o.Settle) {
			return
		}
		a.mu.Lock()
		boards := slices.Sorted(maps.Keys(a.changed))
		clear(a.changed)
		a.mu.Unlock()
		var lines []line
		for _, board := range boards {
			changes, err := a.o.Store.Announce(ctx, board)
			if err != nil && !errors.Is(err, store.ErrNotFound) && ctx.Err() == nil {
				a.o.Log.Warn("announcing", "error", err)
			}
			for _, c := range changes {
				lines = append(lines, linesOf(c)...)
			}
		}
		a.deliver(ctx, lines)
	}
}

// all has every board looked at.
func (a *Announcer) all(ctx context.Context) {
	boards, err := a.o.Store.Boards(ctx)
	if err != nil && ctx.Err() == nil {
		a.o.Log.Warn("announcing: listing boards", "error", err)
	}
	for _, b := range boards {
		a.look(b.Name)
	}
}

// sleep reports whether ctx has not ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
