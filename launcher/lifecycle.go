package launcher

import (
	"sync"
	"time"
)

// A Phase is a stretch of a submission's way from its build to its result.
type Phase string

const (
	PhaseCreating Phase = "creating" // the build is being made
	PhaseQueued   Phase = "waiting"  // for the bootstrap and for a machine
	PhaseRunning  Phase = "running"  // on the machine
	PhaseFetching Phase = "fetching" // the result
)

// A lifecycle is one submission's build on its way through the phases. Whoever
// sees the build, the shared polling or the submission's own waiter, hands what
// it saw to observe, which moves the lifecycle on and says what the waiter has
// to do. Polling takes its pace, and waiting its deadline, from the age of the
// phase. Nothing else knows in which phase a build is.
type lifecycle struct {
	queue                    string // of the evaluation's job
	queueTimeout, runTimeout time.Duration

	mu       sync.Mutex
	phase    Phase
	since    time.Time // when phase was entered
	running  time.Time // when the evaluation's job was first seen started
	finished time.Time // when the build was last seen over
}

func newLifecycle(r *Run) *lifecycle {
	return &lifecycle{
		queue: r.Queue, queueTimeout: r.QueueTimeout, runTimeout: r.RunTimeout,
		phase: PhaseCreating, since: time.Now(),
	}
}

// A signal is one thing that was seen of a build.
type signal int

const (
	buildCreated signal = iota
	jobWaits            // the evaluation's job has not started, or is not uploaded yet
	jobRuns             // it has started; it may have ended
	buildOpen           // there is more to come
	buildBlocked        // a person would have to act
	buildOver           // nothing more will happen
	buildLeft           // in no listing, neither of open builds nor of ended ones
)

// An action is what the waiter has to do about a signal.
type action int

const (
	keepPolling   action = iota
	askByNumber          // whether the build is over
	collectResult        // fetch it, or explain why there is none
	giveBuildUp          // explain, and cancel it
)

// transitions is the whole machine. What a signal leads to does not depend on
// the phase it meets: a build that was over may run again, and a job that ran
// may wait again, when it is retried.
var transitions = [...]struct {
	to   Phase // "": the phase stays
	then action
}{
	buildCreated: {PhaseQueued, keepPolling},
	jobWaits:     {PhaseQueued, keepPolling},
	jobRuns:      {PhaseRunning, keepPolling},
	buildOpen:    {"", keepPolling},
	buildBlocked: {"", giveBuildUp},
	buildOver:    {PhaseFetching, collectResult},
	buildLeft:    {"", askByNumber},
}

// An update is what one probe of a build showed.
type update struct {
	build *Build // nil with err and left
	jobs  bool   // build has its jobs
	left  bool   // it is in no listing
	err   error  // asking again is useless

	then action // what the lifecycle made of it
}

// signals reads an update: first what the evaluation's job on queue does, where
// that was asked, then how the build stands.
func (u *update) signals(queue string) []signal {
	if u.left {
		return []signal{buildLeft}
	}
	var seen []signal
	if u.jobs {
		// A build that runs says nothing: its evaluation may still wait for
		// the machine.
		if j := u.build.evaluation(queue); j != nil && j.StartedAt != nil {
			seen = append(seen, jobRuns)
		} else {
			seen = append(seen, jobWaits)
		}
	}
	switch {
	case u.build.Blocked:
		return append(seen, buildBlocked)
	case u.build.Over():
		return append(seen, buildOver)
	}
	return append(seen, buildOpen)
}

// observe takes an update in and returns what the waiter has to do.
func (l *lifecycle) observe(u *update) action { return l.signal(u.signals(l.queue)...) }

// signal makes the transitions of signals, of which the last says what to do.
func (l *lifecycle) signal(signals ...signal) action {
	l.mu.Lock()
	defer l.mu.Unlock()
	var then action
	for _, s := range signals {
		l.enter(transitions[s].to)
		then = transitions[s].then
	}
	return then
}

// enter begins a phase, whose clock starts anew, unless it is the present one.
// l.mu is held.
func (l *lifecycle) enter(p Phase) {
	if p == "" || p == l.phase {
		return
	}
	l.phase, l.since = p, time.Now()
	switch {
	case p == PhaseFetching:
		l.finished = l.since
	case p == PhaseRunning && l.running.IsZero():
		l.running = l.since
	}
}

// current returns the phase and since when it lasts.
func (l *lifecycle) current() (Phase, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase, l.since
}

// seen returns when the evaluation's job was first seen started and when the
// build was last seen over; zero: not seen.
func (l *lifecycle) seen() (running, finished time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running, l.finished
}

// deadline is when the present phase has lasted too long.
func (l *lifecycle) deadline() time.Time {
	phase, since := l.current()
	if phase == PhaseRunning || phase == PhaseFetching {
		return since.Add(l.runTimeout)
	}
	return since.Add(l.queueTimeout)
}

// polled reports whether the build has to be asked about: it exists, and its
// result is not being fetched.
func (l *lifecycle) polled() bool {
	phase, _ := l.current()
	return phase == PhaseQueued || phase == PhaseRunning
}
