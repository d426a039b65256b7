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

var update = flag.Bool("update", false, "rewrite testdata from what is rendered and what the agent makes of it")

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
	g, err := pipelines.Fleet.On().Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func evaluate(r pipelines.Request) ([]byte, error) {
	p, err := pipelines.Find("evaluate")
	if err != nil {
		return nil, err
	}
	return Render(p, r, YAML)
}

// goldens are requests for rows that the table does not have; those of the
// table have theirs in the repository's testdata/golden.
func goldens(t *testing.T) map[string]pipelines.Request {
	t.Helper()
	h100, mi300 := row(t, "H100_BK"), row(t, "MI300_BK")
	return map[string]pipelines.Request{
		"chunked.yml":     {GPUs: pipelines.Table{h100}, Run: pipelines.Run{PayloadChunks: 3}},
		"image.yml":       {GPUs: pipelines.Table{h100}, Image: "ghcr.io/gpu-mode/other:7"},
		"step-nvidia.yml": {GPUs: pipelines.Table{stepRow(h100)}},
		"step-amd.yml":    {GPUs: pipelines.Table{stepRow(mi300)}},
	}
}

func TestEvaluateGoldens(t *testing.T) {
	dir := filepath.Join("testdata", "evaluate")
	requests := goldens(t)
	if *update {
		rewrite(t, dir, requests)
	}
	for name, request := range requests {
		t.Run(name, func(t *testing.T) {
			got, err := evaluate(request)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatalf("no golden, run: go test ./generator -update (%v)", err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("Render(%s) (-want +got):\n%s", name, diff)
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

func rewrite(t *testing.T, dir string, requests map[string]pipelines.Request) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, request := range requests {
		got, err := evaluate(request)
		if err != nil {
			t.Fatalf("Render(%s) = %v", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSameRequestSameBytes(t *testing.T) {
	request := pipelines.Request{GPUs: pipelines.Fleet.On(), Run: pipelines.Run{PayloadChunks: 2}, Secret: &pipelines.Run{}}
	first, err := evaluate(request)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		again, err := evaluate(request)
		if err != nil || !slices.Equal(first, again) {
			t.Fatalf("Render gave other bytes for the same request (%v):\n%s", err, cmp.Diff(string(first), string(again)))
		}
	}
}

// many is a table of n rows.
func many(n int) pipelines.Table {
	table := make(pipelines.Table, n)
	for i := range table {
		g := pipelines.Fleet[1]
		g.Name, g.Queue = g.Name+"_"+serial(i), g.Queue+"-"+serial(i)
		table[i] = g
	}
	return table
}

func serial(i int) string { return time.Unix(int64(i), 0).UTC().Format("150405") }
