package web

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/store"
)

const (
	// calm is the shortest time between two events of one stream.
	calm = time.Second

	// beat is the longest silence of a stream. A beat makes the page load again, too:
	// places in line change with what others hand in.
	beat = 15 * time.Second

	// sendTimeout bounds one write to a client that does not read.
	sendTimeout = 10 * time.Second

	// maxStreams bounds the streams of one instance.
	maxStreams = 5_000
)

func (s *site) boardEvents(r *request) error {
	b, err := s.Backend.Board(r.Context(), r.viewer, r.PathValue("board"))
	if err != nil {
		return err
	}
	return s.stream(r, store.Signal{Kind: store.SignalBoard, ID: b.Name})
}

func (s *site) submissionEvents(r *request) error {
	id, err := submissionID(r)
	if err != nil {
		return err
	}
	if _, err := s.Backend.Submission(r.Context(), r.viewer, id); err != nil {
		return err
	}
	return s.stream(r, store.Signal{Kind: store.SignalSubmission, ID: strconv.FormatInt(id, 10)})
}

func (s *site) queueEvents(r *request) error {
	return s.stream(r, store.Signal{Kind: store.SignalPlanned})
}

// stream sends a server-sent event whenever something has changed, and now and then
// one without. The client loads the page again to see what.
func (s *site) stream(r *request, signal store.Signal) error {
	if s.streams.Add(1) > maxStreams {
		s.streams.Add(-1)
		r.w.Header().Set("Retry-After", "60")
		return &refusal{http.StatusServiceUnavailable, "Too many pages are being followed at the moment."}
	}
	defer s.streams.Add(-1)
	changed, stop := s.Backend.Watch(signal)
	defer stop()
	h := r.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies that collect answers let this one through
	out := http.NewResponseController(r.w)
	if r.Method == http.MethodHead || !send(r.w, out, "retry: 5000\n\n") {
		return nil
	}
	for {
		event := "change"
		select {
		case <-r.Context().Done():
			return nil
		case <-changed:
		case <-time.After(beat):
			event = "beat"
		}
		if !send(r.w, out, "event: "+event+"\ndata: \n\n") {
			return nil
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-time.After(calm):
		}
	}
}

// send reports whether the message went out whole.
func send(w http.ResponseWriter, out *http.ResponseController, message string) bool {
	err := out.SetWriteDeadline(time.Now().Add(sendTimeout))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return false
	}
	if _, err := strings.NewReader(message).WriteTo(w); err != nil {
		return false
	}
	return out.Flush() == nil
}
