package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/buildkite/go-buildkite/v3/buildkite"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A Submission is one evaluation to be done on one GPU type.
type Submission struct {
	Payload *schema.Payload
	ID      string // of the submission where it is kept; empty: "local"; letters, digits, - and _
	GPU     string // GPU type, "B200_BK"
	Queue   string // agent queue, "b200"
	Task    string // its name, and File's, for people to tell builds apart by; neither is sent of a sealed submission
	File    string
	User    string // whose submission it is, which bounds how many run at once; may be empty

	// RunID is the run's id, chosen by the caller and kept where it outlives him:
	// up to 200 letters, digits, dots, colons, - and _. Empty: [NewRunID]'s. The
	// secret run of a submission is a run of its own, in a build of its own.
	RunID string
	// Attempted is when somebody may last have tried to make a build for RunID;
	// zero: nobody has. Its build is then looked for before one is made.
	Attempted time.Time
	// Since is when the first such try may have been; zero: at Attempted.
	Since time.Time

	// Seal, when not nil, returns the text that travels in the place of the
	// encoded payload, for the run of that id; it must not block. What a build's
	// readers then see of a submission is GPU type, queue, mode and time limits.
	Seal func(runID, encoded string) (string, error)

	Branch, Commit string // of the pipeline's repository; empty: main, HEAD

	// QueueTimeout and RunTimeout are those of [Run]; QueueTimeout also bounds the
	// time until there is a build. 0: 30 minutes each.
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
	Elapsed  time.Duration // since the work on it began here
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
	Canceled bool // its build was: what kbrun took for a fault of the machine was somebody's wish
	Timeline Timeline
}

// Submit makes a build for s, or finds the one that was made for its RunID,
// waits for its end and fetches the result of its own run id. A wrong submission
// is a [Report], not an error.
//
// Errors: those of [Client.Create] and [Client.Collect]. Unlike those, Submit
// cancels the build that it gives up, when ctx ends too, or the error says that
// it has not.
func (c *Client) Submit(ctx context.Context, s Submission) (*Report, error) {
	run, err := c.CreateOrAdopt(ctx, s)
	var uncertain *UncertainError
	if errors.As(err, &uncertain) {
		return nil, errors.Join(err, c.cancelUnseen(ctx, uncertain.RunID))
	}
	if err != nil {
		return nil, err
	}
	report, over, err := c.collect(ctx, run)
	if err == nil || over {
		return report, err
	}
	return nil, c.abandon(ctx, run, err)
}

// CreateOrAdopt is [Client.Create] for a run id whose caller does not know
// whether somebody has begun with it: an earlier process, or another one at this
// moment. It looks for a build before it makes one, and again after: of two that
// were made at once, all callers take the older, and the other is cancelled.
//
// Errors: those of Create, [APIError] of the first look, ctx's.
func (c *Client) CreateOrAdopt(ctx context.Context, s Submission) (*Run, error) {
	if s.RunID == "" || !s.Attempted.IsZero() {
		return c.Create(ctx, s)
	}
	asking, stop := context.WithTimeout(ctx, orDefault(s.QueueTimeout))
	defer stop()
	run, err := c.Adopt(asking, s.RunID)
	switch {
	case err == nil:
		return run.asked(s), nil
	case !errors.Is(err, ErrNoBuild):
		return nil, err
	}
	if run, err = c.Create(asking, s); err != nil {
		return nil, err
	}
	found, err := c.lookup(asking, run.ID, run.Submitted.Add(-lookupMargin))
	if err != nil {
		c.log.Warn("looking for a second build of a run", "run", run.ID, "error", err)
		return run, nil
	}
	if !slices.ContainsFunc(found, func(b Build) bool { return b.Number == run.Build }) {
		found = append(found, *run.seen) // its number is the newest that this process knows
	}
	slices.SortFunc(found, func(a, b Build) int { return a.Number - b.Number })
	if kept := c.keepOne(asking, found); kept.Number != run.Build {
		return runOf(kept).asked(s), nil
	}
	return run, nil
}

// asked takes over what s says of a run that somebody else made.
func (r *Run) asked(s Submission) *Run {
	r.GPU, r.Queue = s.GPU, s.Queue
	r.QueueTimeout, r.RunTimeout, r.Progress = orDefault(s.QueueTimeout), orDefault(s.RunTimeout), s.Progress
	return r
}

// lateBuilds are the pauses between two looks for a build that is to be
// cancelled.
var lateBuilds = [...]time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second}

// cancelUnseen cancels what an uncertain create left, although ctx may be over. A
// build that shows later than this takes goes on: err, which it is joined to,
// says that there may be one.
func (c *Client) cancelUnseen(ctx context.Context, runID string) error {
	ctx, stop := last(ctx)
	defer stop()
	for _, wait := range lateBuilds {
		if err := c.pause(ctx, wait); err != nil {
			break
		}
		if found, err := c.cancelRun(ctx, runID); found || err != nil {
			return err
		}
	}
	return nil
}

// abandon cancels the build of a run whose collecting ended with err, and says
// whether it could.
func (c *Client) abandon(ctx context.Context, run *Run, err error) error {
	ended := ctx.Err() != nil
	ctx, stop := last(ctx)
	defer stop()
	cancelErr := c.Cancel(ctx, run.Build)
	var gave *GaveUpError
	switch {
	case errors.As(err, &gave):
		gave.Canceled, gave.CancelErr = cancelErr == nil, cancelErr
		return err
	case cancelErr != nil:
		return fmt.Errorf("build %d (%s) may still run: %w", run.Build, run.BuildURL, errors.Join(cancelErr, err))
	case ended:
		return fmt.Errorf("build %d (%s) is cancelled: %w", run.Build, run.BuildURL, err)
	}
	return err
}

var (
	namePattern  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,60}$`)
	runIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$`)
)

// prepare checks s, fills in what it leaves out, and writes the request.
func (c *Client) prepare(s Submission) (*Run, *buildkite.CreateBuild, error) {
	if s.ID == "" {
		s.ID = "local"
	}
	for _, v := range []struct{ what, name string }{{"submission id", s.ID}, {"GPU type", s.GPU}, {"queue", s.Queue}} {
		if !namePattern.MatchString(v.name) {
			return nil, nil, fmt.Errorf("%s: got %q, want 1 to 60 letters, digits, - and _", v.what, v.name)
		}
	}
	// One id per run: Kernelbot's own is shared by the public and the secret
	// run of a submission.
	if s.RunID == "" {
		s.RunID = NewRunID(s.ID, s.GPU)
	}
	if !runIDPattern.MatchString(s.RunID) {
		return nil, nil, fmt.Errorf("run id: got %s, want up to 200 letters, digits, dots, colons, - and _", text.Quote(s.RunID))
	}
	if s.Branch == "" {
		s.Branch = "main"
	}
	if s.Commit == "" {
		s.Commit = "HEAD"
	}
	if s.Payload == nil {
		return nil, nil, errors.New("no payload")
	}
	encoded, err := s.Payload.Encode()
	if err != nil {
		return nil, nil, err
	}
	if s.Seal != nil {
		if encoded, err = s.Seal(s.RunID, encoded); err != nil {
			return nil, nil, fmt.Errorf("sealing the payload: %w", err)
		}
	}
	env, err := schema.PayloadEnv(encoded)
	if err != nil {
		return nil, nil, err
	}
	env[schema.EnvRunID] = s.RunID
	env[schema.EnvGPU] = s.GPU
	env[schema.EnvQueue] = s.Queue
	env[schema.EnvMode] = s.Payload.Mode
	if s.User != "" {
		env[schema.EnvUser] = s.User
	}
	if budget, limited := s.Payload.Budget(); limited { // kbgen sets the step's timeout by it
		env[schema.EnvTimeoutSeconds] = strconv.Itoa(int(budget.Seconds()))
	}
	run := &Run{
		ID: s.RunID, GPU: s.GPU, Queue: s.Queue, Mode: s.Payload.Mode, Ranking: s.Payload.RankingBy, Submitted: time.Now(),
		QueueTimeout: orDefault(s.QueueTimeout), RunTimeout: orDefault(s.RunTimeout), Progress: s.Progress,
	}
	meta := map[string]string{
		metaRunID: s.RunID, metaQueue: s.Queue, metaGPU: s.GPU, metaMode: s.Payload.Mode, metaRanking: cmp.Or(s.Payload.RankingBy, schema.RankLast), metaLauncher: c.id,
	}
	if s.Seal == nil {
		for key, name := range map[string]string{metaTask: s.Task, metaFile: s.File} {
			if name = text.Line(name, 100); name != "" {
				meta[key] = name
			}
		}
	}
	return run, &buildkite.CreateBuild{
		Commit:   s.Commit,
		Branch:   s.Branch,
		Message:  "Kernel eval: " + s.RunID,
		Env:      env,
		MetaData: meta,
	}, nil
}
