package restapi

import "github.com/gpu-mode/kbgen/local/engine"

const (
	orgPath   = "/v2/organizations/{org}"
	pipePath  = orgPath + "/pipelines/{pipeline}"
	buildPath = pipePath + "/builds/{number}"
	queuePath = orgPath + "/clusters/{cluster}/queues/{queue}"
)

// routes lists every endpoint.
func (a *api) routes() {
	a.handle("GET /v2/meta", "", (*call).meta)
	a.handle("GET /v2/access-token", "", (*call).accessToken)
	a.handle("GET /v2/user", "read_user", (*call).user)
	a.handle("GET /v2/organizations", "read_organizations", (*call).organizations)
	a.handle("GET "+orgPath, "read_organizations", (*call).organization)
	a.handle("GET "+orgPath+"/rate_limit", "read_accounts", (*call).rateLimit)
	a.handle("GET "+orgPath+"/rate-limit", "read_accounts", (*call).rateLimit)

	a.handle("GET /v2/builds", "read_builds", (*call).listBuilds)
	a.handle("GET "+orgPath+"/builds", "read_builds", (*call).listBuilds)
	a.handle("GET "+pipePath+"/builds", "read_builds", (*call).listBuilds)
	a.handle("POST "+pipePath+"/builds", "write_builds", (*call).createBuild)
	a.handle("GET "+buildPath, "read_builds", with((*call).build, (*call).getBuild))
	a.handle("PUT "+buildPath+"/cancel", "write_builds", with((*call).build, (*call).cancelBuild))
	a.handle("PUT "+buildPath+"/rebuild", "write_builds", with((*call).build, (*call).rebuild))
	a.handle("PUT "+buildPath+"/retry_failed_jobs", "write_builds", with((*call).build, (*call).retryFailedJobs))
	a.handle("GET "+buildPath+"/artifacts", "read_artifacts", with((*call).build, (*call).buildArtifacts))
	a.handle("GET "+buildPath+"/annotations", "read_builds", with((*call).build, (*call).buildAnnotations))
	a.handle("POST "+buildPath+"/annotations", "write_builds", with((*call).build, (*call).annotate))
	a.handle("DELETE "+buildPath+"/annotations/{annotation}", "write_builds", with((*call).build, (*call).removeAnnotation))
	a.handle("GET "+buildPath+"/jobs", "read_builds", with((*call).build, (*call).listJobs))
	for _, jobs := range []string{buildPath + "/jobs/{job}", orgPath + "/jobs/{job}"} {
		a.jobRoutes(jobs)
	}

	a.handle("GET "+orgPath+"/pipelines", "read_pipelines", (*call).listPipelines)
	a.handle("POST "+orgPath+"/pipelines", "write_pipelines", (*call).createPipeline)
	a.handle("GET "+pipePath, "read_pipelines", (*call).getPipeline)
	a.handle("PATCH "+pipePath, "write_pipelines", (*call).updatePipeline)
	a.handle("PUT "+pipePath, "write_pipelines", (*call).updatePipeline)
	a.handle("DELETE "+pipePath, "write_pipelines", (*call).deletePipeline)

	a.handle("GET "+orgPath+"/agents", "read_agents", (*call).listAgents)
	a.handle("GET "+orgPath+"/agents/{agent}", "read_agents", (*call).getAgent)
	a.handle("PUT "+orgPath+"/agents/{agent}/stop", "write_agents", (*call).stopAgent)
	a.handle("PUT "+orgPath+"/agents/{agent}/pause", "write_agents", (*call).pauseAgent)
	a.handle("PUT "+orgPath+"/agents/{agent}/resume", "write_agents", (*call).resumeAgent)

	a.handle("GET "+orgPath+"/clusters", "read_clusters", (*call).listClusters)
	a.handle("GET "+orgPath+"/clusters/{cluster}", "read_clusters", (*call).getCluster)
	a.handle("GET "+orgPath+"/clusters/{cluster}/queues", "read_clusters", (*call).listQueues)
	a.handle("POST "+orgPath+"/clusters/{cluster}/queues", "write_clusters", (*call).createQueue)
	a.handle("GET "+queuePath, "read_clusters", (*call).getQueue)
	a.handle("POST "+queuePath+"/pause_dispatch", "write_clusters", with((*call).queue, (*call).pauseQueue))
	a.handle("POST "+queuePath+"/resume_dispatch", "write_clusters", with((*call).queue, (*call).resumeQueue))

	a.handle(orgPath+"/{rest...}", "", (*call).notImplemented)
	a.handle("/v2/", "", (*call).unknown)
}

// jobRoutes adds the endpoints below a job's path. A job has two.
func (a *api) jobRoutes(jobs string) {
	a.handle("GET "+jobs, "read_builds", (*call).getJob)
	a.handle("PUT "+jobs+"/retry", "write_builds", with((*call).job, (*call).retryJob))
	a.handle("PUT "+jobs+"/reprioritize", "write_builds", with((*call).job, (*call).reprioritizeJob))
	a.handle("PUT "+jobs+"/unblock", "write_builds", with((*call).job, (*call).unblockJob))
	a.handle("GET "+jobs+"/log", "read_build_logs", with((*call).job, (*call).log))
	a.handle("GET "+jobs+"/log.txt", "read_build_logs", with((*call).job, (*call).log))
	a.handle("GET "+jobs+"/log.html", "read_build_logs", with((*call).job, (*call).log))
	a.handle("GET "+jobs+"/env", "read_job_env", with((*call).job, (*call).jobEnv))
	a.handle("GET "+jobs+"/annotations", "read_builds", with((*call).job, (*call).jobAnnotations))
	a.handle("GET "+jobs+"/artifacts", "read_artifacts", with((*call).job, (*call).jobArtifacts))
	a.handle("GET "+jobs+"/artifacts/{artifact}", "read_artifacts", with((*call).artifact, (*call).getArtifact))
	a.handle("GET "+jobs+"/artifacts/{artifact}/download", "read_artifacts", (*call).downloadArtifact)
	a.handle("DELETE "+jobs+"/artifacts/{artifact}", "write_artifacts", with((*call).artifact, (*call).deleteArtifact))
}

// notImplemented answers for endpoints that the service may have and the
// stand-in has not.
func (c *call) notImplemented() error {
	return engine.Refuse(engine.Invalid, "kblocal does not implement %s %s", c.r.Method, c.r.URL.Path)
}

// unknown answers for the rest of /v2/.
func (c *call) unknown() error {
	return engine.Refuse(engine.NotFound, "Not found: kblocal does not implement %s %s", c.r.Method, c.r.URL.Path)
}
