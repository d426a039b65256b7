package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema"
)

// The artifact store is down for longer than a job has, and comes back: the
// job's next try on the same machine hands the kept result over. Nothing is
// judged twice, and the build is green with a passed result.
func TestResultOutlivesTheArtifactStore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	// The step's own time is whole minutes: kbrun's is cut short by a signal.
	const steps = `steps:
  - key: evaluate
    command: |
      if [ "$$BUILDKITE_RETRY_COUNT" = 0 ]; then
        until test -e "$$STORE_IS_DOWN"; do sleep 0.1; done
        kbrun evaluate --gpu-vendor none & pid=$$!
        until grep -qs passed result.json; do sleep 0.1; done
        until ls "$$BUILDKITE_BUILD_PATH"/.kbrun-results/*.kept >/dev/null 2>&1; do sleep 0.1; done
        kill -TERM $$pid; wait $$pid
      else
        kbrun evaluate --gpu-vendor none
      fi
    agents: {queue: cpu}
    retry: {automatic: [{exit_status: [2, 75], limit: 2}]}
`
	if _, err := r.Engine.CreatePipeline(engine.Pipeline{Slug: "kept", Configuration: steps, SkipCheckout: true}); err != nil {
		t.Fatal(err)
	}
	down := filepath.Join(t.TempDir(), "down")
	env := map[string]string{schema.EnvRunID: "kept-1", schema.EnvPayload: encoded(t, "test"), "STORE_IS_DOWN": down}
	b, err := r.Engine.CreateBuild("kept", engine.NewBuild{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	// The first try announces its artifact in vain.
	r.addFault("POST /v3/jobs/" + b.Jobs[0].ID + "/artifacts status=503")
	if err := os.WriteFile(down, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b = r.wait(b)
	if got, want := r.jobs(), "evaluate=failed evaluate=passed"; got != want || b.State != engine.BuildPassed {
		t.Fatalf("build %s, jobs %q, want %q", b.State, got, want)
	}
	all, err := r.Engine.BuildArtifacts(b.ID, true)
	if err != nil || len(all) != 1 || all[0].Path != "result.json" {
		t.Fatalf("artifacts %+v (%v), want result.json once", all, err)
	}
	data, err := os.ReadFile(r.Engine.ArtifactFile(all[0].ID))
	if err != nil {
		t.Fatal(err)
	}
	result, err := schema.DecodeResult(data)
	if err != nil || result.Outcome.Name != schema.OutcomePassed || !result.Retained || result.RunID != "kept-1" {
		var text map[string]any
		json.Unmarshal(data, &text)
		t.Errorf("result %v: %v", text, err)
	}
}
