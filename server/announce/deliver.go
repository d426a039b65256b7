package announce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
)

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
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.o.URL, bytes.NewReader(body))
	if err != nil {
		return -1, errors.New("the webhook's address is none")
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.client.Do(req)
	var quoting *url.Error
	if errors.As(err, &quoting) {
		err = quoting.Err // without the address
	}
	if err != nil {
		return 0, fmt.Errorf("posting a message: %s", text.Line(err.Error(), 200))
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // what it says is of no use, and the connection is
	switch status := resp.StatusCode; {
	case status/100 == 2:
		return 0, nil
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status/100 == 5:
		seconds, _ := strconv.ParseFloat(resp.Header.Get("Retry-After"), 64) // 0: none, or a date
		if seconds > 0 {
			wait = time.Duration(min(seconds, 3600) * float64(time.Second))
		}
		return wait, fmt.Errorf("posting a message: got status %d", status)
	default:
		return -1, fmt.Errorf("posting a message: got status %d", status)
	}
}
