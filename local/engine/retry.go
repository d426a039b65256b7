package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// automaticRetry makes the next attempt at a job that ended in state, when the
// first of its step's rules that matches has retries left. Canceled jobs and
// jobs of canceled builds are never retried.
func (e *Engine) automaticRetry(j *job, state JobState) *job {
	if state != JobFailed && state != JobTimedOut || j.build.canceling || len(j.build.jobs) >= schema.MaxJobsPerBuild {
		return nil
	}
	for i, rule := range j.Step.Retry.Automatic {
		if !rule.Matches(*j.ExitStatus, j.Signal, j.SignalReason) {
			continue
		}
		if j.ruleCounts[i] >= rule.Limit {
			return nil
		}
		next := e.attempt(j, "automatic")
		next.ruleCounts[i]++
		return next
	}
	return nil
}

// attempt makes the job that replaces j. It waits for [Engine.makeReady].
func (e *Engine) attempt(j *job, kind string) *job {
	e.seq++
	next := &job{Job: j.Job, build: j.build, node: j.node, seq: e.seq, topEnv: j.topEnv, ruleCounts: slices.Clone(j.ruleCounts)}
	next.ID = newID()
	next.State = JobWaiting
	next.BrokenReason, next.Signal, next.SignalReason = "", "", ""
	next.ExitStatus, next.SoftFailed, next.ChunksLost = nil, false, 0
	next.AgentID, next.AgentName, next.UploadRefused = "", "", ""
	next.RetriesCount, next.RetryType, next.RetryOf, next.RetriedIn = j.RetriesCount+1, kind, j.ID, ""
	now := e.now()
	next.CreatedAt, next.ScheduledAt = now, now
	next.RunnableAt, next.AssignedAt, next.AcceptedAt, next.StartedAt, next.FinishedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}, time.Time{}
	j.RetriedIn = next.ID
	b := j.build
	b.jobs = append(b.jobs, next)
	e.jobs[next.ID] = next
	at := slices.Index(j.node.jobs, j) + 1
	j.node.jobs = slices.Insert(j.node.jobs, at, next)
	e.joinGroup(next)
	return next
}

// RetryJob retries an ended job on request and returns the new job. Steps that
// were waiting_failed because of the job wait for it again.
func (e *Engine) RetryJob(jobID string) (Job, error) {
	return query(e, e.findJob, jobID, func(j *job) (Job, error) {
		next, err := e.manualRetry(j)
		if err != nil {
			return Job{}, err
		}
		e.advance(j.build)
		e.dispatch()
		return next.snapshot(), nil
	})
}

func (e *Engine) manualRetry(j *job) (*job, error) {
	retry := j.Step.Retry
	switch {
	case j.Type != TypeScript:
		return nil, Refuse(BadRequest, "Only command jobs can be retried")
	case j.RetriedIn != "":
		return nil, Refuse(BadRequest, "Job has already been retried")
	case j.State == JobPassed && !retry.PermitOnPassed,
		j.State != JobPassed && j.State != JobFailed && j.State != JobTimedOut && j.State != JobCanceled:
		return nil, Refuse(BadRequest, "Only failed, timed out or canceled jobs can be retried, this one is %s", j.State)
	case j.build.canceling:
		return nil, Refuse(Invalid, "Jobs of a canceled build cannot be retried")
	case retry.ManualDenied:
		return nil, Refuse(Invalid, "%s", cmp.Or(retry.ManualReason, "The step does not allow manual retries"))
	}
	next := e.attempt(j, "manual")
	next.ruleCounts = make([]int, len(next.ruleCounts))
	e.reopen(j.build, j.node)
	e.makeReady(next)
	return next, nil
}

// reopen lets the steps that were waiting_failed wait again.
func (e *Engine) reopen(b *build, n *node) {
	n.state, n.failed = nodeOpen, false
	if g := n.parent; g != nil {
		g.state, g.failed = nodeWaiting, false
	}
	for _, m := range withChildren(b.nodes) {
		if !slices.ContainsFunc(m.jobs, func(j *job) bool { return j.State == JobWaitingFailed }) {
			continue
		}
		m.state, m.failed = nodeWaiting, false
		if g := m.parent; g != nil {
			g.state, g.failed = nodeWaiting, false
		}
		for _, j := range m.jobs {
			if j.State == JobWaitingFailed {
				j.BrokenReason, j.FinishedAt = "", time.Time{}
				e.joinGroup(j)
				e.setJob(j, JobWaiting)
			}
		}
	}
}

// RetryFailedJobs retries what failed in a build and returns how many jobs
// that were. states are the job states to retry; none means failed and
// timed_out.
func (e *Engine) RetryFailedJobs(id string, states []JobState) (b Build, count int, err error) {
	if len(states) == 0 {
		states = []JobState{JobFailed, JobTimedOut}
	}
	b, err = query(e, e.findBuildByID, id, func(b *build) (Build, error) {
		for _, j := range slices.Clone(b.jobs) {
			if j.RetriedIn == "" && j.Type == TypeScript && slices.Contains(states, j.State) {
				if _, err := e.manualRetry(j); err == nil {
					count++
				}
			}
		}
		e.advance(b)
		e.dispatch()
		return b.snapshot(), nil
	})
	return b, count, err
}
