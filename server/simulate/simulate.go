// Package simulate runs a competition on a virtual clock: users submit, kbserve's
// queue decides whose turn it is, the launcher's rate limiter sends the requests, and
// GPUs evaluate. It answers how long users would wait, how much of the GPUs and of
// Buildkite's limits is used, and what would have to change.
//
// The order of the queue, the number of builds per agent and the rules of the rate
// limiter are the real ones (store/queue and launcher/pace). The database, the network
// and Buildkite are modelled by the constants in buildkite.go. The package is pure: it
// has no clock, and random numbers come from the caller.
package simulate

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/store/queue"
)

// Options describe a competition.
type Options struct {
	Users       int
	GPUs        []GPUs
	Hours       float64 // that users submit; what waits then is still evaluated
	Rush        float64 // submissions per hour at the end over those at the beginning; 1 is an even stream
	Submissions float64 // of one user, on average
	Ranked      float64 // share of submissions in mode leaderboard, which take two runs

	Evaluation time.Duration // on the GPU, median
	Spread     float64       // 95 % of evaluations take less than Spread times the median; at least 1
	Failures   float64       // share of evaluations that a machine fails, and Buildkite starts again
	Large      float64       // share of results that do not fit into the build's meta-data

	// Arrivals replace what Users, Submissions, Ranked, Rush, Evaluation and Spread
	// would draw, if there are any.
	Arrivals []Arrival

	Limit    int // runs that kbserve works on at once
	Creating int // of them, those whose build is not there yet
	Delays   Delays
}

// An Arrival is one submission.
type Arrival struct {
	At        time.Duration // since the beginning
	User, GPU string
	Ranked    bool // it takes two runs
	Took      time.Duration
}

// GPUs are the machines of one type, each an agent.
type GPUs struct {
	Name   string
	Number int
}

// Random is the source of random numbers. *rand.Rand of math/rand/v2 is one.
type Random interface {
	Float64() float64
	ExpFloat64() float64
	NormFloat64() float64
}

// maxSubmissions bounds the memory and the time of a simulation.
const maxSubmissions = 2_000_000

// Validate returns the first fault of the options.
func (o Options) Validate() error {
	total := float64(o.Users) * o.Submissions
	switch {
	case o.Users < 1:
		return fmt.Errorf("users: got %d, want at least 1", o.Users)
	case len(o.GPUs) == 0:
		return fmt.Errorf("no GPUs: want at least one type, as H100=8")
	case !(o.Hours > 0 && o.Hours <= 10_000):
		return fmt.Errorf("hours: got %g, want more than 0 and at most 10000", o.Hours)
	case len(o.Arrivals) > maxSubmissions:
		return fmt.Errorf("submissions: got %d, want at most %d", len(o.Arrivals), maxSubmissions)
	case len(o.Arrivals) > 0: // the rest draws them
	case !(o.Rush >= 1 && o.Rush <= 1000):
		return fmt.Errorf("rush: got %g, want 1 to 1000", o.Rush)
	case !(total >= 1 && total <= maxSubmissions):
		return fmt.Errorf("submissions: got %g of all users, want 1 to %d", total, maxSubmissions)
	case !(o.Evaluation > 0 && o.Evaluation <= 24*time.Hour):
		return fmt.Errorf("evaluation: got %v, want more than 0 and at most 24h", o.Evaluation)
	case !(o.Spread >= 1 && o.Spread <= 100):
		return fmt.Errorf("spread: got %g, want 1 to 100", o.Spread)
	}
	if o.Limit < 1 || o.Creating < 1 {
		return fmt.Errorf("limits: got %d and %d, want at least 1", o.Limit, o.Creating)
	}
	for name, share := range map[string]float64{"ranked": o.Ranked, "large results": o.Large} {
		if !(share >= 0 && share <= 1) {
			return fmt.Errorf("%s: got %g, want a share from 0 to 1", name, share)
		}
	}
	if !(o.Failures >= 0 && o.Failures <= 0.9) {
		return fmt.Errorf("failures: got %g, want a share from 0 to 0.9", o.Failures)
	}
	for _, a := range o.Arrivals {
		if !slices.ContainsFunc(o.GPUs, func(g GPUs) bool { return g.Name == a.GPU }) {
			return fmt.Errorf("GPUs: %s is missing, and submissions want it", a.GPU)
		}
	}
	for i, g := range o.GPUs {
		if g.Name == "" || g.Number < 1 || g.Number > 100_000 {
			return fmt.Errorf("GPUs: got %s=%d, want a name and 1 to 100000", g.Name, g.Number)
		}
		for _, other := range o.GPUs[:i] {
			if other.Name == g.Name {
				return fmt.Errorf("GPUs: %s is there twice", g.Name)
			}
		}
	}
	return nil
}

// Run simulates a competition until everything that was submitted is evaluated. The
// same options and random numbers give the same report. With thousands of runs in the
// queue it takes minutes; it ends early, with ctx's error, when ctx does.
func Run(ctx context.Context, o Options, random Random) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Delays = o.Delays.orDefault()
	return newSimulation(o).run(ctx, arrivals(o, random))
}

// start is when simulations begin. Any moment would do.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A simulation is the state of kbserve, and of Buildkite in buildkite.go.
type simulation struct {
	o      Options
	now    time.Duration // since start
	events events
	count  int // of events, ever

	waiting  [][]*run // by GPU type
	places   []int    // free ones, by GPU type
	working  int      // runs that kbserve has claimed and not recorded
	creating int      // of them, those that have no build yet
	begun    map[queue.Share]int
	history  []beginning // what begun counts, the oldest first
	claiming bool        // a claim is due
	claimed  time.Duration

	rest   *rest
	watch  watch
	agents []pool // by GPU type

	undone int // submissions
	log    ledger
}

type beginning struct {
	share queue.Share
	at    time.Duration
}

func newSimulation(o Options) *simulation {
	s := &simulation{o: o, waiting: make([][]*run, len(o.GPUs)), begun: map[queue.Share]int{}, claimed: -time.Hour}
	s.rest = newRest(s)
	s.watch.last = -time.Hour
	for _, g := range o.GPUs {
		s.places = append(s.places, queue.Places(g.Number))
		s.agents = append(s.agents, pool{free: g.Number})
	}
	return s
}

// run takes the submissions in the order of their arrival.
func (s *simulation) run(ctx context.Context, submissions []*submission) (*Report, error) {
	s.undone = len(submissions)
	for _, sub := range submissions {
		s.at(sub.at, func() { s.submit(sub) })
	}
	s.at(0, s.listAgents)
	for n := 0; s.undone > 0; n++ {
		if n%1000 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
	return s.report(submissions), nil
}

// at has do done at a time, which is not before now.
func (s *simulation) at(t time.Duration, do func()) {
	s.count++
	heap.Push(&s.events, event{max(t, s.now), s.count, do})
}

func (s *simulation) after(d time.Duration, do func()) { s.at(s.now+d, do) }

// time is now for those who want a moment.
func (s *simulation) time() time.Time { return start.Add(s.now) }

func (s *simulation) submit(sub *submission) {
	h := s.log.hour(s.now)
	h.submissions++
	h.transactions++
	for _, r := range sub.runs {
		r.created = s.time()
		s.waiting[r.gpu] = append(s.waiting[r.gpu], r)
		h.planned++
		h.work += r.work()
		s.log.waiting++
	}
	s.log.longest = max(s.log.longest, s.log.waiting)
	s.claim()
}

// claim claims runs soon: what comes close together is claimed at once, because a
// claim takes the database some time.
func (s *simulation) claim() {
	if s.claiming || s.log.waiting == 0 {
		return
	}
	s.claiming = true
	s.at(s.claimed+s.o.Delays.Claim, func() {
		s.claiming, s.claimed = false, s.now
		s.take()
	})
}

// take is what the reconciler and the store do for a claim.
func (s *simulation) take() {
	n := min(s.o.Limit-s.working, s.o.Creating-s.creating)
	if n <= 0 {
		return
	}
	places := map[string]int{}
	var waiting []*run
	for i, g := range s.o.GPUs {
		if s.places[i] > 0 {
			places[g.Name] = s.places[i]
			waiting = append(waiting, s.waiting[i]...)
		}
	}
	if len(waiting) == 0 {
		return
	}
	for len(s.history) > 0 && s.now-s.history[0].at >= queue.ShareWindow {
		if s.begun[s.history[0].share]--; s.begun[s.history[0].share] == 0 {
			delete(s.begun, s.history[0].share)
		}
		s.history = s.history[1:]
	}
	s.log.hour(s.now).transactions++
	begun := map[queue.Share]int{} // which Take changes
	for _, r := range waiting {
		begun[r.share] = s.begun[r.share]
	}
	taken := queue.Take(waiting, n, places, (*run).queued, begun)
	for _, r := range taken {
		r.claimed, r.taken = s.now, true
		s.begun[r.share]++
		s.history = append(s.history, beginning{r.share, s.now})
		s.places[r.gpu]--
		s.working++
		s.creating++
		s.log.waiting--
		s.rest.send(useCreate, func() { s.build(r) })
	}
	for i := range s.waiting {
		kept := s.waiting[i][:0]
		for _, r := range s.waiting[i] {
			if !r.taken {
				kept = append(kept, r)
			}
		}
		s.waiting[i] = kept
	}
	s.log.working = max(s.log.working, s.working)
	if s.working >= s.o.Limit && len(s.rest.waiting) == 0 && s.free() { // else the rate limit holds runs back
		s.log.limited += s.o.Delays.Claim
	}
}

// free reports whether a run waits for which there is a place.
func (s *simulation) free() bool {
	for i, w := range s.waiting {
		if len(w) > 0 && s.places[i] > 0 {
			return true
		}
	}
	return false
}

// found goes on with a run whose build was seen over.
func (s *simulation) found(r *run) {
	var more []use
	switch {
	case r.broken:
		more = []use{useOther, useOther} // its job, and the end of its log
	case r.large:
		more = []use{useArtifacts, useDownload}
	}
	s.fetch(r, more)
}

// fetch sends the requests one after the other, and records the result then.
func (s *simulation) fetch(r *run, more []use) {
	if len(more) > 0 {
		s.rest.send(more[0], func() { s.fetch(r, more[1:]) })
		return
	}
	h := s.log.hour(s.now)
	// Creating, Built and Record, and the renewals of its lease.
	h.transactions += 3 + int((s.now-r.claimed)/s.o.Delays.Renew)
	s.working--
	s.places[r.gpu]++
	if r.of.open--; r.of.open == 0 {
		r.of.done = s.now
		s.undone--
	}
	s.claim()
}

// An event is something that happens at a time; of equal times the earlier planned
// comes first.
type event struct {
	at    time.Duration
	count int
	do    func()
}

// events is a heap of them.
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].count < e[j].count
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(v any)   { *e = append(*e, v.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*e = old[:len(old)-1]
	return last
}
