package engine

import "time"

// Accept gives an assigned job to its agent.
func (e *Engine) Accept(agentID, jobID string) (Accepted, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, err := e.findJob(jobID)
	if err != nil {
		return Accepted{}, err
	}
	if j.State != JobAssigned || j.agent == nil || j.agent.ID != agentID {
		return Accepted{}, refuse(Invalid, "Job is %s, not assigned to this agent", j.State)
	}
	return e.accept(j), nil
}

// Acquire gives a ready job to an agent that asks for it by id. A job that is
// not ready yet is [Locked].
func (e *Engine) Acquire(agentID, jobID string) (Accepted, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.findAgent(agentID)
	if err != nil {
		return Accepted{}, err
	}
	j, err := e.findJob(jobID)
	switch {
	case err != nil:
		return Accepted{}, err
	case j.State == JobWaiting || j.State == JobLimited:
		return Accepted{}, refuse(Locked, "Job is %s", j.State)
	case j.State != JobScheduled || a.job != nil:
		return Accepted{}, refuse(Invalid, "Job is %s and cannot be acquired", j.State)
	}
	e.assign(j, a)
	return e.accept(j), nil
}

func (e *Engine) accept(j *job) Accepted {
	j.AcceptedAt = e.now()
	j.token = newToken("bkaj_")
	e.tokens[j.token] = j
	env := e.jobEnv(j)
	e.setJob(j, JobAccepted)
	return Accepted{Job: j.snapshot(), Env: env, Token: j.token}
}

// JobByToken returns the job of a job token. The token dies with the job.
func (e *Engine) JobByToken(token string) (Job, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, ok := e.tokens[token]
	if !ok {
		return Job{}, false
	}
	if j.agent != nil {
		j.agent.LastSeen = e.now()
	}
	return j.snapshot(), true
}

// Start notes that an accepted job's process is about to begin.
func (e *Engine) Start(jobID string, at time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, err := e.findJob(jobID)
	switch {
	case err != nil:
		return err
	case j.State == JobCanceling && j.StartedAt.IsZero(): // the agent reads the state soon
	case j.State != JobAccepted:
		return refuse(Invalid, "Job is %s, want accepted", j.State)
	}
	j.StartedAt = e.now()
	if j.State == JobAccepted {
		e.setJob(j, JobRunning)
	}
	e.publish(EventJobStarted, j.build, j, nil)
	e.settleBuild(j.build)
	return nil
}

// Job returns one job.
func (e *Engine) Job(id string) (Job, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, err := e.findJob(id)
	if err != nil {
		return Job{}, err
	}
	return j.snapshot(), nil
}

func (e *Engine) findJob(id string) (*job, error) {
	j, ok := e.jobs[id]
	if !ok {
		return nil, refuse(NotFound, "No job found")
	}
	return j, nil
}

// FinishJob takes an agent's report on the end of a job.
func (e *Engine) FinishJob(jobID string, f Finish) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, err := e.findJob(jobID)
	if err != nil {
		return err
	}
	if !j.State.Held() || j.State == JobAssigned {
		return refuse(Invalid, "Job is %s and cannot be finished", j.State)
	}
	if f.LeaveAgent && j.agent != nil {
		j.agent.leaving = true
	}
	e.finish(j, f)
	e.dispatch()
	return nil
}

// finish ends a held job, retries it when a rule says so, and moves the build.
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
