package engine

import (
	"encoding/json"
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
	JobTimingOut     JobState = "timing_out"

	JobPassed   JobState = "passed"
	JobFailed   JobState = "failed"
	JobCanceled JobState = "canceled"
	JobTimedOut JobState = "timed_out"
	JobSkipped  JobState = "skipped" // by its skip attribute
	JobBroken   JobState = "broken"  // filtered out by if or branches
)

// Finished reports whether the job will not change by itself any more.
func (s JobState) Finished() bool {
	switch s {
	case JobPassed, JobFailed, JobCanceled, JobTimedOut, JobSkipped, JobBroken, JobWaitingFailed:
		return true
	}
	return false
}

// Held reports whether an agent has the job.
func (s JobState) Held() bool {
	switch s {
	case JobAssigned, JobAccepted, JobRunning, JobCanceling, JobTimingOut:
		return true
	}
	return false
}

// Job types of REST v2.
const (
	TypeScript = "script"
	TypeWaiter = "waiter"
)

// A Job is one attempt at one command step, or a wait step. Jobs handed out
// by [Engine] are copies; what they point at must not be written to.
type Job struct {
	ID       string // UUID
	BuildID  string
	Pipeline string // slug
	Number   int    // the build's
	Type     string // [TypeScript] or [TypeWaiter]

	StepID     string
	StepKey    string
	Label      string
	GroupID    string
	GroupKey   string
	GroupLabel string
	Step       *steps.Step // the definition
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

// Finish is what an agent reports at the end of a job.
type Finish struct {
	ExitStatus   int
	Signal       string
	SignalReason string
	FinishedAt   time.Time
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
	log        logState
}

func (j *job) snapshot() Job {
	out := j.Job
	out.LogSize = j.log.contiguous
	out.StepOutcome = j.node.outcome()
	return out
}
