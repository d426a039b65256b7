package setup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	agentparser "github.com/buildkite/go-pipeline"

	"github.com/gpu-mode/kbgen/generator"
	nodeconfig "github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/gate"
	"github.com/gpu-mode/kbgen/pipelines"
)

// Every step that kbgen writes for a row with node isolation may run on a slot of
// that row, read as the agent reads it.
func TestGateTakesWhatKbgenWrites(t *testing.T) {
	jobs := 0
	for _, g := range pipelines.Fleet {
		if g.Isolation != pipelines.Node || g.Platform == pipelines.Kubernetes {
			continue
		}
		g.Off = ""
		commands, err := rowCommands(g)
		if err != nil {
			t.Fatal(err)
		}
		slot := nodeconfig.Slot{Name: "s0", Platform: string(g.Platform), Commands: commands}
		if g.Image != "" {
			slot.Images = []string{g.Image}
		}
		for _, name := range stepsOfRows {
			p, err := pipelines.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			if p.Serves != nil && !p.Serves(g) {
				continue
			}
			request := pipelines.Request{GPUs: []pipelines.GPUType{g}}
			if name == "evaluate" {
				request.Secret = &pipelines.Run{}
			}
			doc, err := generator.Render(p, request, generator.YAML)
			if err != nil {
				t.Fatalf("%s of %s: %v", name, g.Name, err)
			}
			for i, job := range jobsOf(t, doc) {
				jobs++
				if _, err := gate.Decide(&nodeconfig.Config{Slots: []*nodeconfig.Slot{&slot}}, "s0", job); err != nil {
					t.Errorf("%s of %s, step %d: %v", name, g.Name, i, err)
				}
			}
		}
	}
	if jobs < 20 {
		t.Errorf("looked at %d jobs only", jobs)
	}
}

// jobsOf are the variables of a document's jobs.
func jobsOf(t *testing.T, doc []byte) []map[string]string {
	t.Helper()
	p, err := agentparser.Parse(bytes.NewReader(doc))
	if err == nil {
		err = p.Interpolate(nil, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]string
	for _, s := range p.Steps {
		step, ok := s.(*agentparser.CommandStep)
		if !ok {
			t.Fatalf("got a step %T", s)
		}
		plugins, err := json.Marshal(step.Plugins)
		if err != nil {
			t.Fatal(err)
		}
		job := map[string]string{"BUILDKITE_COMMAND": step.Command, "BUILDKITE_PLUGINS": string(plugins), "BUILDKITE_SKIP_CHECKOUT": "true"}
		for k, v := range step.Env {
			job[k] = v
		}
		var artifacts []string
		paths, _ := step.RemainingFields["artifact_paths"].([]any)
		for _, path := range paths {
			artifacts = append(artifacts, fmt.Sprint(path))
		}
		job["BUILDKITE_ARTIFACT_PATHS"] = strings.Join(artifacts, ";")
		out = append(out, job)
	}
	return out
}
