package launcher

import (
	"context"
	"errors"
	"fmt"
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

// Create makes the build of s, or finds the one that an earlier attempt made:
// of one run id there is one build in the end. An answer that got lost is looked
// up by the run id, until the listing delay has surely passed; only then is the
// create repeated. All of this goes on until there is a build, s.QueueTimeout is
// over, or ctx ends, which cancels nothing.
//
// Errors: [schema.ErrPayloadTooLong] and faults of the payload, before anything
// is sent; [APIError] for a refusal; [UncertainError] when the time was over
// first and there may be a build; otherwise there is none.
func (c *Client) Create(ctx context.Context, s Submission) (*Run, error) {
	run, body, err := c.prepare(s)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, run.QueueTimeout)
	defer stop()
	run.progress(Event{Phase: PhaseCreating})
	b, repeated, err := c.create(ctx, run.ID, s.Since, s.Attempted, body)
	if err != nil {
		return nil, err
	}
	run.is(b)
	run.repeated = repeated
	return run, nil
}

// Adopt finds the build of a run that an earlier process made, by one look at
// the listings: a build that was made within the listing delay may be missed,
// see [Submission].Attempted for a way that does not. Of several builds of
// one run it keeps the oldest that was not cancelled, and cancels the others.
//
// Errors: [ErrNoBuild], [APIError], ctx's.
func (c *Client) Adopt(ctx context.Context, runID string) (*Run, error) {
	ctx, stop := patient(ctx)
	defer stop()
	found, err := c.builds(ctx, runID, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("looking for the build of run %s: %w", runID, err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("run %s: %w", runID, ErrNoBuild)
	}
	return runOf(c.keepOne(ctx, found)), nil
}

// Open finds the run of a build.
//
// Errors: [ErrNoBuild] for a build that has no run id, [APIError], ctx's.
func (c *Client) Open(ctx context.Context, number int) (*Run, error) {
	b, err := c.Build(ctx, number)
	if err != nil {
		return nil, err
	}
	if b.RunID() == "" {
		return nil, fmt.Errorf("build %d has no run id in its meta-data, as those of a launcher have: %w", number, ErrNoBuild)
	}
	return runOf(b), nil
}

// runOf is the run of a build that somebody made before.
func runOf(b *Build) *Run {
	r := &Run{ID: b.RunID(), GPU: b.GPU(), Queue: b.Queue(), Mode: b.Mode(), Ranking: b.word(metaRanking), Submitted: time.Now()}
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

// Collect waits for the end of the run's build and returns its result. It makes
// nothing and cancels nothing: when ctx ends, the build goes on, and may be
// collected later. Any number of runs may be collected at once; they share their
// polls.
//
// Errors: [NoResultError] for a build that ended, or cannot go on, without one;
// [WrongMachineError]; [GaveUpError] when one of the run's clocks ran out;
// [APIError]; ctx's.
func (c *Client) Collect(ctx context.Context, r *Run) (*Report, error) {
	report, _, err := c.collect(ctx, r)
	return report, err
}

// collect is Collect, and reports whether the build was seen over.
func (c *Client) collect(ctx context.Context, r *Run) (report *Report, over bool, err error) {
	copied := *r
	w := &waiter{c: c, r: &copied, build: copied.seen}
	if w.r.Submitted.IsZero() {
		w.r.Submitted = time.Now()
	}
	w.r.QueueTimeout, w.r.RunTimeout = orDefault(r.QueueTimeout), orDefault(r.RunTimeout)
	if w.build == nil {
		w.build = &Build{Number: r.Build, WebURL: r.BuildURL}
	}
	w.timeline = Timeline{Submitted: w.r.Submitted, Created: w.r.Created}
	w.life = newLifecycle(w.r)
	w.life.signal(buildCreated)
	w.progress()
	report, err = w.result(ctx)
	if r.repeated && ctx.Err() == nil {
		c.cancelLate(ctx, w.r)
	}
	if w.over && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("build %d (%s) is over, its result was not fetched: %w", w.build.Number, w.build.WebURL, err)
	}
	return report, w.over, err
}

// orDefault is a timeout that was left out.
func orDefault(d time.Duration) time.Duration {
	if d <= 0 {
		return 30 * time.Minute
	}
	return d
}
