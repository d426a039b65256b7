package setup

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/node/facts"
	"github.com/gpu-mode/kbgen/node/plan"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema/queuefile"
)

func readFacts(t *testing.T, name string) *facts.Facts {
	t.Helper()
	data, err := os.ReadFile("../facts/testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("GPU-0000", "GPU-1000", "MIG-0000", "MIG-1000").Replace(string(data)) // zeros are placeholders
	f := new(facts.Facts)
	if err := json.Unmarshal([]byte(text), f); err != nil {
		t.Fatal(err)
	}
	return f
}

// The file passes check but for what the machine cannot know, and it can be planned.
func TestDraftsPassCheckAndPlan(t *testing.T) {
	rows, err := Rows()
	if err != nil {
		t.Fatal(err)
	}
	for name, agents := range map[string]int{"nvidia-1": 1, "nvidia-8": 8, "numa-smt": 4, "mig": 2, "amd-8": 8, "mixed": 3} {
		f := readFacts(t, name)
		text, err := Draft(f)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		file, faults := queuefile.Decode(name+".yml", []byte(text))
		for _, fault := range append(faults, queuefile.Check([]*queuefile.File{file}, pipelines.Fleet.Requirements())...) {
			off := fault.Path == "nodes[0].gpus[0].type" && strings.Contains(fault.Want, "switched off") // of slices
			if fault.Path != "contacts[0].email" && !off {
				t.Errorf("%s: %v in\n%s", name, fault, text)
			}
		}
		p, err := plan.Make(plan.Input{Facts: f, File: file, Node: file.Nodes[0].Name, Rows: rows})
		if err != nil {
			t.Errorf("%s: plan: %v in\n%s", name, err, text)
			continue
		}
		if len(p.Config.Slots) != agents {
			t.Errorf("%s: %d slots, want %d", name, len(p.Config.Slots), agents)
		}
	}
}

func TestUnknownGPUsAreComments(t *testing.T) {
	f := readFacts(t, "nvidia-8")
	f.GPUs[2].Name, f.GPUs[3].UUID = "NVIDIA H900", ""
	text, err := Draft(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# left out: nvidia GPU 2, \"NVIDIA H900\": no row of kbgen gpus has this name\n",
		"# left out: nvidia GPU 3, \"NVIDIA H100 80GB HBM3\": its driver reports no UUID; run nvidia-smi -L to initialize it\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the draft lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, f.GPUs[2].UUID) || !strings.Contains(text, f.GPUs[1].UUID) {
		t.Errorf("the draft has an unknown GPU, or lacks a known one:\n%s", text)
	}
	if text, err := Draft(readFacts(t, "cpu-only")); err == nil || text != "" {
		t.Errorf("Draft without GPUs = %q, %v; want an error", text, err)
	}
}
