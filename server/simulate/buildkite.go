package simulate

import (
	"cmp"
	"container/heap"
	"slices"
	"sort"
	"time"

	"github.com/gpu-mode/kbgen/launcher/pace"
)

// Delays are what Buildkite, the network and the database take. Zero fields have the
// defaults named: assumptions, except for Renew, which follows from kbserve's lease.
type Delays struct {
	Answer time.Duration // of the REST API; 200 ms
	Setup  time.Duration // from a build's creation until its evaluation waits for an agent: the step that uploads the pipeline; 5 s
	Agent  time.Duration // between two jobs of one agent; 1 s
	Event  time.Duration // from the end of a build until kbserve has the webhook's event; 1 s
	Claim  time.Duration // between two claims; 1 s
	Renew  time.Duration // between two renewals of a lease; 10 s
}

func (d Delays) orDefault() Delays {
	d.Answer = cmp.Or(d.Answer, 200*time.Millisecond)
	d.Setup = cmp.Or(d.Setup, 5*time.Second)
	d.Agent = cmp.Or(d.Agent, time.Second)
	d.Event = cmp.Or(d.Event, time.Second)
	d.Claim = cmp.Or(d.Claim, time.Second)
	d.Renew = cmp.Or(d.Renew, 10*time.Second)
	return d
}

// A use is what a request is for, the more important before the less important, as
// the launcher has them.
type use int

const (
	useCreate use = iota
	useArtifacts
	useDownload
	useOther
	usePoll
)

// A request waits to be sent.
type request struct {
	use      use
	at       time.Duration
	answered func()
}

// rest is the launcher's quota, and the API that counts its requests.
type rest struct {
	s       *simulation
	bucket  pace.Bucket
	turns   pace.Turns
	waiting []request     // in order of arrival
	alarm   time.Duration // when the next may go; not before now means none is set

	window time.Duration // when the server's window began
	sent   int           // in that window
	most   int           // in any window
}

func newRest(s *simulation) *rest {
	return &rest{s: s, bucket: pace.NewBucket(start), alarm: -1}
}

// send sends a request when its turn comes; answered is called with the answer.
func (r *rest) send(u use, answered func()) {
	r.waiting = append(r.waiting, request{u, r.s.now, answered})
	r.serve()
}

// serve is the launcher's quota.serve on the virtual clock.
func (r *rest) serve() {
	for len(r.waiting) > 0 {
		if wait := r.bucket.Wait(r.s.time()); wait > 0 {
			if due := r.s.now + wait; r.alarm <= r.s.now || due < r.alarm {
				r.alarm = due
				r.s.at(due, func() {
					if r.alarm == due {
						r.alarm = -1
					}
					r.serve()
				})
			}
			return
		}
		byUse := func(a, b request) int { return cmp.Compare(a.use, b.use) }
		next := slices.MinFunc(r.waiting, byUse)
		if r.turns.Least() {
			next = slices.MaxFunc(r.waiting, byUse)
		}
		i := slices.IndexFunc(r.waiting, func(q request) bool { return q.use == next.use })
		r.waiting = slices.Delete(r.waiting, i, i+1)
		r.bucket.Spend(r.s.time())
		r.count(next)
	}
}

// count counts a request at the server, and has it answered.
func (r *rest) count(q request) {
	s := r.s
	if s.now-r.window >= pace.Window {
		r.window, r.sent = s.now.Truncate(pace.Window), 0
	}
	r.sent++
	r.most = max(r.most, r.sent)
	h := s.log.hour(s.now)
	h.calls++
	h.restWait += s.now - q.at
	remaining := pace.DefaultLimit - r.sent
	s.after(s.o.Delays.Answer, func() {
		reset := max(r.window+pace.Window-s.now, 0)
		r.bucket.Answered(s.time(), pace.Family{Known: true, Remaining: remaining, Limit: pace.DefaultLimit, Reset: reset}, pace.Family{})
		q.answered()
		r.serve()
	})
}

// listAgents asks each minute how many agents there are, a request for each hundred.
func (s *simulation) listAgents() {
	if s.log.waiting+s.working > 0 {
		n := 0
		for _, g := range s.o.GPUs {
			n += g.Number
		}
		for range pages(n) {
			s.rest.send(useOther, func() {})
		}
	}
	s.after(time.Minute, s.listAgents)
}

func pages(n int) int { return max(1, (n+pace.PageSize-1)/pace.PageSize) }

// A pool is the agents of one GPU type.
type pool struct {
	free int
	jobs jobs
}

// build is called when a run's build is there.
func (s *simulation) build(r *run) {
	s.log.hour(s.now).builds++
	s.creating--
	s.watch.add(s, r)
	s.claim()
	s.after(s.o.Delays.Setup, func() { s.ready(r) })
}

// ready lets a run's job wait for an agent.
func (s *simulation) ready(r *run) {
	p := &s.agents[r.gpu]
	s.count++
	heap.Push(&p.jobs, job{r, s.count})
	s.dispatch(r.gpu)
}

// dispatch gives jobs to idle agents.
func (s *simulation) dispatch(gpu int) {
	p := &s.agents[gpu]
	for p.free > 0 && len(p.jobs) > 0 {
		r := heap.Pop(&p.jobs).(job).run
		p.free--
		took := r.attempts[r.tried]
		if r.tried++; r.tried == 1 {
			r.started = s.now
		}
		s.log.busy(gpu, s.now, took)
		s.after(took, func() {
			if r.tried < len(r.attempts) {
				s.ready(r) // Buildkite's automatic retry
			} else {
				r.ended = s.now
				s.watch.ended = append(s.watch.ended, s.now)
				s.after(s.o.Delays.Event, func() { s.watch.hint(s, r) })
			}
			s.after(s.o.Delays.Agent, func() {
				p.free++
				s.dispatch(gpu)
			})
		})
	}
}

// A job waits for an agent; the higher priority goes first, then the older job.
type job struct {
	run   *run
	count int
}

type jobs []job

func (j jobs) Len() int { return len(j) }
func (j jobs) Less(a, b int) bool {
	return cmp.Or(cmp.Compare(j[b].run.job, j[a].run.job), cmp.Compare(j[a].count, j[b].count)) < 0
}
func (j jobs) Swap(a, b int) { j[a], j[b] = j[b], j[a] }
func (j *jobs) Push(v any)   { *j = append(*j, v.(job)) }
func (j *jobs) Pop() any {
	old := *j
	last := old[len(old)-1]
	*j = old[:len(old)-1]
	return last
}

// watch is the launcher's watcher where events tell when builds end.
type watch struct {
	runs    []*run
	fresh   []time.Duration // when those were made that no list of ended builds could have shown yet
	hinted  bool            // an event came for one of them since the last poll
	polling bool
	planned int           // number of the poll that is due
	last    time.Duration // when the last poll ended
	asked   time.Duration // when the run was asked about last that was not asked about for longest
	opened  time.Duration // when the open builds were listed
	newest  time.Duration // the end of the newest ended build seen

	ended []time.Duration // when builds ended, in order
	first int             // of ended that may still be listed
}

func (w *watch) add(s *simulation, r *run) {
	if len(w.runs) == 0 {
		w.asked, w.opened = s.now, s.now
	}
	w.runs = append(w.runs, r)
	w.fresh = append(w.fresh, s.now)
	w.plan(s)
}

func (w *watch) hint(s *simulation, r *run) {
	if slices.Contains(w.runs, r) {
		w.hinted = true
		w.plan(s)
	}
}

// plan has the next poll begin when it is due.
func (w *watch) plan(s *simulation) {
	if w.polling || len(w.runs) == 0 {
		return
	}
	due := w.asked + pace.HintedSweep
	if w.hinted {
		due = s.now
	}
	due = max(due, w.last+pace.Spacing(len(w.runs)))
	w.planned++
	mine := w.planned
	s.at(due, func() {
		if mine == w.planned && !w.polling {
			w.poll(s)
		}
	})
}

// poll asks about all builds once.
func (w *watch) poll(s *simulation) {
	w.polling, w.hinted = true, false
	if len(w.runs) == 1 {
		s.rest.send(usePoll, func() { w.end(s, s.now-s.o.Delays.Answer) })
		return
	}
	ended := func(time.Duration) {
		from := w.newest - pace.Overlap
		for _, made := range w.fresh {
			from = min(from, made)
		}
		from -= time.Second
		w.first += sort.Search(len(w.ended)-w.first, func(i int) bool { return w.ended[w.first+i] >= from })
		s.log.listed += len(w.ended) - w.first
		w.list(s, pages(len(w.ended)-w.first), -1, func(seen time.Duration) { w.end(s, seen) })
	}
	if s.now-w.opened < pace.OpenEvery(len(w.runs)) {
		ended(0)
		return
	}
	w.opened = s.now
	s.log.listed += len(w.runs)
	w.list(s, pages(len(w.runs)), -1, ended)
}

// list requests so many pages, one after the other. done gets the time at which the
// server made the first of them; seen is that time, negative before the first.
func (w *watch) list(s *simulation, pages int, seen time.Duration, done func(seen time.Duration)) {
	s.rest.send(usePoll, func() {
		if seen < 0 {
			seen = s.now - s.o.Delays.Answer
		}
		if pages > 1 {
			w.list(s, pages-1, seen, done)
		} else {
			done(seen)
		}
	})
}

// end ends a poll that has shown the builds as they were at seen.
func (w *watch) end(s *simulation, seen time.Duration) {
	var found, open []*run
	for _, r := range w.runs {
		if r.ended > 0 && r.ended <= seen {
			w.newest = max(w.newest, r.ended)
			found = append(found, r)
		} else {
			open = append(open, r)
		}
	}
	// Those that were made while the poll was under way stay fresh.
	w.fresh = slices.DeleteFunc(w.fresh, func(made time.Duration) bool { return made <= seen })
	w.runs, w.polling, w.last, w.asked = open, false, s.now, seen
	for _, r := range found {
		s.found(r)
	}
	w.plan(s)
}
