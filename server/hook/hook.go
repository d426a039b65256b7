// Package hook asks a program of the organizer's own about each submission before it is
// evaluated, and tells it of each result. Package store keeps what is due, so that events
// outlive this process, and gives each event to one of several instances at a time.
//
// An event is delivered at least once. The receiver knows a repeated one by its id.
package hook

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/delivery"
	"github.com/gpu-mode/kbgen/store"
)

// Headers of a request.
const (
	DeliveryHeader  = "X-Kbserve-Delivery"  // the same for each try of one event
	SignatureHeader = "X-Kbserve-Signature" // see Sign
)

// Options say where events go. Zero durations have the values named.
type Options struct {
	Store  *store.Store
	URL    string
	Secret string // the key of the signatures

	Pause  time.Duration // before the first retry, then twice as long each, a minute at most; 2 s
	GiveUp time.Duration // for telling of a result; 1 h
	Sweep  time.Duration // between two looks for events, as signals may get lost; 10 s

	Log *slog.Logger // nil: nowhere
}

const (
	limit    = 16          // requests at once
	maxPause = time.Minute // between two tries, unless the receiver wants more

	// lease is after which another instance takes the event of a process that died. It is
	// longer than a request may take.
	lease = 3 * delivery.Timeout
)

// A Hook delivers once [Hook.Run] is called.
type Hook struct {
	o       Options
	target  *delivery.Target
	wake    chan struct{} // 1 deep
	sending atomic.Int64  // requests under way
}

// New makes a hook.
//
// Errors: a URL that is neither https nor on this machine; no secret. None quotes them.
func New(o Options) (*Hook, error) {
	target, err := delivery.New(o.URL)
	if err != nil {
		return nil, fmt.Errorf("the organizer's hook: %w", err)
	}
	if o.Secret == "" {
		return nil, errors.New("the organizer's hook: want a secret to sign requests with")
	}
	o.Pause = cmp.Or(max(o.Pause, 0), 2*time.Second)
	o.GiveUp = cmp.Or(max(o.GiveUp, 0), time.Hour)
	o.Sweep = cmp.Or(max(o.Sweep, 0), 10*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &Hook{o: o, target: target, wake: make(chan struct{}, 1)}, nil
}

// Signal takes a signal of the store in. It does not block.
func (h *Hook) Signal(s store.Signal) {
	if s.Kind == store.SignalSubmission {
		h.look()
	}
}

func (h *Hook) look() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Run delivers until ctx ends. Events that are being delivered then are due again at
// once, for another instance or the next process.
func (h *Hook) Run(ctx context.Context) {
	var sending sync.WaitGroup
	defer sending.Wait()
	tick := time.NewTicker(h.o.Sweep)
	defer tick.Stop()
	for {
		h.take(ctx, &sending)
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		case <-tick.C:
		}
	}
}

// take claims the events that are due, as many as may be delivered at once, and begins
// to deliver them.
func (h *Hook) take(ctx context.Context, sending *sync.WaitGroup) {
	free := limit - int(h.sending.Load())
	if free <= 0 || ctx.Err() != nil {
		return
	}
	claimed, err := h.o.Store.ClaimHookDeliveries(ctx, free, lease)
	if err != nil && ctx.Err() == nil {
		h.o.Log.Error("claiming deliveries to the hook", "error", err)
	}
	for _, d := range claimed {
		h.sending.Add(1)
		sending.Go(func() {
			defer h.look() // there may be more
			defer h.sending.Add(-1)
			h.deliver(ctx, d)
		})
	}
}

// deliver makes one try. Its errors are logged and end nothing: the event is due again
// after a pause, or after the lease if even that cannot be stored.
func (h *Hook) deliver(ctx context.Context, d store.HookDelivery) {
	err := h.try(ctx, d)
	if err == nil {
		return
	}
	pause := delivery.Pause(d.Tries, h.o.Pause, maxPause)
	if failed, ok := errors.AsType[*delivery.Error](err); ok {
		pause = max(pause, failed.After)
	}
	stopped := ctx.Err() != nil
	if stopped {
		pause = 0
	}
	storing, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer stop()
	log := h.o.Log.With("submission", d.Submission, "event", d.Event, "try", d.Tries)
	if d.Event == store.EventDone && !stopped && time.Now().Add(pause).After(d.Since.Add(h.o.GiveUp)) {
		log.Error("the hook was not told of a result, and will not be", "error", err)
		err = h.o.Store.EndHookDelivery(storing, d)
	} else {
		if !stopped {
			log.Warn("the hook has not taken an event; it is tried again", "pause", pause, "error", err)
			time.AfterFunc(pause, h.look)
		}
		err = h.o.Store.RetryHookDelivery(storing, d, pause, err.Error())
	}
	if err != nil {
		log.Warn("storing how a delivery went", "error", err)
	}
}

// try posts an event and does what the answer says.
func (h *Hook) try(ctx context.Context, d store.HookDelivery) error {
	body, err := h.body(ctx, d)
	if errors.Is(err, store.ErrNotFound) {
		return nil // the submission was deleted, and the event with it
	}
	if err != nil {
		return err
	}
	answer, err := h.target.Post(ctx, body, DeliveryHeader, d.ID, SignatureHeader, Sign(h.o.Secret, time.Now(), body))
	if err != nil {
		return fmt.Errorf("posting an event: %w", err)
	}
	if d.Event == store.EventDone {
		err := h.o.Store.EndHookDelivery(ctx, d)
		if err == nil {
			h.o.Log.Info("the hook has taken a result", "submission", d.Submission)
		}
		return err
	}
	return h.decide(ctx, d, answer)
}

// Sign returns the value of [SignatureHeader]: HMAC-SHA256, keyed with the secret, over
// the Unix time in decimal, a dot, and the raw body. Buildkite signs in the same form.
func Sign(secret string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.", at.Unix())
	mac.Write(body)
	return fmt.Sprintf("timestamp=%d,signature=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
}

// An event is the JSON of a request.
type event struct {
	Event    string    `json:"event"`
	ID       int64     `json:"id"`
	Board    string    `json:"board"`
	GPU      string    `json:"gpu_type"`
	Mode     string    `json:"mode"`
	UserID   string    `json:"user_id"`
	UserName string    `json:"user_name"`
	FileName string    `json:"file_name"`
	Time     time.Time `json:"time"` // of arrival

	*acceptedPart
	*donePart
}

type acceptedPart struct {
	Code string `json:"code"`
}

// A donePart has nothing that the submission's owner does not see.
type donePart struct {
	Outcome string   `json:"outcome"` // one of docs/outcomes.md, or hacked
	Error   string   `json:"error"`   // "" for none
	Score   *float64 `json:"score"`   // of the public run, seconds; null: none
	Ranks   bool     `json:"ranks"`
}

// body reads the submission as it is now.
func (h *Hook) body(ctx context.Context, d store.HookDelivery) ([]byte, error) {
	p, err := h.o.Store.Poll(ctx, d.Submission)
	if err != nil {
		return nil, err
	}
	e := event{Event: d.Event, ID: p.ID, Board: p.Board, GPU: p.GPU, Mode: p.Mode, UserID: p.UserID, UserName: p.User, FileName: p.FileName, Time: p.Time.UTC()}
	if d.Event == store.EventAccepted {
		e.acceptedPart = &acceptedPart{p.Code}
		return json.Marshal(e)
	}
	e.donePart = &donePart{Outcome: p.Progress(), Error: p.Job.Error}
	for _, v := range p.Verdicts {
		if v.GPU == p.GPU {
			e.Score, e.Ranks = v.Score, v.Ranks
		}
	}
	return json.Marshal(e)
}

// decide does what the hook has answered. A decision that comes too late, because an
// admin has decided or the submission was cancelled, is left out.
func (h *Hook) decide(ctx context.Context, d store.HookDelivery, answer []byte) error {
	var a struct{ Decision, Reason string }
	if err := json.Unmarshal(answer, &a); err != nil {
		return errors.New("the answer is not a JSON object with a decision")
	}
	var err error
	switch a.Decision {
	case "accept", "reject":
		err = h.o.Store.Decide(ctx, d.Submission, a.Decision == "accept", a.Reason)
	case "hold":
		err = h.o.Store.HoldSubmission(ctx, d)
	default:
		return fmt.Errorf("the answer has decision %s, want accept, reject or hold", text.Quote(text.Shorten(a.Decision, 40)))
	}
	if _, refused := errors.AsType[*store.Refusal](err); refused || errors.Is(err, store.ErrNotFound) {
		h.o.Log.Info("the hook's decision comes too late", "submission", d.Submission, "decision", a.Decision, "reason", err)
		return h.o.Store.RetryHookDelivery(ctx, d, 0, "") // if it was cancelled, its result is due
	}
	if err == nil {
		h.o.Log.Info("the hook has decided", "submission", d.Submission, "decision", a.Decision)
	}
	return err
}
