package launcher

import (
	"slices"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/launcher/pace"
)

// A kind is a set of builds that take about as long as each other.
type kind struct{ queue, mode string }

// A sample is how long one build took, by Buildkite's clock.
type sample struct {
	number int           // the build's
	total  time.Duration // from its creation to its end
	run    time.Duration // from the start of the evaluation's job; 0: unknown
}

const maxSamples = 16 // of one kind, the latest

// estimates are what a client has seen of how long builds take. Polls go where
// an end is to be expected.
type estimates struct {
	mu     sync.Mutex
	byKind map[kind][]sample
}

func newEstimates() *estimates { return &estimates{byKind: map[kind][]sample{}} }

// have reports whether there is anything to expect by.
func (e *estimates) have(k kind) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.byKind[k]) > 0
}

// add takes a build that ended by itself.
func (e *estimates) add(k kind, b *Build) {
	if b.State != "passed" && b.State != "failed" || b.FinishedAt == nil || b.CreatedAt == nil {
		return
	}
	s := sample{number: b.Number, total: b.FinishedAt.Sub(b.CreatedAt.Time)}
	if j := b.Evaluation(k.queue); j != nil && j.StartedAt != nil {
		s.run = b.FinishedAt.Sub(j.StartedAt.Time)
	}
	if s.total <= 0 || s.run < 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	all := slices.DeleteFunc(e.byKind[k], func(old sample) bool { return old.number == s.number })
	all = append(all, s)
	e.byKind[k] = all[max(0, len(all)-maxSamples):]
}

// Pauses between two questions about one build of which nothing is known, or
// which takes longer than any known one. They grow with its age.
const (
	firstAsk    = time.Second
	leastPause  = 600 * time.Millisecond
	mostPause   = 15 * time.Second // of one of which nothing is known
	mostOverdue = time.Minute
	unknownRate = 0.7  // of the age
	overdueRate = 0.25 // of the age
)

// next is the age at which a build of kind k should be asked about. It was
// asked about at the age of asked, 0 if never, and its evaluation had started
// at the age of started, below 0 if it had not.
//
// The first question goes where half of the known builds were over, the second
// where all were.
func (e *estimates) next(k kind, asked, started time.Duration) time.Duration {
	e.mu.Lock()
	samples := slices.Clone(e.byKind[k])
	e.mu.Unlock()
	rate, most := unknownRate, mostPause
	if ends := likelyEnds(samples, asked, started); len(ends) > 0 {
		rate, most = overdueRate, mostOverdue
		gap := max(leastPause/2, asked/50)
		for _, end := range []time.Duration{ends[len(ends)/2], ends[len(ends)-1]} {
			if end += end/50 + 150*time.Millisecond; end > asked+gap {
				return end
			}
		}
	} else if asked == 0 {
		return firstAsk
	}
	return asked + min(max(time.Duration(float64(asked)*rate), leastPause), most)
}

// likelyEnds are the ages at which a build would be over if it went as the known
// ones, in order.
func likelyEnds(samples []sample, asked, started time.Duration) []time.Duration {
	var ends []time.Duration
	for _, s := range samples {
		switch {
		case started >= 0 && s.run > 0:
			ends = append(ends, started+s.run)
		case started < 0 && asked > 0: // it cannot be over before a whole run has passed
			ends = append(ends, max(s.total, asked+s.run))
		default:
			ends = append(ends, s.total)
		}
	}
	slices.Sort(ends)
	return ends
}

const (
	hintPause   = 2 * time.Second // at least, between two questions about one build because of hints
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
	if slices.ContainsFunc(h.ends, func(end hintedEnd) bool { return end.number == number }) {
		return
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
	n := len(h.ends) - 1
	return n >= hintsEnough && !slices.ContainsFunc(h.ends[n-hintsEnough:n], func(end hintedEnd) bool { return !end.hinted })
}

// due is when the next question about a build is due that would be due at at
// without hints: hintedAt is when a hint wants it asked, zero for none, and last
// when it was asked last.
func (h *hints) due(hintedAt, last, at time.Time) time.Time {
	switch {
	case !hintedAt.IsZero():
		return hintedAt
	case h.trusted():
		if sweep := last.Add(pace.HintedSweep); sweep.After(at) {
			return sweep
		}
	}
	return at
}
