package engine

import (
	"maps"
	"slices"

	"github.com/gpu-mode/kbgen/local/steps"
)

// block makes a block or input step wait for a person.
func (e *Engine) block(j *job) {
	j.RunnableAt = e.now()
	e.setJob(j, JobBlocked)
}

// setBlocked notes that a build waits for a person. Its state is the one that
// the step says, and as at the service not "blocked".
func (e *Engine) setBlocked(b *build, j *job, failed bool) {
	state := BuildPassed
	switch {
	case failed || j.Step.BlockedState == string(BuildFailed):
		state = BuildFailed
	case j.Step.BlockedState == string(BuildRunning):
		state = BuildRunning
	}
	if b.Blocked && b.State == state {
		return
	}
	if b.StartedAt.IsZero() {
		b.StartedAt = e.now()
	}
	b.Blocked, b.State = true, state
	e.ended = append(e.ended, b) // a trigger step does not wait for one that is blocked and passed
	e.publish(EventBuildBlocked, b, j, nil)
	b.wake()
}

// Unblock answers a block or input step: fields are its answers by key, those
// of a select with several choices more than one each. They become meta-data.
func (e *Engine) Unblock(jobID string, fields map[string][]string, who Person) (Job, error) {
	return query(e, e.findJob, jobID, func(j *job) (Job, error) {
		switch {
		case j.Type != TypeManual:
			return Job{}, Refuse(BadRequest, "This job type cannot be unblocked")
		case j.build.canceling:
			return Job{}, Refuse(Invalid, "Jobs from canceled builds cannot be unblocked")
		case j.State != JobBlocked:
			return Job{}, Refuse(Invalid, "Job is %s and cannot be unblocked", j.State)
		}
		answers := map[string]string{}
		for i := range j.Step.Fields {
			f := &j.Step.Fields[i]
			answer, err := f.Answer(fields[f.Key])
			if err != nil {
				return Job{}, Refuse(Invalid, "%v", err)
			}
			if len(answer) > MaxMetaData {
				return Job{}, Refuse(Invalid, "field %s: got %d bytes, want at most %d", f.Key, len(answer), MaxMetaData)
			}
			if answer != "" {
				answers[f.Key] = answer
			}
		}
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			if !slices.ContainsFunc(j.Step.Fields, func(f steps.Field) bool { return f.Key == key }) {
				return Job{}, Refuse(Invalid, "field %q: the step has no such field", key)
			}
		}
		b := j.build
		if len(answers) > 0 {
			maps.Copy(b.MetaData, answers)
			e.publish(EventBuildMetaData, b, nil, nil)
		}
		j.Unblocker, j.UnblockedAt = who, e.now()
		e.end(j, JobUnblocked)
		e.advance(b)
		e.dispatch()
		return j.snapshot(), nil
	})
}
