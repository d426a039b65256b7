package page

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
)

const (
	// calm is the shortest time between two messages about changes to one
	// client. A change after a quiet time is sent at once.
	calm = 100 * time.Millisecond

	// beat is the longest silence of a stream. A beat makes the client load the
	// page, too: not everything on it has an event.
	beat = 10 * time.Second

	// sendTimeout bounds one write to a client that does not read.
	sendTimeout = 10 * time.Second
)

func (p *pages) indexEvents(w http.ResponseWriter, r *http.Request) error {
	return p.stream(w, r, func(ev *engine.Event) bool { return ev.Name != engine.EventJobLog })
}

func (p *pages) buildEvents(w http.ResponseWriter, r *http.Request) error {
	b, err := p.findBuild(r)
	if err != nil {
		return err
	}
	return p.stream(w, r, func(ev *engine.Event) bool {
		return ev.Build != nil && ev.Build.ID == b.ID && ev.Name != engine.EventJobLog
	})
}

func (p *pages) jobEvents(w http.ResponseWriter, r *http.Request) error {
	j, b, err := p.findJob(r)
	if err != nil {
		return err
	}
	return p.stream(w, r, func(ev *engine.Event) bool {
		if ev.Job != nil {
			return ev.Job.ID == j.ID
		}
		return ev.Build != nil && ev.Build.ID == b.ID
	})
}

// stream sends a server-sent event whenever something relevant has changed. The
// client loads the page again to see what.
func (p *pages) stream(w http.ResponseWriter, r *http.Request, relevant func(*engine.Event) bool) error {
	sub := p.engine.Subscribe()
	defer sub.Close()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	if r.Method == http.MethodHead || !send(w, out, "retry: 1000\n\n") {
		return nil
	}
	changed, calmAt := false, time.Time{} // calmAt: when the next change may be sent
	for {
		wait := beat
		if changed {
			wait = time.Until(calmAt)
		}
		ev, err := nextWithin(r.Context(), sub, wait)
		switch {
		case r.Context().Err() != nil:
			return nil
		case err == nil && !relevant(&ev):
			continue
		case err == nil && time.Now().Before(calmAt):
			changed = true
			continue
		}
		message := "event: change\ndata: \n\n"
		if err != nil && !changed {
			message = "event: beat\ndata: \n\n"
		}
		if !send(w, out, message) {
			return nil
		}
		changed, calmAt = false, time.Now().Add(calm)
	}
}

// nextWithin is the subscription's next event, or an error after wait.
func nextWithin(ctx context.Context, sub *engine.Subscription, wait time.Duration) (engine.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return sub.Next(ctx)
}

// send reports whether the message went out whole.
func send(w http.ResponseWriter, out *http.ResponseController, message string) bool {
	err := out.SetWriteDeadline(time.Now().Add(sendTimeout))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return false
	}
	if _, err := w.Write([]byte(message)); err != nil {
		return false
	}
	return out.Flush() == nil
}
