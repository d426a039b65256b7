package launcher

import (
	"context"
	"time"

	"github.com/gpu-mode/kbgen/launcher/pace"
)

// add begins to watch a build; remove must follow. The loop runs for as long
// as there are runs.
func (w *watcher) add(r *Run, b *Build, life *lifecycle) *run {
	now := time.Now()
	one := &run{
		number: b.Number, kind: kind{r.Queue, r.Mode}, gpu: r.GPU, life: life, updates: make(chan update, 1),
		created: r.Created, made: moment(b.CreatedAt), started: -1, absentAt: now.Add(firstAbsence),
	}
	if one.created.IsZero() || one.created.After(now) {
		one.created = now
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.runs) == 0 {
		var ctx context.Context
		ctx, w.stop = context.WithCancel(context.Background())
		w.ended, w.opened = time.Time{}, now
		go w.loop(withUse(ctx, usePoll))
	}
	w.runs[one] = true
	w.rouse()
	return one
}

func (w *watcher) remove(r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.runs, r)
	if len(w.runs) == 0 && w.stop != nil {
		w.stop()
		w.stop = nil
	}
	w.rouse()
}

// postpone says that a run absent from the listings is not over after all.
func (w *watcher) postpone(r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.hold = min(max(2*r.hold, time.Second), maxHold)
	r.absentAt = time.Now().Add(r.hold)
	w.rouse()
}

// loop polls until its ctx ends, which is when no run is left.
func (w *watcher) loop(ctx context.Context) {
	for last := (time.Time{}); w.sleep(ctx, last); last = time.Now() {
		err := w.c.insist(ctx, "polling", func() error { return w.poll(ctx) })
		if err != nil && ctx.Err() == nil {
			for _, r := range w.polled() {
				w.deliver(r, update{err: err})
			}
		}
	}
}

// sleep waits until the next poll after last is due, which a new run may make
// earlier; false when ctx has ended.
func (w *watcher) sleep(ctx context.Context, last time.Time) bool {
	for {
		wait := time.Hour // until something changes
		if due, any := w.due(last); any {
			wait = time.Until(due)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return false
		case <-t.C:
			return ctx.Err() == nil
		case <-w.wake:
			t.Stop()
		}
	}
}

// due is when the next poll is; false when nothing has to be asked about.
func (w *watcher) due(last time.Time) (time.Time, bool) {
	runs := w.polled()
	w.mu.Lock()
	defer w.mu.Unlock()
	var due time.Time
	for i, r := range runs {
		at := w.hints.due(r.hintedAt, r.created.Add(r.asked), r.created.Add(w.c.known.next(r.kind, r.asked, r.started)))
		if i == 0 || at.Before(due) {
			due = at
		}
	}
	if soonest := last.Add(w.spacing(len(runs))); due.Before(soonest) {
		due = soonest
	}
	return due, len(runs) > 0
}

// spacing is the least time between two polls: a result that many share the
// finding of may wait a little. It grows where the limit is small.
func (w *watcher) spacing(runs int) time.Duration {
	return time.Duration(float64(pace.Spacing(runs)) * w.c.quota.scale())
}
