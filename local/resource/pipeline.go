package resource

import (
	"strings"

	"github.com/gpu-mode/kbgen/local/engine"
)

// A Pipeline is a pipeline's JSON shape. Inside of a build, the fields at the
// end are left out.
type Pipeline struct {
	ID                   string    `json:"id"`
	GraphQLID            string    `json:"graphql_id"`
	URL                  string    `json:"url"`
	WebURL               string    `json:"web_url"`
	Name                 string    `json:"name"`
	Slug                 string    `json:"slug"`
	Description          *string   `json:"description"`
	Repository           string    `json:"repository"`
	DefaultBranch        string    `json:"default_branch"`
	ClusterID            string    `json:"cluster_id"`
	ClusterURL           string    `json:"cluster_url"`
	Provider             Provider  `json:"provider"`
	BranchConfiguration  *string   `json:"branch_configuration"` // always null
	SkipQueued           bool      `json:"skip_queued_branch_builds"`
	SkipQueuedFilter     *string   `json:"skip_queued_branch_builds_filter"`
	CancelRunning        bool      `json:"cancel_running_branch_builds"`
	CancelRunningFilter  *string   `json:"cancel_running_branch_builds_filter"`
	AllowRebuilds        bool      `json:"allow_rebuilds"` // always true
	DefaultTimeout       *int      `json:"default_command_step_timeout"`
	MaximumTimeout       *int      `json:"maximum_command_step_timeout"`
	Visibility           string    `json:"visibility"`
	Tags                 []string  `json:"tags"`
	BuildsURL            string    `json:"builds_url"`
	BadgeURL             string    `json:"badge_url"`
	CreatedAt            Timestamp `json:"created_at"`
	CreatedBy            *Person   `json:"created_by"`  // always null
	ArchivedAt           Timestamp `json:"archived_at"` // always null
	PipelineTemplateUUID *string   `json:"pipeline_template_uuid"`
	*PipelineDetails
}

// PipelineDetails are the fields of a pipeline that a build's does not have.
type PipelineDetails struct {
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
type Provider struct {
	ID         string   `json:"id"`
	WebhookURL *string  `json:"webhook_url"`
	Settings   struct{} `json:"settings"`
}

// Pipeline is the shape of a pipeline inside of a build.
func (s *Shapes) Pipeline(p engine.Pipeline) *Pipeline {
	url := s.pipelineURL(p.Slug)
	provider := "git"
	if strings.Contains(p.Repository, "github.com") {
		provider = "github"
	}
	return &Pipeline{
		ID: p.ID, GraphQLID: graphQLID("Pipeline", p.ID), URL: url,
		WebURL: s.base + "/" + s.engine.Organization() + "/" + p.Slug,
		Name:   p.Name, Slug: p.Slug, Description: orNull(p.Description), Repository: p.Repository,
		DefaultBranch: p.DefaultBranch, ClusterID: engine.ClusterID, ClusterURL: s.clusterURL(),
		Provider: Provider{ID: provider}, AllowRebuilds: true, Visibility: "private", Tags: []string{},
		BuildsURL: url + "/builds", BadgeURL: s.base + "/badge/" + p.ID + ".svg", CreatedAt: s.at(p.CreatedAt),
	}
}

// pipelineOf looks a pipeline up by its slug; nil when it is gone.
func (s *Shapes) pipelineOf(slug string) *Pipeline {
	shape, ok := s.pipelines[slug]
	if !ok {
		if p, err := s.engine.Pipeline(slug); err == nil {
			shape = s.Pipeline(p)
		}
		s.pipelines[slug] = shape
	}
	return shape
}
