package launcher

import "time"

// Hint says that somebody, such as a webhook, believes a build to be over. It is
// asked about as soon as polls may come, and by nothing else is a hint believed: a
// false one costs a request. A build that nobody collects here is no matter.
//
// Where hints came for the builds that ended lately, polls wait for them, and a
// build without a hint is asked about each minute.
func (c *Client) Hint(number int) {
	w := c.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hints.came(number)
	now := time.Now()
	for r := range w.runs {
		if r.number != number || !r.hintedAt.IsZero() {
			continue
		}
		r.hintedAt = now
		if soonest := r.created.Add(r.asked + hintPause); r.asked > 0 && soonest.After(now) {
			r.hintedAt = soonest // one after the other
		}
		w.rouse()
	}
}

const (
	hintPause   = 2 * time.Second // at least, between two questions about one build because of hints
	hintedSweep = time.Minute     // between two questions about a build whose end a hint is to tell
	hintsKept   = 16              // ended builds that are remembered
	hintsEnough = 5               // of them, to wait for hints
)

// hints remembers for the builds that ended lately whether a hint came.
type hints struct {
	ends []hintedEnd // the oldest first
}

type hintedEnd struct {
	number int
	hinted bool
}

// ended takes a build in that was seen over.
func (h *hints) ended(number int, hinted bool) {
	for i := range h.ends {
		if h.ends[i].number == number {
			return
		}
	}
	h.ends = append(h.ends, hintedEnd{number, hinted})
	h.ends = h.ends[max(0, len(h.ends)-hintsKept):]
}

// came takes a hint in, which may come after its build was seen over.
func (h *hints) came(number int) {
	for i := range h.ends {
		if h.ends[i].number == number {
			h.ends[i].hinted = true
		}
	}
}

// trusted reports whether each of the last builds that ended had its hint. The
// newest may still get one.
func (h *hints) trusted() bool {
	if len(h.ends) <= hintsEnough {
		return false
	}
	for _, end := range h.ends[len(h.ends)-1-hintsEnough : len(h.ends)-1] {
		if !end.hinted {
			return false
		}
	}
	return true
}

// due is when a run is asked about that is to be asked about at the time of at.
func (h *hints) due(r *run, at time.Time) time.Time {
	switch {
	case !r.hintedAt.IsZero():
		return r.hintedAt
	case h.trusted():
		if sweep := r.created.Add(r.asked + hintedSweep); sweep.After(at) {
			return sweep
		}
	}
	return at
}
