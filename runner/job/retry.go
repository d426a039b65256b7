package job

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// A retry repeats a call until it works, or until its time is over.
type retry struct {
	limit time.Duration // of one call
	last  time.Duration // of the call under way, or the only one, once the job is being ended
	end   time.Time     // no call begins later

	// Pauses double from first to most. Each is between half and all of that,
	// by chance: the machines that a store fails at once should not come back at
	// once.
	first, most time.Duration

	say func(error) // what did not work, before the next pause
}

// do calls f until it returns nil.
//
// Error: that of the last call, as it was.
func (r retry) do(ctx context.Context, f func(context.Context, time.Duration) error) error {
	limit := r.limit
	if ctx.Err() != nil {
		limit = r.last
	}
	call, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(r.last, stop) })()
	for pause := r.first; ; pause = min(2*pause, r.most) {
		err := f(call, max(min(limit, time.Until(r.end)), time.Second))
		if err == nil || ctx.Err() != nil {
			return err
		}
		wait := pause/2 + rand.N(pause/2+1)
		if time.Now().Add(wait).After(r.end) {
			return err
		}
		r.say(fmt.Errorf("%w; trying again in %s, until %s", err, wait.Round(100*time.Millisecond), r.end.UTC().Format("15:04:05 MST")))
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}
