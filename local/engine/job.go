package engine

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/local/steps"
)

// A JobState is a job's state as REST v2 spells it.
type JobState string

const (
	JobWaiting       JobState = "waiting"        // on a dependency or a wait step
	JobWaitingFailed JobState = "waiting_failed" // what it waited for failed
	JobLimited       JobState = "limited"        // by its concurrency group
	JobScheduled     JobState = "scheduled"      // ready for an agent
	JobAssigned      JobState = "assigned"       // offered to an agent
	JobAccepted      JobState = "accepted"
	JobRunning       JobState = "running"
	JobCanceling     JobState = "canceling"
	JobBlocked       JobState = "blocked" // waits for a person
	JobTimingOut     JobState = "timing_out"

	JobPassed    JobState = "passed"
	JobFailed    JobState = "failed"
	JobCanceled  JobState = "canceled"
	JobTimedOut  JobState = "timed_out"
	JobUnblocked JobState = "unblocked"
	JobSkipped   JobState = "skipped" // by its skip attribute
	JobBroken    JobState = "broken"  // filtered out by if or branches
)

// Finished reports whether the job has ended. A manual retry may reopen one that
// is waiting_failed.
func (s JobState) Finished() bool {
	return slices.Contains([]JobState{JobPassed, JobFailed, JobCanceled, JobTimedOut, JobSkipped, JobBroken, JobWaitingFailed, JobUnblocked}, s)
}

// Held reports whether an agent has the job.
func (s JobState) Held() bool {
	return slices.Contains([]JobState{JobAssigned, JobAccepted, JobRunning, JobCanceling, JobTimingOut}, s)
}

// Job types of REST v2.
const (
	TypeScript  = "script"
	TypeWaiter  = "waiter"
	TypeManual  = "manual" // of block and input steps
	TypeTrigger = "trigger"
)

// A Job is one attempt at one command step, or a step that no agent runs. Jobs handed out
// by [Engine] are copies; what they point at must not be written to.
type Job struct {
	ID       string // UUID
	BuildID  string
	Pipeline string // slug
	Number   int    // the build's
	Type     string // [TypeScript], [TypeWaiter], [TypeManual] or [TypeTrigger]

	StepID     string
	StepKey    string
	Label      string
	GroupID    string
	GroupKey   string
	GroupLabel string
	Step       *steps.Step // the definition, never nil
	StepJSON   json.RawMessage

	State        JobState
	BrokenReason string // why it is broken, skipped or waiting_failed
	ExitStatus   *int   // nil until finished by an agent
	Signal       string
	SignalReason string
	SoftFailed   bool

	AgentID   string   // the agent that has or had it
	AgentName string   //
	Rules     []string // agent query rules, "queue=b200", queue always among them
	Queue     string
	Priority  int

	Matrix map[string]string // the permutation; nil when the step has no matrix

	Unblocker   Person    // who answered a block or input step
	UnblockedAt time.Time //
	Triggered   *Trigger  // what a trigger step started; nil: nothing yet

	// HostImage is the image that the step asks for and does not run in, see
	// [NewBuild.OnHost].
	HostImage string

	// UploadRefused is why the job's last pipeline upload was refused.
	UploadRefused string

	ParallelIndex int // from 0
	ParallelTotal int // 0 when the step has no parallelism

	Timeout time.Duration // 0: none

	RetriesCount int    // attempts before this one
	RetriedIn    string // id of the job that replaced this one
	RetryOf      string
	RetryType    string // "automatic" or "manual", on the new job

	CreatedAt   time.Time
	ScheduledAt time.Time
	RunnableAt  time.Time // when it became ready
	AssignedAt  time.Time // zero: not yet, here and below
	AcceptedAt  time.Time
	StartedAt   time.Time
	FinishedAt  time.Time

	LogSize     int64 // bytes received without a gap
	ChunksLost  int
	StepOutcome string // "neutral" until the step has settled, then "passed", "soft_failed", "hard_failed", "errored"
}

// A Trigger is a build that a trigger step started.
type Trigger struct {
	BuildID  string
	Pipeline string
	Number   int
}

// Finish is what an agent reports at the end of a job.
type Finish struct {
	ExitStatus   int
	Signal       string
	SignalReason string
	ChunksFailed int
	LeaveAgent   bool // ignore_agent_in_dispatches
}

// An Accepted job is everything an agent needs to run it.
type Accepted struct {
	Job   Job
	Env   map[string]string
	Token string // the job's own
}

// job is a job under the engine's lock.
type job struct {
	Job

	build *build
	node  *node
	agent *agent // while held
	seq   int    // over all jobs, in creation order
	token string

	topEnv     map[string]string // env of the document that brought it
	ruleCounts []int             // retries taken per automatic rule, in this line of attempts
	offeredAt  time.Time         // last announced to the agent
	offers     int               // since it was assigned
	heardAt    time.Time         // when its agent last said anything of it, from accept on
	log        logState
}

func (j *job) snapshot() Job {
	out := j.Job
	out.LogSize = j.log.contiguous
	out.StepOutcome = j.node.outcome()
	return out
}

// Job returns one job.
func (e *Engine) Job(id string) (Job, error) {
	return query(e, e.findJob, id, func(j *job) (Job, error) {
		return j.snapshot(), nil
	})
}

func (e *Engine) findJob(id string) (*job, error) {
	return lookUp(e.jobs, id, "No job found")
}

// JobByToken returns the job of a job token. The token dies with the job.
func (e *Engine) JobByToken(token string) (Job, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, ok := e.tokens[token]
	if !ok {
		return Job{}, false
	}
	j.heardAt = e.now()
	if j.agent != nil {
		j.agent.LastSeen = j.heardAt
	}
	return j.snapshot(), true
}

// Accept gives an assigned job to its agent. An agent that asks again for the
// job it has got the same answer lost: it gets it again.
func (e *Engine) Accept(agentID, jobID string) (Accepted, error) {
	return query(e, e.findJob, jobID, func(j *job) (Accepted, error) {
		if j.agent == nil || j.agent.ID != agentID || !j.State.Held() {
			return Accepted{}, Refuse(Invalid, "Job is %s, not assigned to this agent", j.State)
		}
		return e.accept(j), nil
	})
}

// Acquire gives a ready job to an agent that asks for it by id. A job that is
// not ready yet is [Locked].
func (e *Engine) Acquire(agentID, jobID string) (Accepted, error) {
	return query(e, e.findAgent, agentID, func(a *agent) (Accepted, error) {
		j, err := e.findJob(jobID)
		switch {
		case err != nil:
			return Accepted{}, err
		case j.State == JobWaiting || j.State == JobLimited:
			return Accepted{}, Refuse(Locked, "Job is %s", j.State)
		case j.agent == a && j.State.Held() && j.State != JobAssigned: // the answer was lost
			return e.accept(j), nil
		case j.State != JobScheduled || a.job != nil:
			return Accepted{}, Refuse(Invalid, "Job is %s and cannot be acquired", j.State)
		}
		e.assign(j, a)
		return e.accept(j), nil
	})
}

func (e *Engine) accept(j *job) Accepted {
	j.heardAt = e.now()
	if j.State == JobAssigned {
		j.AcceptedAt = j.heardAt
		j.token = NewToken("bkaj_")
		e.tokens[j.token] = j
		e.setJob(j, JobAccepted)
	}
	return Accepted{Job: j.snapshot(), Env: e.jobEnv(j, j.agent), Token: j.token}
}

// Start notes that an accepted job's process is about to begin. Said again of a
// job that has started, it changes nothing.
func (e *Engine) Start(jobID string) error {
	return change(e, e.findJob, jobID, func(j *job) error {
		switch {
		case j.State.Held() && !j.StartedAt.IsZero():
			return nil // the agent repeats a call whose answer it did not get
		case j.State == JobCanceling: // the agent reads the state soon
		case j.State != JobAccepted:
			return Refuse(Invalid, "Job is %s, want accepted", j.State)
		}
		j.StartedAt = e.now()
		if j.State == JobAccepted {
			e.setJob(j, JobRunning)
		}
		e.publish(EventJobStarted, j.build, j, nil)
		e.settleBuild(j.build)
		return nil
	})
}

// FinishJob takes an agent's report on the end of a job.
func (e *Engine) FinishJob(jobID string, f Finish) error {
	return change(e, e.findJob, jobID, func(j *job) error {
		if !j.State.Held() || j.State == JobAssigned {
			return Refuse(Invalid, "Job is %s and cannot be finished", j.State)
		}
		if f.LeaveAgent && j.agent != nil {
			j.agent.leaving = true
		}
		e.finish(j, f)
		e.dispatch()
		return nil
	})
}

// finish ends a held job, retries it when a rule says so, and advances the build.
func (e *Engine) finish(j *job, f Finish) {
	status := f.ExitStatus
	j.ExitStatus = &status
	j.Signal, j.SignalReason = f.Signal, f.SignalReason
	j.ChunksLost = f.ChunksFailed
	state := JobFailed
	switch {
	case j.State == JobCanceling:
		state = JobCanceled
	case status == 0:
		state = JobPassed
	case j.State == JobTimingOut:
		state = JobTimedOut
	}
	j.SoftFailed = (state == JobFailed || state == JobTimedOut) && j.Step.SoftFail.Allows(status)
	next := e.automaticRetry(j, state)
	e.end(j, state)
	if next != nil {
		e.makeReady(next)
	}
	e.advance(j.build)
}

// end ends a job; nothing else does. The caller advances the build.
func (e *Engine) end(j *job, state JobState) {
	if j.agent != nil {
		j.agent.job = nil
		j.agent.JobID = ""
		j.agent.LastJobFinishedAt = e.now()
		j.agent.wake()
		j.agent = nil
	}
	if j.token != "" {
		delete(e.tokens, j.token)
	}
	j.FinishedAt = e.now()
	e.leaveGroup(j)
	e.unready(j)
	e.setJob(j, state)
	e.publish(EventJobFinished, j.build, j, nil)
}

// setJob changes a job's state and publishes the change.
func (e *Engine) setJob(j *job, state JobState) {
	if j.State == state {
		return
	}
	j.State = state
	e.publish(EventJobChanged, j.build, j, nil)
}

// hardFailed reports whether an ended job fails its build.
func (j *job) hardFailed() bool {
	return !j.SoftFailed && slices.Contains([]JobState{JobFailed, JobTimedOut, JobCanceled, JobWaitingFailed}, j.State)
}

// UpdateJob answers `buildkite-agent job update timeout_in_minutes`.
func (e *Engine) UpdateJob(jobID string, timeoutMinutes int) error {
	return change(e, e.findJob, jobID, func(j *job) error {
		if timeoutMinutes < 1 {
			return Refuse(Invalid, "timeout_in_minutes: got %d, want at least 1", timeoutMinutes)
		}
		if !j.State.Held() {
			return Refuse(Invalid, "Job is %s", j.State)
		}
		j.Timeout = e.opts.Minute * time.Duration(timeoutMinutes)
		return nil
	})
}

// Reprioritize changes the priority of a job that no agent has yet.
func (e *Engine) Reprioritize(jobID string, priority int) (Job, error) {
	return query(e, e.findJob, jobID, func(j *job) (Job, error) {
		if j.State.Held() || j.State.Finished() {
			return Job{}, Refuse(Invalid, "Job is %s and cannot be reprioritized", j.State)
		}
		j.Priority = priority
		e.dispatch()
		return j.snapshot(), nil
	})
}
