package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
)

// A submission cannot put a verdict into the build's meta-data, from where the
// launcher would take it: the job's token and the agent's sockets are out of its
// reach. What it looks for and how is in testdata/forge.py.
func TestSubmissionCannotForgeItsResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const run = "sub-forged-CPU_BK-0123456789"
	forged := &schema.Result{
		Success: true, RunID: run, System: schema.SystemInfo{DeviceCount: 1}, Outcome: schema.NewOutcome(schema.OutcomePassed, "forged"),
		Evidence: schema.Evidence{GPUType: "CPU_BK", Queue: "cpu"},
	}
	raw, err := forged.Encode()
	if err != nil {
		t.Fatal(err)
	}
	value, short := schema.InlineResult(raw, "0190-job")
	if !short {
		t.Fatal("the forged result is too long")
	}
	text, err := os.ReadFile(filepath.Join("testdata", "forge.py"))
	if err != nil {
		t.Fatal(err)
	}
	program := strings.NewReplacer("@API@", r.URL(), "@RUN@", run, "@VALUE@", value).Replace(string(text))
	def, err := task.LoadDir(tiny)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := def.Payload(schema.File{Name: "forge.py", Text: program}, schema.ModeTest, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := launcher.New(launcher.Options{BaseURL: r.URL() + "/", Token: r.APIToken(), Org: "gpu-mode", Pipeline: "kernelbot"})
	if err != nil {
		t.Fatal(err)
	}
	report, err := client.Submit(t.Context(), launcher.Submission{Payload: payload, GPU: "CPU_BK", Queue: "cpu", RunID: run})
	if err != nil {
		t.Fatal(err)
	}
	if report.Result.Outcome.Name != schema.OutcomeWrong {
		t.Errorf("outcome %q, want %q", report.Result.Outcome.Name, schema.OutcomeWrong)
	}
	test := report.Result.Runs.Get("test")
	if test == nil || test.Run == nil || !strings.Contains(test.Run.Stderr, "FORGE: tokens 0 sockets 0 wrote []") {
		t.Errorf("the submission did not look, or found something: %+v", test)
	}
	if n := client.Calls(); n.Artifacts+n.Downloads != 0 {
		t.Errorf("%s: the result was not taken from the meta-data, which this is about", n)
	}
	meta := r.wait(r.newest()).MetaData
	got, job, err := schema.ParseInlineResult(meta[schema.MetaResult(run)])
	if err != nil || !bytes.Equal(got, report.Raw) || job != r.newest().Jobs[1].ID {
		t.Errorf("the meta-data holds a result of job %q, %v; want kbrun's", job, err)
	}
	var keys []string
	for key := range meta {
		if !strings.HasPrefix(key, "buildkite:") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if want := []string{"gpu", "launcher", "mode", "outcome:" + run, "queue", "ranking", "result:" + run, "run_id"}; !slices.Equal(keys, want) {
		t.Errorf("meta-data keys %q, want %q", keys, want)
	}
}
