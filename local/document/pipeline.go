package document

import (
	"strings"

	"github.com/gpu-mode/kbgen/local/engine"
)

// A Pipeline is a pipeline as JSON. A build's has no details.
type Pipeline struct {
	ID                   string       `json:"id"`
	GraphQLID            string       `json:"graphql_id"`
	URL                  string       `json:"url"`
	WebURL               string       `json:"web_url"`
	Name                 string       `json:"name"`
	Slug                 string       `json:"slug"`
	Description          *string      `json:"description"`
	Repository           string       `json:"repository"`
	DefaultBranch        string       `json:"default_branch"`
	ClusterID            string       `json:"cluster_id"`
	ClusterURL           string       `json:"cluster_url"`
	Provider             providerJSON `json:"provider"`
	BranchConfiguration  *string      `json:"branch_configuration"` // always null
	SkipQueued           bool         `json:"skip_queued_branch_builds"`
	SkipQueuedFilter     *string      `json:"skip_queued_branch_builds_filter"`
	CancelRunning        bool         `json:"cancel_running_branch_builds"`
	CancelRunningFilter  *string      `json:"cancel_running_branch_builds_filter"`
	AllowRebuilds        bool         `json:"allow_rebuilds"` // always true
	DefaultTimeout       *int         `json:"default_command_step_timeout"`
	MaximumTimeout       *int         `json:"maximum_command_step_timeout"`
	Visibility           string       `json:"visibility"`
	Tags                 []string     `json:"tags"`
	BuildsURL            string       `json:"builds_url"`
	BadgeURL             string       `json:"badge_url"`
	CreatedAt            Timestamp    `json:"created_at"`
	CreatedBy            *Person      `json:"created_by"`  // always null
	ArchivedAt           Timestamp    `json:"archived_at"` // always null
	PipelineTemplateUUID *string      `json:"pipeline_template_uuid"`
	*pipelineDetails
}

// pipelineDetails are the fields of a pipeline that a build's does not have.
type pipelineDetails struct {
	Env             map[string]string `json:"env"`
	Configuration   string            `json:"configuration"` // YAML
	Steps           []struct{}        `json:"steps"`         // always empty: the configuration says it
	ScheduledBuilds int               `json:"scheduled_builds_count"`
	RunningBuilds   int               `json:"running_builds_count"`
	ScheduledJobs   int               `json:"scheduled_jobs_count"`
	RunningJobs     int               `json:"running_jobs_count"`
	WaitingJobs     int               `json:"waiting_jobs_count"`
}

// A Provider is where a pipeline's repository lies. Settings must be there:
// go-buildkite cannot decode a pipeline without it.
type providerJSON struct {
	ID         string   `json:"id"`
	WebhookURL *string  `json:"webhook_url"`
	Settings   struct{} `json:"settings"`
}

// Pipeline shows a pipeline without its details, as a build has it.
func (v *View) Pipeline(p engine.Pipeline) *Pipeline {
	url := v.pipelineURL(p.Slug)
	provider := "git"
	if strings.Contains(p.Repository, "github.com") {
		provider = "github"
	}
	return &Pipeline{
		ID: p.ID, GraphQLID: graphQLID("Pipeline", p.ID), URL: url,
		WebURL: v.base + "/" + v.engine.Organization() + "/" + p.Slug,
		Name:   p.Name, Slug: p.Slug, Description: orNull(p.Description), Repository: p.Repository,
		DefaultBranch: p.DefaultBranch, ClusterID: engine.ClusterID, ClusterURL: v.clusterURL(),
		Provider: providerJSON{ID: provider}, AllowRebuilds: true, Visibility: "private", Tags: []string{},
		BuildsURL: url + "/builds", BadgeURL: v.base + "/badge/" + p.ID + ".svg", CreatedAt: v.Time(p.CreatedAt),
	}
}

// PipelineWithDetails shows a pipeline by itself, with its unfinished builds
// and their jobs counted.
func (v *View) PipelineWithDetails(p engine.Pipeline) *Pipeline {
	out := v.Pipeline(p)
	d := &pipelineDetails{Env: notNil(p.Env), Configuration: p.Configuration, Steps: []struct{}{}}
	unfinished := []engine.BuildState{engine.BuildScheduled, engine.BuildRunning, engine.BuildFailing, engine.BuildCanceling}
	for _, b := range v.engine.Builds(engine.BuildFilter{Pipeline: p.Slug, States: unfinished}) {
		if b.State == engine.BuildScheduled {
			d.ScheduledBuilds++
		} else {
			d.RunningBuilds++
		}
		for i := range b.Jobs {
			switch state := b.Jobs[i].State; {
			case state == engine.JobScheduled || state == engine.JobLimited:
				d.ScheduledJobs++
			case state.Held():
				d.RunningJobs++
			case state == engine.JobWaiting:
				d.WaitingJobs++
			}
		}
	}
	out.pipelineDetails = d
	return out
}
