package generator

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/pipelines"
)

var update = flag.Bool("update", false, "rewrite testdata/evaluate from what Evaluate returns, and remove what it does not")

// stepRow turns a row into one for a machine that kbnode has not set up.
func stepRow(g pipelines.GPUType) pipelines.GPUType {
	g.Name, g.Queue = "STEP_"+g.Name, "step-"+g.Queue
	g.Isolation, g.MachineGPUs = pipelines.Step, g.GPUs
	if g.Vendor == pipelines.AMD {
		g.DeviceGroups = []string{"44", "992"}
	}
	return g
}

func row(t *testing.T, name string) pipelines.GPUType {
	t.Helper()
	g, err := pipelines.Fleet.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// goldens are the requests whose whole output is kept, by file name.
func goldens(t *testing.T) map[string]Request {
	t.Helper()
	h100, mi300 := row(t, "H100_BK"), row(t, "MI300_BK")
	requests := map[string]Request{
		"all.yml":         {GPUs: pipelines.Fleet.Available()},
		"all.json":        {GPUs: pipelines.Fleet.Available(), JSON: true},
		"chunked.yml":     {GPUs: pipelines.Table{h100}, PayloadChunks: 3},
		"image.yml":       {GPUs: pipelines.Table{h100}, Image: "ghcr.io/gpu-mode/other:7"},
		"step-nvidia.yml": {GPUs: pipelines.Table{stepRow(h100)}},
		"step-amd.yml":    {GPUs: pipelines.Table{stepRow(mi300)}},
	}
	for _, g := range pipelines.Fleet {
		requests[g.Name+".yml"] = Request{GPUs: pipelines.Table{g}}
	}
	return requests
}

func TestEvaluateGoldens(t *testing.T) {
	dir := filepath.Join("testdata", "evaluate")
	requests := goldens(t)
	if *update {
		rewrite(t, dir, requests)
	}
	for name, request := range requests {
		t.Run(name, func(t *testing.T) {
			got, err := Evaluate(request)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatalf("no golden, run: go test ./generator -update (%v)", err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("Evaluate(%s) (-want +got):\n%s", name, diff)
			}
		})
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, ok := requests[e.Name()]; !ok {
			t.Errorf("%s is the golden of no request, run: go test ./generator -update", filepath.Join(dir, e.Name()))
		}
	}
}

func rewrite(t *testing.T, dir string, requests map[string]Request) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, request := range requests {
		got, err := Evaluate(request)
		if err != nil {
			t.Fatalf("Evaluate(%s) = %v", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSameRequestSameBytes(t *testing.T) {
	request := Request{GPUs: pipelines.Fleet.Available(), PayloadChunks: 2}
	first, err := Evaluate(request)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		again, err := Evaluate(request)
		if err != nil || !slices.Equal(first, again) {
			t.Fatalf("Evaluate gave other bytes for the same request (%v):\n%s", err, cmp.Diff(string(first), string(again)))
		}
	}
}

// BenchmarkEvaluate renders and checks as many steps as its name says.
func BenchmarkEvaluate(b *testing.B) {
	for _, tt := range []struct {
		name  string
		steps int
	}{{"1", 1}, {"100", 100}, {"500", 500}} {
		b.Run(tt.name, func(b *testing.B) {
			table := make(pipelines.Table, tt.steps)
			for i := range table {
				g := pipelines.Fleet[1]
				g.Name, g.Queue = g.Name+"_"+number(i), g.Queue+"-"+number(i)
				table[i] = g
			}
			for b.Loop() {
				if _, err := Evaluate(Request{GPUs: table}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func number(i int) string { return time.Unix(int64(i), 0).UTC().Format("150405") }
