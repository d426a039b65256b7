package restapi_test

import (
	"strings"
	"testing"

	"github.com/buildkite/go-buildkite/v3/buildkite"

	"github.com/gpu-mode/kbgen/local/engine"
)

func TestPipelines(t *testing.T) {
	w := newRig(t, oneStep, nil)
	p, resp, err := w.client.Pipelines.Create("gpu-mode", &buildkite.CreatePipeline{
		Name: "My Pipeline", Repository: "git@github.com:example/x.git", Configuration: twoSteps, Env: map[string]string{"A": "1"},
		ProviderSettings: &buildkite.GitHubSettings{}, Tags: []string{"gpu"},
	})
	w.ok(err)
	if resp.StatusCode != 201 || *p.Slug != "my-pipeline" || *p.URL != w.url+orgURL+"/pipelines/my-pipeline" || p.Configuration != twoSteps || p.Env["A"] != "1" || p.Tags[0] != "gpu" {
		t.Errorf("Create = %+v", p)
	}
	if *p.SkipQueuedBranchBuilds || *p.CancelRunningBranchBuilds || *p.Visibility != "private" || *p.DefaultBranch != "main" {
		t.Errorf("Create = %+v, want both branch settings off, private, main", p)
	}
	p.Description, p.Visibility, p.Configuration = buildkite.String("d"), buildkite.String("public"), oneStep
	_, err = w.client.Pipelines.Update("gpu-mode", p) // PATCH with all that a get returns
	w.ok(err)
	p, _, err = w.client.Pipelines.Get("gpu-mode", "my-pipeline")
	if err != nil || *p.Description != "d" || *p.Visibility != "public" || p.Configuration != oneStep || p.Env["A"] != "1" {
		t.Errorf("Get after Update = %+v, %v", p, err)
	}
	w.want(200, "PUT", orgURL+"/pipelines/my-pipeline", `{"env":{}}`)
	if q, err := w.engine.Pipeline("my-pipeline"); err != nil || len(q.Env) != 0 || q.Name != "My Pipeline" {
		t.Errorf("after PUT of an empty env: %+v, %v", q, err)
	}
	w.build(engine.NewBuild{})
	w.take(w.agent("a"))
	w.build(engine.NewBuild{})
	all, _, err := w.client.Pipelines.List("gpu-mode", nil)
	if err != nil || len(all) != 2 {
		t.Fatalf("List = %d, %v, want 2", len(all), err)
	}
	var counted buildkite.Pipeline
	w.want(200, "GET", pipe, "").decode(t, &counted)
	if *counted.RunningBuildsCount != 1 || *counted.ScheduledBuildsCount != 1 || *counted.RunningJobsCount != 1 || *counted.ScheduledJobsCount != 1 {
		t.Errorf("counts = %+v, want one of each", counted)
	}
	var found []struct{ Slug string }
	w.want(200, "GET", orgURL+"/pipelines?name=my", "").decode(t, &found)
	if len(found) != 1 || found[0].Slug != "my-pipeline" {
		t.Errorf("pipelines?name=my = %v", found)
	}
	w.want(422, "DELETE", pipe, "")
	_, err = w.client.Pipelines.Delete("gpu-mode", "my-pipeline")
	w.ok(err)
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		w.want(404, method, orgURL+"/pipelines/my-pipeline", "")
	}
}

func TestPipelineRefuses(t *testing.T) {
	w := newRig(t, oneStep, nil)
	good := `"name":"n","repository":"r","configuration":"steps: [{command: x}]"`
	for body, field := range map[string]string{
		`{"repository":"r","configuration":"steps: [{command: x}]"}`: "name",
		`{"name":"n","repository":"r"}`:                              "configuration",
		`{"name":"n","configuration":"steps: [{command: x}]"}`:       "repository",
		`{"name":"n","repository":"r","configuration":" "}`:          "configuration",
		`{"name":"n","repository":"r","configuration":"steps: 3"}`:   "configuration",
		`{` + good + `,"slug":"eval"}`:                               "slug",
		`{` + good + `,"slug":"-"}`:                                  "slug",
		`{` + good + `,"cluster_id":"other"}`:                        "cluster_id",
		`{` + good + `,"visibility":"secret"}`:                       "visibility",
		`{` + good + `,"skip_queued_branch_builds":true}`:            "skip_queued_branch_builds",
		`{` + good + `,"cancel_running_branch_builds":true}`:         "cancel_running_branch_builds",
		`{` + good + `,"maximum_command_step_timeout":5}`:            "maximum_command_step_timeout",
		`{` + good + `,"steps":[]}`:                                  "steps",
	} {
		if got := w.want(422, "POST", orgURL+"/pipelines", body); !strings.Contains(got.body, `"field":"`+field+`"`) {
			t.Errorf("create %s = %s, want an error of %s", body, got.body, field)
		}
	}
	w.want(422, "PATCH", pipe, `{"configuration":""}`)
	w.want(422, "PATCH", pipe, `{"slug":"new"}`)
	w.want(200, "PATCH", pipe, `{"cluster_id":"`+engine.ClusterID+`"}`)
}
