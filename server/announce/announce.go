// Package announce tells a chat when the first three of a board change. It knows
// boards by their names and rankings by what the store says has changed; who may
// see a board is the store's to know, and closed boards never come here.
//
// The address that it posts to is a secret and appears in no error and no log line.
package announce

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/delivery"
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
	target *delivery.Target
	wake   chan struct{} // 1 deep

	mu      sync.Mutex
	changed map[string]bool // names of boards
}

// New makes an announcer.
//
// Errors: a URL that is neither https nor on this machine. None quotes it.
func New(o Options) (*Announcer, error) {
	target, err := delivery.New(o.URL)
	if err != nil {
		return nil, fmt.Errorf("the webhook for announcements: %w", err)
	}
	o.Settle = cmp.Or(max(o.Settle, 0), 2*time.Second)
	o.GiveUp = cmp.Or(max(o.GiveUp, 0), 5*time.Minute)
	o.Pause = cmp.Or(max(o.Pause, 0), 2*time.Second)
	o.Sweep = cmp.Or(max(o.Sweep, 0), 10*time.Minute)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	a := &Announcer{o: o, form: discord, target: target, wake: make(chan struct{}, 1), changed: map[string]bool{}}
	if host := target.Host(); host == "slack.com" || strings.HasSuffix(host, ".slack.com") {
		a.form = slack
	}
	return a, nil
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

// deliver posts lines, a message after the other.
func (a *Announcer) deliver(ctx context.Context, lines []line) {
	for len(lines) > 0 && ctx.Err() == nil {
		_, n := a.form.message(lines)
		a.insist(ctx, lines[:n])
		lines = lines[n:]
	}
}

// insist posts one message, and gives up after a while. Before each try it leaves
// out what does not rank any more: that may have been marked as hacked meanwhile.
func (a *Announcer) insist(ctx context.Context, lines []line) {
	until := time.Now().Add(a.o.GiveUp)
	for pause := a.o.Pause; ; pause *= 2 {
		holding, err := a.holding(ctx, lines)
		if err == nil && len(holding) == 0 {
			return
		}
		wait := time.Duration(0)
		if err == nil {
			message, _ := a.form.message(holding)
			wait, err = a.post(ctx, message)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		if next := max(wait, pause); wait < 0 || time.Now().Add(next).After(until) {
			a.o.Log.Warn("an announcement is given up", "lines", len(holding), "error", err)
			return
		} else if !sleep(ctx, next) {
			return
		}
	}
}

// holding are the lines about submissions that rank on a public board.
func (a *Announcer) holding(ctx context.Context, lines []line) (left []line, err error) {
	for _, l := range lines {
		ranks, err := a.o.Store.RanksPublicly(ctx, l.gpu, l.leader.Submission)
		if err == nil && ranks && l.was != nil {
			var did bool
			if did, err = a.o.Store.RanksPublicly(ctx, l.gpu, l.was.Submission); !did {
				l.was = nil
			}
		}
		if err != nil {
			return nil, err
		}
		if ranks {
			left = append(left, l)
		}
	}
	return left, nil
}

// post sends one message. With an error comes how long to wait at least before the
// next try; negative: there is to be none.
func (a *Announcer) post(ctx context.Context, message string) (wait time.Duration, err error) {
	body, err := a.form.encode(message)
	if err != nil {
		return -1, fmt.Errorf("encoding a message: %w", err)
	}
	_, err = a.target.Post(ctx, body)
	if failed, ok := errors.AsType[*delivery.Error](err); ok {
		wait = failed.After
		if failed.Permanent {
			wait = -1
		}
		err = fmt.Errorf("posting a message: %w", err)
	}
	return wait, err
}

// A line says one thing about a ranking, which holds as long as the leader has
// their rank.
type line struct {
	board, gpu string
	leader     store.Leader
	was        *store.Leader // whom or what it replaces; nil: nobody, or not to be told
}

// linesOf are what a change is worth saying: whoever is new among the first three
// or has become faster, and who leads now.
func linesOf(c store.Announcement) (lines []line) {
	for i, now := range c.Now {
		l := line{board: c.Board, gpu: c.GPU, leader: now}
		leads := i == 0 && (len(c.Before) == 0 || c.Before[0].UserID != now.UserID)
		known := slices.ContainsFunc(c.Before, func(before store.Leader) bool { return before.UserID == now.UserID && now.Score >= before.Score })
		if known && !leads {
			continue
		}
		if i == 0 && len(c.Before) > 0 && !c.Before[0].Gone {
			l.was = &c.Before[0]
		}
		lines = append(lines, l)
	}
	return lines
}

// A form is what a chat's webhook takes.
type form struct {
	limit  int // characters of one message
	escape func(string) string
	encode func(string) ([]byte, error)
}

// Source: Discord's and Slack's documentation of incoming webhooks.
var (
	discord = form{2000, escapeDiscord, func(message string) ([]byte, error) {
		// Nobody is mentioned, whatever a name says, and links show no preview.
		return json.Marshal(map[string]any{"content": message, "allowed_mentions": map[string]any{"parse": []string{}}, "flags": 1 << 2})
	}}
	slack = form{4000, strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace, func(message string) ([]byte, error) {
		return json.Marshal(map[string]any{"text": message, "mrkdwn": false, "unfurl_links": false, "unfurl_media": false})
	}}
)

// escapeDiscord takes the meaning from every character that may have one there.
func escapeDiscord(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune("\\`*_~|>#[]()<@:/-+.!&", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

const maxName = 40 // runes of a user's name

func (f form) name(l store.Leader) string {
	name := cmp.Or(text.Line(l.User, maxName), "user "+l.UserID)
	return f.escape(name)
}

// words are the line as it is posted: "ann leads vectoradd on H100_BK with
// 912.300 µs (was bob with 950.100 µs)".
func (f form) words(l line) string {
	does := "is third on"
	switch {
	case l.leader.Rank == 1 && l.leader.Tied:
		does = "shares the lead of"
	case l.leader.Rank == 1:
		does = "leads"
	case l.leader.Rank == 2:
		does = "is second on"
	}
	score, was := format.Score(l.leader.Score), ""
	if l.was != nil {
		was = " (was " + format.Score(l.was.Score) + ")"
		if l.was.UserID != l.leader.UserID {
			was = " (was " + f.name(*l.was) + " with " + format.Score(l.was.Score) + ")"
		}
	}
	return fmt.Sprintf("%s %s %s on %s with %s%s", f.name(l.leader), does, f.escape(l.board), f.escape(l.gpu), score, was)
}

// message joins the lines that fit into one message: the first n, at least one.
func (f form) message(lines []line) (message string, n int) {
	for i, l := range lines {
		longer := message + "\n" + f.words(l)
		if i > 0 && utf8.RuneCountInString(longer) > f.limit {
			break
		}
		message, n = longer, n+1
	}
	return text.Shorten(strings.TrimPrefix(message, "\n"), f.limit), n
}
