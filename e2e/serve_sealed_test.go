package e2e

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/popcorn"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/secrets"
)

// What kbserve hands to Buildkite of a sealed queue's submissions tells nobody their
// code or their file's name, and neither do its log and its metrics.
func TestServeSealed(t *testing.T) {
	t.Parallel()
	r, broker := newSealingRig(t, oidcPolicy)
	dir, file := plantedTask(t)
	b := newBackendRig(t, r.Server, "SQLite")
	b.user("1001")
	b.do("board", "create", "tiny", dir, "--deadline", "2100-01-01", "--gpu", "CPU_BK")
	address := freeAddress(t)
	i := b.serve(address, "--rate", "0", "--seal", r.sealFile(broker.key, ", id: "+r.queueID()+", steps: [evaluate-cpu], refs: [refs/heads/main], sources: [api]"))
	code, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	c := popcorn.Client{URL: "http://" + address, CLIID: b.users["1001"], Poll: 200 * time.Millisecond}
	if s, err := c.Run(ctx, "tiny", "CPU_BK", "leaderboard", canaryName+".py", code); err != nil || len(s.Runs) != 6 {
		t.Fatalf("%+v, %v; want six runs", s, err)
	}
	i.stop()
	builds := r.Engine.Builds(engine.BuildFilter{})
	for _, build := range builds {
		if !strings.HasPrefix(build.Env[schema.EnvPayload], secrets.Prefix) {
			t.Errorf("build %d carries a payload that is not sealed", build.Number)
		}
	}
	if len(builds) != 2 {
		t.Errorf("%d builds, want a public one and a secret one", len(builds))
	}
	places := r.everything()
	places["kbserve's log"] = []byte(i.logged())
	for place, data := range places {
		if found := told(data); slices.Contains(found, canaryCode) || slices.Contains(found, canaryName) {
			t.Errorf("%s tells %q", place, found)
		}
	}
}
