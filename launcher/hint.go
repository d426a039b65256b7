package launcher

import "time"

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

// due is when the next question about a build is due that would be due at at
// without hints: hintedAt is when a hint wants it asked, zero for none, and last
// when it was asked last.
func (h *hints) due(hintedAt, last, at time.Time) time.Time {
	switch {
	case !hintedAt.IsZero():
		return hintedAt
	case h.trusted():
		if sweep := last.Add(hintedSweep); sweep.After(at) {
			return sweep
		}
	}
	return at
}
