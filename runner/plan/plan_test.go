package plan

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/schema"
)

var update = flag.Bool("update", false, "rewrite testdata from what New returns")

const secretSeed = 190482231

func pythonPayload() *schema.Payload {
	seed := int64(secretSeed)
	return &schema.Payload{
		Main: "eval.py", Lang: schema.LangPython, Mode: schema.ModeLeaderboard, RankingBy: schema.RankLast, Seed: &seed,
		Sources:     schema.Files{{Name: "eval.py", Text: "import submission\n"}, {Name: "submission.py", Text: "pass\n"}},
		Tests:       []schema.Case{{{Name: "n", Value: schema.IntValue(1)}}, {{Name: "n", Value: schema.IntValue(2)}, {Name: "dtype", Value: schema.StringValue("bf 16")}}},
		Benchmarks:  []schema.Case{{{Name: "n", Value: schema.IntValue(10)}}, {{Name: "n", Value: schema.IntValue(20)}}},
		TestTimeout: schema.Seconds(10), BenchmarkTimeout: schema.Seconds(20), RankedTimeout: schema.Seconds(30),
	}
}

func cudaPayload() *schema.Payload {
	tile := "64"
	return &schema.Payload{
		Lang: schema.LangCUDA, Mode: schema.ModeTest, RankingBy: schema.RankLast,
		Sources:    schema.Files{{Name: "driver.cu", Text: "int main() {}\n"}, {Name: "submission.cu", Text: "int kernel;\n"}},
		Headers:    schema.Files{{Name: "shapes.h", Text: "#define SHAPE 32\n"}},
		Defines:    []schema.Define{{Name: "TILE", Value: &tile}, {Name: "FAST"}},
		Tests:      []schema.Case{{{Name: "n", Value: schema.IntValue(128)}}},
		Benchmarks: []schema.Case{{{Name: "n", Value: schema.IntValue(4096)}}},
	}
}

// machine is one with everything, of that runtime.
func machine(runtime string) Machine {
	return Machine{
		Root: "/tmp/kbrun-1", Runtime: runtime, GPUs: 2,
		Environ: []string{"PATH=/usr/bin:/opt/my tools", "LANG=C.UTF-8", "CUDA_VISIBLE_DEVICES=0,1", "CUDA_API_KEY=hush", "HOME=/root", "SOME_TOKEN=hush"},
		Programs: map[string]string{
			"nvcc": "/usr/local/cuda/bin/nvcc", "hipcc": "/opt/rocm/bin/hipcc", "ncu": "/usr/local/cuda/bin/ncu", "rocprofv3": "/opt/rocm/bin/rocprofv3",
		},
	}
}

// scenario is one golden: what is changed of a payload and a machine.
type scenario struct {
	name    string
	lang    string
	runtime string
	change  func(*schema.Payload, *Machine)
}

func scenarios() []scenario {
	mode := func(name string) func(*schema.Payload, *Machine) {
		return func(p *schema.Payload, _ *Machine) { p.Mode = name }
	}
	py, cu, nvidia, amd := schema.LangPython, schema.LangCUDA, RuntimeCUDA, RuntimeROCm
	arch := func(s string) *string { return &s }
	isolated := func(p *schema.Payload, _ *Machine) {
		p.Mode, p.Harness, p.Libraries, p.IncludeDirs = schema.ModeLeaderboard, schema.HarnessIsolated, []string{"m"}, []string{"."}
		p.Headers = append(p.Headers, schema.File{Name: TaskHeader, Text: "struct Params {};\n"}, schema.File{Name: ReferenceCUDA, Text: "// the answer\n"})
	}
	return []scenario{
		{"py_test", py, nvidia, mode(schema.ModeTest)},
		{"py_benchmark", py, nvidia, mode(schema.ModeBenchmark)},
		{"py_leaderboard", py, nvidia, mode(schema.ModeLeaderboard)},
		{"py_private", py, "", mode(schema.ModePrivate)},
		{"py_profile_nvidia", py, nvidia, mode(schema.ModeProfile)},
		{"py_profile_amd", py, amd, mode(schema.ModeProfile)},
		{"py_profile_no_gpu", py, "", mode(schema.ModeProfile)},
		{"py_profile_isolated", py, "", func(p *schema.Payload, m *Machine) {
			p.Mode, p.Main, m.Isolated = schema.ModeProfile, "", true
			p.Sources = schema.Files{{Name: "submission.py", Text: "import torch\n"}, {Name: "reference.py", Text: "pass\n"}}
		}},
		{"py_profile_isolated_amd", py, amd, func(p *schema.Payload, m *Machine) { p.Mode, p.Main, m.Isolated = schema.ModeProfile, "", true }},
		{"py_profile_no_profiler", py, nvidia, func(p *schema.Payload, m *Machine) { p.Mode = schema.ModeProfile; delete(m.Programs, "ncu") }},
		{"py_profile_several_nvidia", py, nvidia, func(p *schema.Payload, _ *Machine) { p.Mode, p.MultiGPU = schema.ModeProfile, true }},
		{"py_profile_several_amd", py, amd, func(p *schema.Payload, _ *Machine) {
			p.Mode, p.MultiGPU, p.Benchmarks = schema.ModeProfile, true, p.Benchmarks[:1]
		}},
		{"cu_isolated_leaderboard", cu, nvidia, isolated},
		{"cu_isolated_amd", cu, amd, isolated},
		{"cu_isolated_no_compiler", cu, "", func(p *schema.Payload, m *Machine) { isolated(p, m); delete(m.Programs, "nvcc") }},
		{"py_no_seed", py, nvidia, func(p *schema.Payload, _ *Machine) { p.Mode, p.Seed = schema.ModeTest, nil }},
		{"py_several_gpus", py, nvidia, func(p *schema.Payload, _ *Machine) { p.Mode, p.MultiGPU = schema.ModeTest, true }},
		{"py_ranking_by_geom", py, nvidia, func(p *schema.Payload, _ *Machine) { p.Mode, p.RankingBy = schema.ModeBenchmark, schema.RankGeom }},
		{"py_no_limit", py, nvidia, func(p *schema.Payload, _ *Machine) { p.Mode, p.TestTimeout = schema.ModeTest, schema.NoLimit() }},
		{"py_limit_zero", py, nvidia, func(p *schema.Payload, _ *Machine) { p.Mode, p.TestTimeout = schema.ModeTest, schema.Seconds(0) }},
		{"py_other_names", py, nvidia, func(p *schema.Payload, _ *Machine) {
			p.Mode, p.Main = schema.ModeTest, "it's main.py"
			p.Sources = schema.Files{{Name: p.Main, Text: "pass\n"}, {Name: "kernel.py", Text: ""}}
		}},
		{"cu_test", cu, nvidia, mode(schema.ModeTest)},
		{"cu_benchmark", cu, nvidia, mode(schema.ModeBenchmark)},
		{"cu_leaderboard", cu, nvidia, mode(schema.ModeLeaderboard)},
		{"cu_amd", cu, amd, func(p *schema.Payload, _ *Machine) { p.Arch = arch("gfx942") }},
		{"cu_amd_arch_of_nvidia", cu, amd, func(p *schema.Payload, _ *Machine) { p.Arch = arch("90a") }},
		{"cu_all_options", cu, nvidia, func(p *schema.Payload, _ *Machine) {
			seed := int64(secretSeed)
			p.Arch, p.Libraries, p.IncludeDirs, p.Seed, p.MultiGPU = arch("90a"), []string{"cublas", "m"}, []string{"/opt/cutlass/include", "."}, &seed, true
		}},
		{"cu_include_dir_missing", cu, nvidia, func(p *schema.Payload, m *Machine) {
			p.IncludeDirs, m.Missing = []string{"/opt/cutlass/include"}, []string{"/opt/cutlass/include"}
		}},
		{"cu_include_dir_outside", cu, nvidia, func(p *schema.Payload, _ *Machine) { p.IncludeDirs = []string{".."} }},
		{"cu_no_compiler", cu, nvidia, func(_ *schema.Payload, m *Machine) { delete(m.Programs, "nvcc") }},
		{"cu_profile_nvidia", cu, nvidia, mode(schema.ModeProfile)},
		{"cu_profile_amd", cu, amd, mode(schema.ModeProfile)},
		{"cu_profile_no_gpu", cu, "", mode(schema.ModeProfile)},
	}
}

// The goldens show every command that kbrun ever starts.
func TestPlans(t *testing.T) {
	kept := map[string]bool{}
	for _, s := range scenarios() {
		p, m := pythonPayload(), machine(s.runtime)
		if s.lang == schema.LangCUDA {
			p = cudaPayload()
		}
		if s.change(p, &m); p.Mode == schema.ModeProfile {
			p.Seed = nil
		}
		if refused := Check(p); refused != nil {
			t.Fatalf("%s: %+v", s.name, refused)
		}
		var b strings.Builder
		for _, ph := range New(p, m) {
			b.WriteString(ph.String())
			if (ph.Test == nil) != (ph.Refused != nil) {
				t.Errorf("%s: phase %s has a test and a refusal, or neither", s.name, ph.Name)
			}
		}
		got := b.String()
		if strings.Contains(got, "190482231") || strings.Contains(got, "hush") {
			t.Errorf("%s: the plan shows a secret:\n%s", s.name, got)
		}
		golden := filepath.Join("testdata", s.name+".txt")
		kept[golden] = true
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.name, diff)
		}
	}
	files, _ := filepath.Glob("testdata/*.txt")
	for _, file := range files {
		if !kept[file] {
			t.Errorf("%s belongs to no scenario", file)
		}
	}
}

// Same payload, same machine, same plan; and New changes neither.
func TestPlanIsPure(t *testing.T) {
	p, m := pythonPayload(), machine(RuntimeCUDA)
	m.Environ = append(make([]string, 0, 100), m.Environ...) // room that an append could write into
	first := New(p, m)
	before := first[0].String()
	New(p, machine(RuntimeROCm))
	if second := New(p, m); second[0].String() != before || first[0].String() != before {
		t.Error("a second plan differs from the first, or changed it")
	}
}

func TestCheck(t *testing.T) {
	p := pythonPayload()
	p.Mode = schema.ModeProfile
	if o := Check(p); o == nil || o.Name != schema.OutcomeBadPayload || !strings.Contains(o.Text, "payload: seed: got one in mode profile") {
		t.Errorf("mode profile with a secret seed: %+v", o)
	}
	p.Seed, p.Benchmarks = nil, nil
	for mode, refused := range map[string]bool{schema.ModeTest: false, schema.ModeBenchmark: true, schema.ModeLeaderboard: true, schema.ModeProfile: true} {
		p.Mode = mode
		if o := Check(p); (o != nil) != refused || refused && o.Name != schema.OutcomeBadPayload {
			t.Errorf("mode %s without benchmarks: %+v", mode, o)
		}
	}
}
