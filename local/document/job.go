package document

import (
	"strings"

	"github.com/gpu-mode/kbgen/local/engine"
)

// A Job is a job as JSON. A waiter has the first fields only.
type Job struct {
	ID        string       `json:"id"`
	GraphQLID string       `json:"graphql_id"`
	Type      string       `json:"type"` // "script", "waiter", "manual" or "trigger"
	Name      *string      `json:"name"`
	Label     *string      `json:"label"`
	StepKey   *string      `json:"step_key"`
	Step      jobStep      `json:"step"`
	GroupKey  *string      `json:"group_key"`
	Group     *string      `json:"group_label"`
	Priority  priorityJSON `json:"priority"`
	Rules     []string     `json:"agent_query_rules"`
	State     string       `json:"state"`
	BuildURL  string       `json:"build_url"`
	WebURL    string       `json:"web_url"`

	LogURL        *string `json:"log_url"`
	RawLogURL     *string `json:"raw_log_url"`
	ArtifactsURL  *string `json:"artifacts_url"`
	Command       *string `json:"command"`
	ArtifactPaths *string `json:"artifact_paths"` // joined with ";"

	SoftFailed   bool    `json:"soft_failed"`
	ExitStatus   *int    `json:"exit_status"`
	Signal       *string `json:"signal"`
	SignalReason *string `json:"signal_reason"`
	BrokenReason *string `json:"broken_reason"`
	Agent        *Agent  `json:"agent"`

	CreatedAt   Timestamp `json:"created_at"`
	ScheduledAt Timestamp `json:"scheduled_at"`
	RunnableAt  Timestamp `json:"runnable_at"`
	StartedAt   Timestamp `json:"started_at"`
	FinishedAt  Timestamp `json:"finished_at"`
	ExpiredAt   Timestamp `json:"expired_at"` // always null

	Retried        bool         `json:"retried"`
	RetriedInJobID *string      `json:"retried_in_job_id"`
	RetriesCount   int          `json:"retries_count"`
	RetrySource    *retrySource `json:"retry_source"`
	RetryType      *string      `json:"retry_type"`

	ParallelGroupIndex *int              `json:"parallel_group_index"`
	ParallelGroupTotal *int              `json:"parallel_group_total"`
	Matrix             map[string]string `json:"matrix"` // the permutation; null without one

	// Of block and input steps.
	UnblockedBy *Person    `json:"unblocked_by,omitempty"`
	UnblockedAt *Timestamp `json:"unblocked_at,omitempty"`
	Unblockable *bool      `json:"unblockable,omitempty"`
	UnblockURL  *string    `json:"unblock_url,omitempty"`

	// Of trigger steps.
	Async     *bool           `json:"async,omitempty"`
	Triggered *triggeredBuild `json:"triggered_build,omitempty"`

	ClusterID       string  `json:"cluster_id"`
	ClusterURL      string  `json:"cluster_url"`
	ClusterQueueID  *string `json:"cluster_queue_id"`
	ClusterQueueURL *string `json:"cluster_queue_url"`
}

// A JobStep is the step a job is an attempt at.
type jobStep struct {
	ID        string  `json:"id"`
	Signature *string `json:"signature"` // always null
}

// A Priority wraps a job's priority.
type priorityJSON struct {
	Number int `json:"number"`
}

// A RetrySource is the job that another one replaced.
type retrySource struct {
	JobID     string `json:"job_id"`
	RetryType string `json:"retry_type"`
}

// A TriggeredBuild is what a trigger step started.
type triggeredBuild struct {
	ID     string `json:"id"`
	Number int    `json:"number"`
	URL    string `json:"url"`
	WebURL string `json:"web_url"`
}

// Job shows a job with the agent that has or had it.
func (v *View) Job(j engine.Job) Job {
	out := v.jobAlone(j)
	if a, err := v.engine.Agent(j.AgentID); err == nil {
		out.Agent = new(v.agentAlone(a))
	}
	return out
}

// jobAlone shows a job without its agent.
func (v *View) jobAlone(j engine.Job) Job {
	out := Job{
		ID: j.ID, GraphQLID: graphQLID("Job", j.ID), Type: j.Type,
		Name: orNull(j.Label), Label: orNull(j.Label), StepKey: orNull(j.StepKey), Step: jobStep{ID: j.StepID},
		GroupKey: orNull(j.GroupKey), Group: orNull(j.GroupLabel), Priority: priorityJSON{Number: j.Priority},
		Rules: append([]string{}, j.Rules...), State: string(j.State),
		BuildURL: v.buildURL(j.Pipeline, j.Number), WebURL: v.buildPage(j.Pipeline, j.Number) + "#" + j.ID,
		SoftFailed: j.SoftFailed, ExitStatus: j.ExitStatus,
		Signal: orNull(j.Signal), SignalReason: orNull(j.SignalReason), BrokenReason: orNull(j.BrokenReason),
		CreatedAt: v.Time(j.CreatedAt), ScheduledAt: v.Time(j.ScheduledAt), RunnableAt: v.Time(j.RunnableAt),
		StartedAt: v.Time(j.StartedAt), FinishedAt: v.Time(j.FinishedAt),
		Retried: j.RetriedIn != "", RetriedInJobID: orNull(j.RetriedIn),
		RetriesCount: j.RetriesCount, RetryType: orNull(j.RetryType),
		ClusterID: engine.ClusterID, ClusterURL: v.clusterURL(),
	}
	if j.RetryOf != "" {
		out.RetrySource = &retrySource{JobID: j.RetryOf, RetryType: j.RetryType}
	}
	if j.ParallelTotal > 0 {
		out.ParallelGroupIndex, out.ParallelGroupTotal = &j.ParallelIndex, &j.ParallelTotal
	}
	out.Matrix = j.Matrix
	switch j.Type {
	case engine.TypeScript:
		v.script(&out, j)
	case engine.TypeManual:
		out.UnblockedBy, out.UnblockedAt = v.Person(j.Unblocker), new(v.Time(j.UnblockedAt))
		out.Unblockable, out.UnblockURL = new(j.State == engine.JobBlocked), new(v.JobURL(j)+"/unblock")
	case engine.TypeTrigger:
		if j.Step.Trigger.Pipeline != "" {
			out.Async = &j.Step.Trigger.Async
		}
		if t := j.Triggered; t != nil {
			out.Triggered = &triggeredBuild{ID: t.BuildID, Number: t.Number, URL: v.buildURL(t.Pipeline, t.Number), WebURL: v.buildPage(t.Pipeline, t.Number)}
		}
	}
	return out
}

// script sets what only command jobs have.
func (v *View) script(out *Job, j engine.Job) {
	url := v.JobURL(j)
	out.LogURL, out.RawLogURL, out.ArtifactsURL = new(url+"/log"), new(url+"/log.txt"), new(url+"/artifacts")
	out.Command, out.ArtifactPaths = new(j.Step.Command), new(strings.Join(j.Step.ArtifactPaths, ";"))
	if id := v.QueueID(j.Queue); id != "" {
		out.ClusterQueueID, out.ClusterQueueURL = &id, new(v.clusterURL()+"/queues/"+id)
	}
}
