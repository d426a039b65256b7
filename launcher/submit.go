package launcher

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/buildkite/go-buildkite/v3/buildkite"

	"github.com/gpu-mode/kbgen/schema"
)

// A Submission is one evaluation to be done on one GPU type.
type Submission struct {
	Payload *schema.Payload
	ID      string // of the submission where it is kept; empty: "local"; letters, digits, - and _
	GPU     string // GPU type, "B200_BK"
	Queue   string // agent queue, "b200"

	// Seal, when not nil, returns the text that travels in the place of the
	// encoded payload, for the run of that id; it must not block. What a build's
	// readers then see of a submission is GPU type, queue, mode and time limits.
	Seal func(runID, encoded string) (string, error)

	Branch, Commit string // of the pipeline's repository; empty: main, HEAD

	// QueueTimeout bounds the time until the evaluation's job starts, bootstrap
	// included; RunTimeout the time after that. Past either, the build is
	// cancelled. 0: 30 minutes each.
	QueueTimeout, RunTimeout time.Duration

	// Progress, when not nil, is called at every change and at every poll that
	// concerns this submission, from one goroutine; it must not block.
	Progress func(Event)
}

// An Event says where a submission is.
type Event struct {
	Phase    Phase
	RunID    string
	Build    int           // number; 0 while creating
	BuildURL string        // of its page
	State    string        // Buildkite's word for the build; may be empty
	Elapsed  time.Duration // since Submit was called
}

// A Timeline says when each thing was seen from here. Zero: not seen; a phase
// that is shorter than a poll is passed unseen.
type Timeline struct {
	Submitted time.Time // Submit was called
	Created   time.Time // the build exists
	Running   time.Time // the evaluation's job was seen started
	Finished  time.Time // the build was seen over
	Listed    time.Time // its artifacts were listed
	Fetched   time.Time // the result was here and checked

	// Jobs are the build's jobs by Buildkite's clock, in the order of their
	// steps, the evaluation last; nil when the build was found over through a
	// listing, which does not say.
	Jobs []JobTimes
}

// JobTimes is one job by Buildkite's clock. Zero: did not happen.
type JobTimes struct {
	ID                                   string
	Step                                 string // its key
	Created, Runnable, Started, Finished time.Time
}

// A Report is a submission that has a result, whatever it says.
type Report struct {
	Result   *schema.Result
	Raw      []byte // result.json as it was fetched
	RunID    string
	Build    int
	BuildURL string
	Timeline Timeline
}

// Submit makes a build for s, waits for its end and fetches the result of its
// own run id. A wrong submission is a [Report], not an error.
//
// Errors: [schema.ErrPayloadTooLong] and faults of the payload, before any
// build is made; [RateLimitError] and [APIError]; [NoResultError] for a build
// that ended without one; [GaveUpError] when a clock ran out; ctx's. In the
// last two cases the build has been cancelled, or the error says that it has
// not.
func (c *Client) Submit(ctx context.Context, s Submission) (*Report, error) {
	w := &waiter{c: c, s: s}
	w.timeline.Submitted = time.Now()
	body, err := w.prepare()
	if err != nil {
		return nil, err
	}
	w.life = newLifecycle(&w.s)
	w.progress()
	w.build, err = c.create(ctx, w.runID, body)
	if err != nil {
		return nil, err
	}
	w.timeline.Created = time.Now()
	w.life.signal(buildCreated)
	w.progress()
	return w.result(ctx)
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,60}$`)

// prepare checks s, fills in what it leaves out, and writes the request.
func (w *waiter) prepare() (*buildkite.CreateBuild, error) {
	s := &w.s
	if s.ID == "" {
		s.ID = "local"
	}
	for _, v := range []struct{ what, name string }{{"submission id", s.ID}, {"GPU type", s.GPU}, {"queue", s.Queue}} {
		if !namePattern.MatchString(v.name) {
			return nil, fmt.Errorf("%s: got %q, want 1 to 60 letters, digits, - and _", v.what, v.name)
		}
	}
	if s.Branch == "" {
		s.Branch = "main"
	}
	if s.Commit == "" {
		s.Commit = "HEAD"
	}
	if s.QueueTimeout <= 0 {
		s.QueueTimeout = 30 * time.Minute
	}
	if s.RunTimeout <= 0 {
		s.RunTimeout = 30 * time.Minute
	}
	if s.Payload == nil {
		return nil, errors.New("no payload")
	}
	encoded, err := s.Payload.Encode()
	if err != nil {
		return nil, err
	}
	// One id per run: Kernelbot's own is shared by the public and the secret
	// run of a submission.
	w.runID = fmt.Sprintf("sub-%s-%s-%s", s.ID, s.GPU, randomHex(5))
	if s.Seal != nil {
		if encoded, err = s.Seal(w.runID, encoded); err != nil {
			return nil, fmt.Errorf("sealing the payload: %w", err)
		}
	}
	env, err := schema.PayloadEnv(encoded)
	if err != nil {
		return nil, err
	}
	env[schema.EnvRunID] = w.runID
	env[schema.EnvGPU] = s.GPU
	env[schema.EnvQueue] = s.Queue
	env[schema.EnvMode] = s.Payload.Mode
	if budget, limited := s.Payload.Budget(); limited { // kbgen sets the step's timeout by it
		env[schema.EnvTimeoutSeconds] = strconv.Itoa(int(budget.Seconds()))
	}
	return &buildkite.CreateBuild{
		Commit:  s.Commit,
		Branch:  s.Branch,
		Message: "Kernel eval: " + w.runID,
		Env:     env,
		MetaData: map[string]string{
			"run_id": w.runID, "queue": s.Queue, "gpu": s.GPU, "mode": s.Payload.Mode,
			"launcher": w.c.id,
		},
	}, nil
}
