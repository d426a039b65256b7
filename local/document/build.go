package document

import (
	"slices"
	"strconv"

	"github.com/gpu-mode/kbgen/local/engine"
)

// A Build is a build as JSON.
type Build struct {
	ID           string            `json:"id"`
	GraphQLID    string            `json:"graphql_id"`
	URL          string            `json:"url"`
	WebURL       string            `json:"web_url"`
	Number       int               `json:"number"`
	State        string            `json:"state"`
	Blocked      bool              `json:"blocked"`
	CancelReason *string           `json:"cancel_reason"`
	Message      string            `json:"message"`
	Commit       string            `json:"commit"`
	Branch       string            `json:"branch"`
	Tag          *string           `json:"tag"` // always null
	Source       string            `json:"source"`
	Author       *Person           `json:"author"`
	Creator      *Person           `json:"creator"`
	Env          map[string]string `json:"env"`
	MetaData     map[string]string `json:"meta_data"`
	CreatedAt    Timestamp         `json:"created_at"`
	ScheduledAt  Timestamp         `json:"scheduled_at"`
	StartedAt    Timestamp         `json:"started_at"`
	FailingAt    Timestamp         `json:"failing_at"`
	FinishedAt   Timestamp         `json:"finished_at"`
	RebuiltFrom  *buildRef         `json:"rebuilt_from"`
	PullRequest  *pullRequest      `json:"pull_request"`
	Triggered    *triggeredFrom    `json:"triggered_from"`
	ClusterID    string            `json:"cluster_id"`

	Jobs           *[]Job          `json:"jobs,omitempty"`
	JobStateCounts *jobStateCounts `json:"job_state_counts,omitempty"`
	Pipeline       *Pipeline       `json:"pipeline,omitempty"`

	// RetriedJobsCount is in the answer to retry_failed_jobs only.
	RetriedJobsCount *int `json:"retried_jobs_count,omitempty"`
}

// A BuildRef is the build another one was made from.
type buildRef struct {
	ID     string `json:"id"`
	Number int    `json:"number"`
	URL    string `json:"url"`
}

// A TriggeredFrom is the build whose trigger step started another one.
type triggeredFrom struct {
	BuildID     string `json:"build_id"`
	BuildNumber int    `json:"build_number"`
	Pipeline    string `json:"build_pipeline_slug"`
}

// A PullRequest is what a build was created with.
type pullRequest struct {
	ID         string   `json:"id"` // the number, in decimal
	Base       *string  `json:"base"`
	Repository *string  `json:"repository"`
	Labels     []string `json:"labels"`
}

// jobStateCounts counts all jobs of a build, superseded attempts and waiters
// too.
type jobStateCounts struct {
	Total  int            `json:"total"`
	States map[string]int `json:"states"`
}

// BuildFields choose what a build is shown with.
type BuildFields struct {
	Jobs      bool
	Retried   bool     // superseded attempts among the jobs
	JobStates []string // nil: all
	Counts    bool
	Pipeline  bool
}

// Build shows a build with the fields asked for.
func (v *View) Build(b engine.Build, fields BuildFields) Build {
	out := Build{
		ID: b.ID, GraphQLID: graphQLID("Build", b.ID),
		URL: v.buildURL(b.Pipeline, b.Number), WebURL: v.buildPage(b.Pipeline, b.Number),
		Number: b.Number, State: string(b.State), Blocked: b.Blocked,
		Message: b.Message, Commit: b.Commit, Branch: b.Branch, Source: b.Source,
		Author: v.Person(b.Author), Creator: v.Person(b.Creator),
		Env: notNil(b.Env), MetaData: notNil(b.MetaData),
		CreatedAt: v.Time(b.CreatedAt), ScheduledAt: v.Time(b.ScheduledAt), StartedAt: v.Time(b.StartedAt),
		FailingAt: v.Time(b.FailingAt), FinishedAt: v.Time(b.FinishedAt),
		ClusterID: engine.ClusterID,
	}
	if from := b.RebuiltFrom; from != nil {
		out.RebuiltFrom = &buildRef{ID: from.ID, Number: from.Number, URL: v.buildURL(b.Pipeline, from.Number)}
	}
	if from := b.TriggeredFrom; from != nil {
		out.Triggered = &triggeredFrom{from.BuildID, from.Number, from.Pipeline}
	}
	if b.PullRequestID != 0 {
		out.PullRequest = &pullRequest{
			ID: strconv.Itoa(b.PullRequestID), Base: orNull(b.PullRequestBase),
			Repository: orNull(b.PullRequestRepo), Labels: append([]string{}, b.PullRequestLabels...),
		}
	}
	if fields.Jobs {
		out.Jobs = new(v.jobs(b.Jobs, fields))
	}
	if fields.Counts {
		out.JobStateCounts = countStates(b.Jobs)
	}
	if fields.Pipeline {
		if p, err := v.engine.Pipeline(b.Pipeline); err == nil { // it may be gone
			out.Pipeline = v.Pipeline(p)
		}
	}
	return out
}

func (v *View) jobs(all []engine.Job, fields BuildFields) []Job {
	out := []Job{}
	for _, j := range all {
		if j.RetriedIn != "" && !fields.Retried || fields.JobStates != nil && !slices.Contains(fields.JobStates, string(j.State)) {
			continue
		}
		out = append(out, v.Job(j))
	}
	return out
}

func countStates(jobs []engine.Job) *jobStateCounts {
	counts := &jobStateCounts{Total: len(jobs), States: map[string]int{}}
	for _, j := range jobs {
		counts.States[string(j.State)]++
	}
	return counts
}

func notNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}
