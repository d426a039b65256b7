package notice

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/gpu-mode/kbgen/local/document"
	"github.com/gpu-mode/kbgen/local/engine"
)

// Header names of a delivery.
const (
	EventHeader     = "X-Buildkite-Event"
	SignatureHeader = "X-Buildkite-Signature"
)

// Sign returns the value of [SignatureHeader]: HMAC-SHA256, keyed with the
// webhook's token, over the Unix time in decimal, a dot, and the raw body.
func Sign(token string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, []byte(token))
	fmt.Fprintf(mac, "%d.", at.Unix())
	mac.Write(body)
	return fmt.Sprintf("timestamp=%d,signature=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
}

// body is the JSON of an event. Agents and queues in it are as they are now,
// which may be later than the event, as on the service.
func (s *Sender) body(ev engine.Event) ([]byte, error) {
	view := document.NewView(s.engine, s.opts.BaseURL)
	view.OldTimes = true
	out := payload{Event: ev.Name}
	if ev.Build != nil {
		out.Build, out.Sender = new(view.Build(*ev.Build, document.BuildFields{})), view.Person(ev.Build.Creator)
		if p, err := s.engine.Pipeline(ev.Build.Pipeline); err == nil { // it may be gone
			out.Pipeline = view.Pipeline(p)
		}
	}
	if ev.Job != nil {
		out.Job = new(view.Job(*ev.Job))
	}
	if ev.Agent != nil {
		out.Agent = new(view.Agent(*ev.Agent))
	}
	return json.Marshal(out)
}

// deliverAll makes deliveries until there are no more.
func (s *Sender) deliverAll() {
	for d := range s.pending {
		if !s.await(d.due) {
			s.count(func(st *Stats) { st.Dropped++ })
			continue
		}
		if err := s.deliver(d); err != nil {
			s.count(func(st *Stats) { st.Failed++ })
			s.opts.Logger.Warn("webhook: not delivered", "event", d.event, "err", err)
			continue
		}
		s.count(func(st *Stats) { st.Sent++ })
	}
}

// await waits for a delivery's time; false when the sender ends before.
func (s *Sender) await(due time.Time) bool {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.sending.Done():
	}
	return s.sending.Err() == nil
}

// unwrapURL takes the URL, which may hold a secret, out of a client's error.
func unwrapURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// deliver makes one attempt; its errors do not hold the URL.
func (s *Sender) deliver(d delivery) error {
	ctx, cancel := context.WithTimeout(s.sending, s.opts.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.opts.URL, bytes.NewReader(d.body))
	if err != nil {
		return unwrapURL(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "kblocal-webhook")
	req.Header.Set(EventHeader, d.event)
	req.Header.Set(SignatureHeader, Sign(s.opts.Token, s.opts.Now(), d.body))
	resp, err := s.opts.Client.Do(req)
	if err != nil {
		return unwrapURL(err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("the receiver answered %d", resp.StatusCode)
	}
	return nil
}

// Body fields of an event. A build has no jobs here.
type payload struct {
	Event    string             `json:"event"`
	Build    *document.Build    `json:"build,omitempty"`
	Job      *document.Job      `json:"job,omitempty"`
	Agent    *document.Agent    `json:"agent,omitempty"`
	Pipeline *document.Pipeline `json:"pipeline,omitempty"`
	Sender   *document.Person   `json:"sender"`
}
