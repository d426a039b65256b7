package engine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema/condition"
)

// jobEnv is the environment of a job on an agent: pipeline settings, then the
// build's env, then the env of the upload that brought the step, then the
// step's, and over all of them the standard variables. Without an agent those that
// tell of it are missing.
func (e *Engine) jobEnv(j *job, a *agent) map[string]string {
	b := j.build
	env := cloneMap(b.pipeline.Env)
	maps.Copy(env, b.Env)
	maps.Copy(env, j.topEnv)
	maps.Copy(env, j.Step.Env)
	maps.Copy(env, e.buildEnv(b))
	maps.Copy(env, e.stepEnv(j))
	if a == nil {
		return env
	}
	for _, tag := range a.Tags {
		key, value, _ := strings.Cut(tag, "=")
		env["BUILDKITE_AGENT_META_DATA_"+envName(key)] = value
	}
	env["BUILDKITE_AGENT_META_DATA_QUEUE"] = a.Queue
	env["BUILDKITE_AGENT_ID"] = a.ID
	env["BUILDKITE_AGENT_NAME"] = a.Name
	return env
}

// envName spells a tag as part of a variable: upper case, everything but
// letters and digits becomes "_".
func envName(tag string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(tag))
}

// buildEnv are the standard variables all jobs of a build share.
func (e *Engine) buildEnv(b *build) map[string]string {
	p := b.pipeline
	env := map[string]string{
		"CI": "true", "BUILDKITE": "true",
		"BUILDKITE_ORGANIZATION_SLUG":       e.opts.Organization,
		"BUILDKITE_ORGANIZATION_ID":         OrganizationID,
		"BUILDKITE_CLUSTER_ID":              ClusterID,
		"BUILDKITE_CLUSTER_NAME":            ClusterName,
		"BUILDKITE_COMPUTE_TYPE":            "self-hosted",
		"BUILDKITE_PIPELINE_ID":             p.ID,
		"BUILDKITE_PIPELINE_SLUG":           p.Slug,
		"BUILDKITE_PIPELINE_NAME":           p.Name,
		"BUILDKITE_PIPELINE_DEFAULT_BRANCH": p.DefaultBranch,
		"BUILDKITE_PIPELINE_PROVIDER":       "git",
		"BUILDKITE_REPO":                    cmp.Or(p.Repository, "none"), // must not be empty, even without a checkout
		"BUILDKITE_BUILD_ID":                b.ID,
		"BUILDKITE_BUILD_NUMBER":            strconv.Itoa(b.Number),
		"BUILDKITE_BUILD_URL":               e.BuildURL(b.Pipeline, b.Number),
		"BUILDKITE_MESSAGE":                 b.Message,
		"BUILDKITE_SOURCE":                  b.Source,
		"BUILDKITE_BRANCH":                  b.Branch,
		"BUILDKITE_TAG":                     "",
		"BUILDKITE_COMMIT":                  b.Commit,
		"BUILDKITE_BUILD_CREATOR":           b.Creator.Name,
		"BUILDKITE_BUILD_CREATOR_EMAIL":     b.Creator.Email,
		"BUILDKITE_BUILD_AUTHOR":            cmp.Or(b.Author.Name, b.Creator.Name),
		"BUILDKITE_BUILD_AUTHOR_EMAIL":      cmp.Or(b.Author.Email, b.Creator.Email),
		"BUILDKITE_PULL_REQUEST":            "false",
		"BUILDKITE_REBUILT_FROM_BUILD_ID":   "",
	}
	if b.commit != "" {
		env["BUILDKITE_COMMIT"] = b.commit
		env["BUILDKITE_COMMIT_RESOLVED"] = "true"
	}
	if b.CleanCheckout {
		env["BUILDKITE_CLEAN_CHECKOUT"] = "true"
	}
	if b.PullRequestID != 0 {
		env["BUILDKITE_PULL_REQUEST"] = strconv.Itoa(b.PullRequestID)
		env["BUILDKITE_PULL_REQUEST_BASE_BRANCH"] = b.PullRequestBase
		env["BUILDKITE_PULL_REQUEST_REPO"] = b.PullRequestRepo
		env["BUILDKITE_PULL_REQUEST_LABELS"] = strings.Join(b.PullRequestLabels, ",")
	}
	if from := b.RebuiltFrom; from != nil {
		env["BUILDKITE_REBUILT_FROM_BUILD_ID"] = from.ID
		env["BUILDKITE_REBUILT_FROM_BUILD_NUMBER"] = strconv.Itoa(from.Number)
	}
	if from := b.TriggeredFrom; from != nil {
		env["BUILDKITE_TRIGGERED_FROM_BUILD_ID"] = from.BuildID
		env["BUILDKITE_TRIGGERED_FROM_BUILD_NUMBER"] = strconv.Itoa(from.Number)
		env["BUILDKITE_TRIGGERED_FROM_BUILD_PIPELINE_SLUG"] = from.Pipeline
	}
	if p.SkipCheckout {
		env["BUILDKITE_SKIP_CHECKOUT"] = "true"
	}
	if p.CheckoutPath != "" {
		env["BUILDKITE_BUILD_CHECKOUT_PATH"] = p.CheckoutPath
	}
	return env
}

// stepEnv are the standard variables of one job.
func (e *Engine) stepEnv(j *job) map[string]string {
	env := map[string]string{
		"BUILDKITE_JOB_ID":         j.ID,
		"BUILDKITE_COMMAND":        j.Step.Command,
		"BUILDKITE_PLUGINS":        joinPlugins(j.Step.Plugins),
		"BUILDKITE_ARTIFACT_PATHS": strings.Join(j.Step.ArtifactPaths, ";"),
		"BUILDKITE_LABEL":          j.Label,
		"BUILDKITE_STEP_ID":        j.StepID,
		"BUILDKITE_STEP_KEY":       j.StepKey,
		"BUILDKITE_RETRY_COUNT":    strconv.Itoa(j.RetriesCount),
		"BUILDKITE_RETRY_TYPE":     j.RetryType,
		"BUILDKITE_TIMEOUT":        "false",
	}
	if j.Timeout > 0 {
		env["BUILDKITE_TIMEOUT"] = strconv.Itoa(int(j.Step.Timeout / time.Minute))
	}
	if j.ParallelTotal > 0 {
		env["BUILDKITE_PARALLEL_JOB"] = strconv.Itoa(j.ParallelIndex)
		env["BUILDKITE_PARALLEL_JOB_COUNT"] = strconv.Itoa(j.ParallelTotal)
	}
	if j.GroupID != "" {
		env["BUILDKITE_GROUP_ID"] = j.GroupID
		env["BUILDKITE_GROUP_KEY"] = j.GroupKey
		env["BUILDKITE_GROUP_LABEL"] = j.GroupLabel
	}
	for name, on := range map[string]*bool{
		"BUILDKITE_SKIP_CHECKOUT":   j.Step.Checkout.Skip,
		"BUILDKITE_GIT_SUBMODULES":  j.Step.Checkout.Submodules,
		"BUILDKITE_GIT_LFS_ENABLED": j.Step.Checkout.LFS,
	} {
		if on != nil {
			env[name] = strconv.FormatBool(*on)
		}
	}
	return env
}

func joinPlugins(plugins []json.RawMessage) string {
	if len(plugins) == 0 {
		return ""
	}
	parts := make([][]byte, len(plugins))
	for i, p := range plugins {
		parts[i] = p
	}
	return "[" + string(bytes.Join(parts, []byte(","))) + "]"
}

// The only cluster and organization.
const (
	OrganizationID = "0190c0de-0000-4000-8000-000000000001"
	ClusterID      = "0190c0de-0000-4000-8000-000000000002"
	ClusterName    = "Default cluster"
)

// BuildURL is the page of a build.
func (e *Engine) BuildURL(slug string, number int) string {
	return fmt.Sprintf("%s/%s/%s/builds/%d", e.opts.URL, e.opts.Organization, slug, number)
}

// backendEnv is what the backend fills into stored steps, and what conditions may
// read.
func (e *Engine) backendEnv(b *build) map[string]string {
	env := cloneMap(b.pipeline.Env)
	maps.Copy(env, b.Env)
	maps.Copy(env, e.buildEnv(b))
	return env
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// conditionVars are what the if of a step may read.
func (e *Engine) conditionVars(b *build) condition.Vars {
	values := map[string]any{
		"build.id":      b.ID,
		"build.number":  float64(b.Number),
		"build.branch":  b.Branch,
		"build.commit":  b.Commit,
		"build.message": b.Message,
		"build.source":  b.Source,
		"build.tag":     nil,
		"build.state":   string(b.State),

		"build.author.name":   orNil(cmp.Or(b.Author.Name, b.Creator.Name)),
		"build.author.email":  orNil(cmp.Or(b.Author.Email, b.Creator.Email)),
		"build.author.id":     orNil(b.Author.ID),
		"build.creator.name":  orNil(b.Creator.Name),
		"build.creator.email": orNil(b.Creator.Email),
		"build.creator.id":    orNil(b.Creator.ID),

		"build.pull_request.id":          nil,
		"build.pull_request.base_branch": orNil(b.PullRequestBase),
		"build.pull_request.repository":  orNil(b.PullRequestRepo),
		"build.pull_request.labels":      b.PullRequestLabels,
		"build.pull_request.draft":       nil,

		"build.author.teams":                 []string{},
		"build.creator.teams":                []string{},
		"build.pull_request.repository.fork": nil,
		"build.merge_queue.base_branch":      nil,
		"build.merge_queue.base_commit":      nil,

		"pipeline.id":             b.pipeline.ID,
		"pipeline.slug":           b.pipeline.Slug,
		"pipeline.default_branch": b.pipeline.DefaultBranch,
		"pipeline.repository":     b.pipeline.Repository,
		"organization.id":         OrganizationID,
		"organization.slug":       e.opts.Organization,
	}
	if b.PullRequestID != 0 {
		values["build.pull_request.id"] = strconv.Itoa(b.PullRequestID)
		values["build.pull_request.draft"] = false
	}
	return condition.Vars{Values: values, Env: e.backendEnv(b)}
}

// JobEnv is the environment of a job as an agent gets it, payload and all.
// Before an agent has the job, the variables that tell of the agent are
// missing.
func (e *Engine) JobEnv(jobID string) (map[string]string, error) {
	return query(e, e.findJob, jobID, func(j *job) (map[string]string, error) {
		return e.jobEnv(j, e.agents[j.AgentID]), nil
	})
}
