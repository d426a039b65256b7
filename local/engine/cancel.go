package engine

import "slices"

// CancelBuild cancels every job that has not ended. A job that an agent has ends
// when the agent has stopped it.
func (e *Engine) CancelBuild(id string) (Build, error) {
	return query(e, e.findBuildByID, id, func(b *build) (Build, error) {
		if b.Over() || b.canceling {
			return Build{}, Refuse(Invalid, "Build can't be canceled because it's already %s", b.State)
		}
		b.canceling = true
		e.cancelJobs(b.jobs)
		e.advance(b)
		e.dispatch()
		return b.snapshot(), nil
	})
}

func (e *Engine) cancelJobs(jobs []*job) {
	for _, j := range slices.Clone(jobs) {
		if !j.State.Finished() {
			e.cancelJob(j)
		}
	}
}

// cancelJob ends a job that no agent has accepted. For any other it sets the
// state, which the agent reads about once a second.
func (e *Engine) cancelJob(j *job) {
	if j.Type == TypeScript && j.State.Held() && j.State != JobAssigned {
		e.setJob(j, JobCanceling)
	} else { // no agent has to be told
		e.end(j, JobCanceled)
	}
}

// CancelStep cancels the jobs of a step, named by its id or key.
func (e *Engine) CancelStep(buildID, step string) (string, error) {
	return query(e, e.findBuildByID, buildID, func(b *build) (string, error) {
		n, err := b.step(step)
		if err != nil {
			return "", err
		}
		e.cancelJobs(n.jobs)
		e.advance(b)
		e.dispatch()
		return n.id, nil
	})
}

// cancelOnFailing cancels the jobs with cancel_on_build_failing once their build
// fails.
func (e *Engine) cancelOnFailing(b *build) {
	e.cancelJobs(slices.DeleteFunc(slices.Clone(b.jobs), func(j *job) bool { return !j.Step.CancelOnBuildFailing }))
}
