package engine

import "slices"

// CancelBuild cancels what has not ended. Jobs with an agent end when the
// agent has stopped them.
func (e *Engine) CancelBuild(slug string, number int) (Build, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := e.findBuild(slug, number)
	if err != nil {
		return Build{}, err
	}
	if err := e.cancelBuild(b); err != nil {
		return Build{}, err
	}
	return b.snapshot(), nil
}

// CancelBuildByID is [Engine.CancelBuild] for `buildkite-agent build cancel`.
func (e *Engine) CancelBuildByID(id string) (Build, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.byID[id]
	if !ok {
		return Build{}, refuse(NotFound, "No build found")
	}
	if err := e.cancelBuild(b); err != nil {
		return Build{}, err
	}
	return b.snapshot(), nil
}

func (e *Engine) cancelBuild(b *build) error {
	if b.State.Terminal() || b.canceling {
		return refuse(Invalid, "Build can't be canceled because it's already %s", b.State)
	}
	b.canceling = true
	for _, j := range slices.Clone(b.jobs) {
		if !j.State.Finished() {
			e.cancelJob(j)
		}
	}
	e.advance(b)
	e.dispatch()
	return nil
}

// cancelJob ends a job that no agent has begun, and tells the agent otherwise:
// it reads the state about once a second.
func (e *Engine) cancelJob(j *job) {
	switch j.State {
	case JobAccepted, JobRunning, JobTimingOut:
		e.setJob(j, JobCanceling)
	case JobCanceling:
	default:
		e.end(j, JobCanceled)
	}
}

// CancelStep cancels the jobs of a step, named by its id or key.
func (e *Engine) CancelStep(buildID, step string) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, b, err := e.findStep(buildID, step)
	if err != nil {
		return "", err
	}
	for _, j := range slices.Clone(n.jobs) {
		if !j.State.Finished() {
			e.cancelJob(j)
		}
	}
	e.advance(b)
	e.dispatch()
	return n.id, nil
}

// cancelOnFailing cancels the jobs that asked for it, once a build fails.
func (e *Engine) cancelOnFailing(b *build) {
	for _, j := range slices.Clone(b.jobs) {
		if j.Step != nil && j.Step.CancelOnBuildFailing && !j.State.Finished() {
			e.cancelJob(j)
		}
	}
}
