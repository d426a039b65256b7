// Package webhook receives Buildkite's events. An event is a hint that a build is
// over, and nothing in it is believed: whoever gets the hint asks Buildkite. Forged
// events are refused; replayed, doubled, reordered and late ones cost a question at
// most, and missing ones nothing but time.
//
// Source: Buildkite's documentation of webhooks; signatures as it has them.
package webhook

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/httpx"
)

// maxBody is the largest event that is read, in bytes: a build carries its payload.
const maxBody = 4 << 20

const (
	readTime = 10 * time.Second // to read an event
	hintTime = 5 * time.Second  // to pass a hint on: Buildkite waits 30 s, and counts what took longer as failed
)

// Options say who sends and who is told.
type Options struct {
	// Token is the webhook's: the key of its signatures, or what it sends in clear.
	Token string

	// Hint is told the run id of a build that may be over. Its ctx ends after 5 s.
	Hint func(ctx context.Context, runID string)

	// Seen, when not nil, is told that a genuine event came, at most once a minute.
	Seen func(ctx context.Context, at time.Time)

	Log *slog.Logger // nil: nowhere
}

// seenEvery is how often Options.Seen is told.
const seenEvery = time.Minute

// A Handler answers POST requests with events: 204, or 4xx for what is none.
type Handler struct {
	o    Options
	told atomic.Int64 // when Seen was told, Unix nanoseconds

	hints, refused atomic.Int64

	reading httpx.Quota // of bodies: one with a signature is read before it is known to be genuine
}

// New makes a handler; [httpx.Wrap] belongs around it. Without a token it refuses
// everything.
func New(o Options) *Handler {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &Handler{o: o, reading: httpx.Quota{Each: 1, All: 32}}
}

// Hints counts the events since the start that were hints.
func (h *Handler) Hints() int64 { return h.hints.Load() }

// Refused counts the events since the start that were refused.
func (h *Handler) Refused() int64 { return h.refused.Load() }

// An event is what is read of one.
type event struct {
	Event string `json:"event"`
	Build struct {
		Number   int            `json:"number"`
		State    string         `json:"state"`
		Blocked  bool           `json:"blocked"`
		MetaData map[string]any `json:"meta_data"`
	} `json:"build"`
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "want POST", http.StatusMethodNotAllowed)
		return
	}
	status, err := h.take(w, r)
	if err != nil {
		h.refused.Add(1)
		h.o.Log.Warn("webhook refused", "status", status, "error", err)
		http.Error(w, err.Error(), status)
		return
	}
	w.WriteHeader(status)
}

func (h *Handler) take(w http.ResponseWriter, r *http.Request) (int, error) {
	genuine, err := h.sender(r.Header)
	if err != nil {
		return http.StatusUnauthorized, err
	}
	release, err := h.reading.Take(r.Context(), "")
	if err != nil {
		return http.StatusServiceUnavailable, errors.New("too many events come at once")
	}
	defer release()
	httpx.Expect(r, maxBody, readTime)
	body, err := io.ReadAll(r.Body)
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge:
		return http.StatusRequestEntityTooLarge, fmt.Errorf("the event is larger than %d bytes", maxBody)
	case err != nil:
		return http.StatusBadRequest, errors.New("the event could not be read")
	}
	if err := genuine(body); err != nil {
		return http.StatusUnauthorized, err
	}
	now := time.Now()
	if told := h.told.Load(); h.o.Seen != nil && now.Sub(time.Unix(0, told)) >= seenEvery && h.told.CompareAndSwap(told, now.UnixNano()) {
		h.o.Seen(r.Context(), now)
	}
	var e event
	if err := json.Unmarshal(body, &e); err != nil {
		return http.StatusBadRequest, errors.New("the event is no JSON object")
	}
	runID, _ := e.Build.MetaData["run_id"].(string)
	if e.Event != "build.finished" || !launcher.ValidRunID(runID) {
		return http.StatusNoContent, nil
	}
	h.hints.Add(1)
	h.o.Log.Debug("hint", "run", text.Line(runID, 200), "build", e.Build.Number)
	ctx, stop := context.WithTimeout(r.Context(), hintTime)
	defer stop()
	h.o.Hint(ctx, runID)
	return http.StatusNoContent, nil
}

// sender checks the sender of an event by its headers, and returns a function that checks
// the body. The webhook sends either the token itself or a signature over timestamp
// and raw body, as it was set up. The timestamp is not held against a clock: events may
// be queued for hours, and a replay is harmless.
func (h *Handler) sender(header http.Header) (genuine func(body []byte) error, err error) {
	signature, token := header.Get("X-Buildkite-Signature"), header.Get("X-Buildkite-Token")
	switch {
	case h.o.Token == "":
		return nil, errors.New("no webhook is set up here")
	case signature != "":
		return h.signed(signature)
	case token == "":
		return nil, errors.New("got neither X-Buildkite-Signature nor X-Buildkite-Token")
	case subtle.ConstantTimeCompare([]byte(token), []byte(h.o.Token)) != 1:
		return nil, errors.New("the token is not this webhook's")
	}
	return func([]byte) error { return nil }, nil
}

func (h *Handler) signed(signature string) (genuine func(body []byte) error, err error) {
	var timestamp, mac string
	for _, part := range strings.Split(signature, ",") {
		switch name, value, _ := strings.Cut(strings.TrimSpace(part), "="); name {
		case "timestamp":
			timestamp = value
		case "signature":
			mac = value
		}
	}
	_, err = strconv.ParseInt(timestamp, 10, 64)
	got, hexErr := hex.DecodeString(mac)
	if err != nil || hexErr != nil || len(got) != sha256.Size {
		return nil, errors.New("X-Buildkite-Signature: want timestamp=SECONDS,signature=HEX")
	}
	return func(body []byte) error {
		want := hmac.New(sha256.New, []byte(h.o.Token))
		want.Write([]byte(timestamp + "."))
		want.Write(body)
		if !hmac.Equal(got, want.Sum(nil)) {
			return errors.New("the signature is not this webhook's")
		}
		return nil
	}, nil
}
