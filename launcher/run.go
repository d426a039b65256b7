package launcher

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Run is one submission's build, as whoever collects its result keeps it: the
// run id alone finds it again, see [Client.Adopt].
type Run struct {
	ID       string // of the run, "sub-4711-B200_BK-0123456789"; its result repeats it
	Build    int    // number
	BuildURL string // of its page

	// What was asked for. A result for another GPU type or queue is refused;
	// where one of them is empty, it is not compared.
	GPU, Queue, Mode string
	Ranking          string // of the task, one of [schema.Rankings]; "": unknown

	Submitted time.Time // when the work on it began here
	Created   time.Time // when the build was there, by the clock here

	// QueueTimeout bounds the time until the evaluation's job starts, bootstrap
	// included; RunTimeout the time after that, and then again the time in which
	// the result is fetched. 0: 30 minutes each.
	QueueTimeout, RunTimeout time.Duration

	// Progress, when not nil, is called at every change and at every poll that
	// concerns this run, from one goroutine; it must not block.
	Progress func(Event)

	seen     *Build // as it was found
	repeated bool   // its create was: there may be a second build
}

// NewRunID makes an id for a run of a submission: its own id, the GPU type, and
// 40 random bits. Both parts are letters, digits, - and _.
func NewRunID(submission, gpu string) string {
	return fmt.Sprintf("sub-%s-%s-%s", submission, gpu, randomHex(5))
}

// ErrNoBuild is a run id of which no build is known.
var ErrNoBuild = errors.New("no build of this run")

// An UncertainError is a creation that was given up when it was not known
// whether it had made a build. A later Create with the same run id, and with
// Attempted set, finds that build or makes it.
type UncertainError struct {
	RunID string
	Err   error // why, and what was answered last
}

func (e *UncertainError) Error() string {
	return fmt.Sprintf("creating build: whether run %s has a build is unknown: %v", e.RunID, e.Err)
}

func (e *UncertainError) Unwrap() error { return e.Err }

// runOf is the run of a build that somebody made before.
func runOf(b *Build) *Run {
	r := &Run{ID: b.RunID(), GPU: b.word(metaGPU), Queue: b.word(metaQueue), Mode: b.word(metaMode), Ranking: b.word(metaRanking), Submitted: time.Now()}
	r.QueueTimeout, r.RunTimeout = orDefault(0), orDefault(0)
	r.is(b)
	r.Created = time.Now()
	if b.CreatedAt != nil && b.CreatedAt.Before(r.Created) {
		r.Created = b.CreatedAt.Time
	}
	return r
}

// is says which build the run has.
func (r *Run) is(b *Build) {
	r.Build, r.BuildURL, r.seen, r.Created = b.Number, b.WebURL, b, time.Now()
}

// progress tells the caller where the run is.
func (r *Run) progress(e Event) {
	if r.Progress == nil {
		return
	}
	e.RunID, e.Elapsed = r.ID, time.Since(r.Submitted)
	r.Progress(e)
}

// orDefault is a timeout that was left out.
func orDefault(d time.Duration) time.Duration {
	if d <= 0 {
		return 30 * time.Minute
	}
	return d
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

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

// newLifecycle is that of a build that exists.
func newLifecycle(r *Run) *lifecycle {
	return &lifecycle{
		queue: r.Queue, queueTimeout: r.QueueTimeout, runTimeout: r.RunTimeout,
		phase: PhaseQueued, since: time.Now(),
	}
}

// An action is what the waiter has to do about an update.
type action int

const (
	keepPolling   action = iota
	askByNumber          // whether the build is over
	collectResult        // fetch it, or explain why there is none
	giveBuildUp          // explain, and cancel it
)

// An update is what one probe of a build showed.
type update struct {
	build *Build // nil with err and left
	jobs  bool   // build has its jobs
	left  bool   // it is in no listing, neither of open builds nor of ended ones
	err   error  // asking again is useless

	then action // what the lifecycle made of it
}

// observe takes an update in and returns what the waiter has to do. What an update
// leads to does not depend on the phase it meets: a build that was over may run
// again, and a job that ran may wait again, when it is retried.
func (l *lifecycle) observe(u *update) action {
	if u.left {
		return askByNumber
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if u.jobs {
		// A build that runs says nothing: its evaluation may still wait for
		// the machine.
		if j := u.build.Evaluation(l.queue); j != nil && j.StartedAt != nil {
			l.enter(PhaseRunning)
		} else {
			l.enter(PhaseQueued)
		}
	}
	switch {
	case u.build.Blocked: // a person would have to act
		return giveBuildUp
	case u.build.Over():
		l.enter(PhaseFetching)
		return collectResult
	}
	return keepPolling
}

// enter begins a phase, whose clock starts anew, unless it is the present one.
// l.mu is held.
func (l *lifecycle) enter(p Phase) {
	if p == l.phase {
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
