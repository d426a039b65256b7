package e2e

import (
	"testing"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema"
)

// A bootstrap job that is lost after its upload is started again, and does not
// upload again: the evaluation runs once, and the build is green.
func TestRetriedBootstrapUploadsOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const steps = `steps:
  - key: bootstrap
    command: kbgen upload evaluate && [ "$$BUILDKITE_RETRY_COUNT" = 1 ]
    agents: {queue: bootstrap}
    retry: {automatic: [{exit_status: 1, limit: 1}]}
`
	if _, err := r.Engine.CreatePipeline(engine.Pipeline{Slug: "twice", Configuration: steps, SkipCheckout: true}); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{schema.EnvGPU: "CPU_BK", schema.EnvRunID: "once", schema.EnvPayload: encoded(t, "test")}
	b, err := r.Engine.CreateBuild("twice", engine.NewBuild{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	b = r.wait(b)
	if got, want := r.jobs(), "bootstrap=failed bootstrap=passed evaluate-cpu=passed"; got != want || b.State != engine.BuildPassed {
		t.Errorf("build %s, jobs %q, want %q", b.State, got, want)
	}
	all, err := r.Engine.BuildArtifacts(b.ID, true)
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, a := range all {
		if a.Path == "pipeline.yml" {
			kept++
		}
	}
	if kept != 1 {
		t.Errorf("%d artifacts pipeline.yml, want that of the one upload", kept)
	}
}
