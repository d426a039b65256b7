package engine

import "maps"

// JobEnv is the environment of a job as an agent gets it, payload and all.
// Before an agent has the job, the variables that tell of the agent are
// missing.
func (e *Engine) JobEnv(jobID string) (map[string]string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, err := e.findJob(jobID)
	if err != nil {
		return nil, err
	}
	if j.agent != nil {
		return e.jobEnv(j), nil
	}
	if a, ok := e.agents[j.AgentID]; ok { // it had the job
		ended := *j
		ended.agent = a
		return e.jobEnv(&ended), nil
	}
	env := cloneMap(j.build.pipeline.Env)
	maps.Copy(env, j.build.Env)
	maps.Copy(env, j.topEnv)
	maps.Copy(env, j.Step.Env)
	maps.Copy(env, e.buildEnv(j.build))
	maps.Copy(env, e.stepEnv(j))
	return env, nil
}
