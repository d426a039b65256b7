package launcher

import (
	"cmp"
	"errors"
	"fmt"
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

// prepare checks s, fills in what it leaves out, and writes the request.
func (c *Client) prepare(s Submission) (*Run, *buildkite.CreateBuild, error) {
	s.ID = cmp.Or(s.ID, "local")
	for _, v := range []struct{ what, name string }{{"submission id", s.ID}, {"GPU type", s.GPU}, {"queue", s.Queue}} {
		if !namePattern.MatchString(v.name) {
			return nil, nil, fmt.Errorf("%s: got %q, want 1 to 60 letters, digits, - and _", v.what, v.name)
		}
	}
	// One id per run: Kernelbot's own is shared by the public and the secret
	// run of a submission.
	s.RunID = cmp.Or(s.RunID, NewRunID(s.ID, s.GPU))
	if !runIDPattern.MatchString(s.RunID) {
		return nil, nil, fmt.Errorf("run id: got %s, want up to 200 letters, digits, dots, colons, - and _", text.Quote(s.RunID))
	}
	s.Branch = cmp.Or(s.Branch, "main")
	s.Commit = cmp.Or(s.Commit, "HEAD")
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
