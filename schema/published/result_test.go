package published_test

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/gpu-mode/kbgen/internal/schematest"
	"github.com/gpu-mode/kbgen/schema"
)

var update = flag.Bool("update", false, "rewrite the published schemas")

// result.json as [schema.Result] writes it. The codec works on a tree of its
// own, since Kernelbot's form has members in an order and runs by name; these
// are the same types with the names that it gives them.
type (
	result struct {
		Success bool           `json:"success" jsonschema:"the evaluation itself worked; says nothing about the submission"`
		Error   string         `json:"error" jsonschema:"why it did not"`
		System  system         `json:"system"`
		Runs    map[string]run `json:"runs" jsonschema:"phases by name: test, benchmark, leaderboard or profile.N"`
		RunID   string         `json:"run_id,omitempty" jsonschema:"as the launcher chose it"`
		Outcome *outcome       `json:"outcome,omitempty" jsonschema:"how the run ended, and whose fault it is; docs/outcomes.md"`

		GPUType      string                `json:"gpu_type,omitempty"`
		Queue        string                `json:"queue,omitempty"`
		Timing       *schema.Timing        `json:"timing,omitempty"`
		Device       *schema.DeviceReport  `json:"device,omitempty"`
		Versions     *schema.Versions      `json:"versions,omitempty"`
		Sandbox      *schema.Sandbox       `json:"sandbox,omitempty"`
		Harness      *schema.HarnessReport `json:"harness,omitempty"`
		Measurements []schema.Measurement  `json:"measurements,omitempty"`
		Explanation  *schema.Explanation   `json:"explanation,omitempty"`
		Ambiguous    []string              `json:"ambiguous,omitempty"`
		SharedJudge  bool                  `json:"shared_judge,omitempty"`
		SelfChecked  bool                  `json:"self_checked,omitempty"`
		Retained     bool                  `json:"retained,omitempty"`
	}
	system struct {
		GPU         string `json:"gpu"`
		DeviceCount int    `json:"device_count" jsonschema:"1 when none was found, as in Kernelbot"`
		CPU         string `json:"cpu"`
		Runtime     string `json:"runtime" jsonschema:"CUDA, ROCm or empty"`
		Platform    string `json:"platform" jsonschema:"as Python's platform.platform() says it"`
		Torch       string `json:"torch"`
		Hostname    string `json:"hostname"`
	}
	outcome struct {
		Name  string `json:"name" jsonschema:"one of docs/outcomes.md"`
		Fault string `json:"fault" jsonschema:"none, submission, task or machine"`
		Retry bool   `json:"retry" jsonschema:"another try may end otherwise"`
		Text  string `json:"text" jsonschema:"one line for people"`
		Phase string `json:"phase" jsonschema:"in which it ended; empty when in none"`
	}
	run struct {
		Start       string       `json:"start" jsonschema:"ISO 8601 in UTC with six fraction digits"`
		End         string       `json:"end" jsonschema:"ISO 8601 in UTC with six fraction digits"`
		Compilation *compilation `json:"compilation"`
		Run         *process     `json:"run"`
		Profile     *profile     `json:"profile"`
	}
	compilation struct {
		NvccFound   bool   `json:"nvcc_found"`
		NvccVersion string `json:"nvcc_version"`
		Success     bool   `json:"success"`
		Command     string `json:"command"`
		Stdout      string `json:"stdout"`
		Stderr      string `json:"stderr"`
		ExitCode    int    `json:"exit_code"`
	}
	process struct {
		Success  bool              `json:"success" jsonschema:"exit status 0 or 112"`
		Passed   bool              `json:"passed" jsonschema:"the tester said so"`
		Command  string            `json:"command"`
		Stdout   string            `json:"stdout"`
		Stderr   string            `json:"stderr"`
		ExitCode int               `json:"exit_code" jsonschema:"negative: the signal's number; 114: out of time"`
		Duration float64           `json:"duration" jsonschema:"seconds of the process alone"`
		Result   map[string]string `json:"result" jsonschema:"the tester's report: check, test-count, test.0.status, benchmark.0.mean, …"`
	}
	profile struct {
		Profiler    string  `json:"profiler"`
		Trace       string  `json:"trace" jsonschema:"base64 of a zip"`
		DownloadURL *string `json:"download_url"`
	}
)

func TestResult(t *testing.T) {
	var full schema.Result
	schematest.Fill(&full, nil)
	full.Runs[0].Name = "test"
	encoded, err := full.Encode()
	if err != nil {
		t.Fatal(err)
	}
	examples := [][]byte{encoded}
	files, err := filepath.Glob("../testdata/result*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no results to look at: %v", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		examples = append(examples, text)
	}
	schematest.Check(t, schematest.Document{
		Name: "result", Title: "result.json: how a submission was judged", Type: reflect.TypeFor[result](), Open: true,
	}, *update, examples...)
}

// The payload as [schema.Payload.JSON] writes it, in both languages.
type payload struct {
	Main         string             `json:"main,omitempty" jsonschema:"py: the tester, a name in sources"`
	Sources      map[string]string  `json:"sources" jsonschema:"texts by file name; of cu in the order of nvcc's arguments"`
	Headers      map[string]string  `json:"headers,omitempty" jsonschema:"cu: created, not compiled"`
	Defines      map[string]*string `json:"defines,omitempty" jsonschema:"cu"`
	CompileFlags []string           `json:"compile_flags,omitempty" jsonschema:"cu"`
	IncludeDirs  []string           `json:"include_dirs,omitempty" jsonschema:"cu: directories that exist on the machine"`
	Libraries    []string           `json:"libraries,omitempty" jsonschema:"cu"`
	Lang         string             `json:"lang"`
	Arch         *string            `json:"arch" jsonschema:"nvcc's architecture suffix, 90a; null for native"`
	Benchmarks   []map[string]any   `json:"benchmarks" jsonschema:"cases: parameters by name, in an order that counts"`
	Tests        []map[string]any   `json:"tests" jsonschema:"cases: parameters by name, in an order that counts"`
	Mode         string             `json:"mode"`
	Test         *limit             `json:"test_timeout,omitempty" jsonschema:"seconds; null for none"`
	Benchmark    *limit             `json:"benchmark_timeout,omitempty" jsonschema:"seconds, also of each profile run; null for none"`
	Ranked       *limit             `json:"ranked_timeout,omitempty" jsonschema:"seconds; null for none"`
	RankingBy    string             `json:"ranking_by"`
	Seed         *int64             `json:"seed" jsonschema:"the leaderboard's secret seed; null leaves the tester without one"`
	MultiGPU     bool               `json:"multi_gpu"`
	Harness      string             `json:"harness,omitempty" jsonschema:"isolated or legacy; an extension of kbrun's"`

	Inputs   string             `json:"inputs,omitempty" jsonschema:"cold or warm, of measured calls; an extension of kbrun's"`
	Evidence schema.MinEvidence `json:"evidence,omitzero" jsonschema:"what a figure must rest on in leaderboard mode; an extension of kbrun's"`
}

// A limit is a number or null.
type limit float64

func TestPayload(t *testing.T) {
	two, arch, seed := "2", "90a", int64(7)
	cases := []schema.Case{{{Name: "n", Value: value(t, "1")}}}
	base := schema.Payload{
		Arch: &arch, Benchmarks: cases, Tests: cases, Mode: schema.ModeTest, RankingBy: schema.RankMean, Seed: &seed,
		Extension:   schema.Extension{Harness: schema.HarnessIsolated, Inputs: schema.InputsCold, Evidence: schema.MinEvidence{Runs: 20, Width: 0.1}},
		TestTimeout: schema.Seconds(1), BenchmarkTimeout: schema.Seconds(2), RankedTimeout: schema.NoLimit(),
	}
	python, cuda := base, base
	python.Lang, python.Main, python.Sources = schema.LangPython, "eval.py", schema.Files{{Name: "eval.py", Text: "pass"}}
	cuda.Lang, cuda.Sources, cuda.Headers = schema.LangCUDA, schema.Files{{Name: "eval.cu", Text: "int main(){}"}}, schema.Files{{Name: "task.h", Text: "//"}}
	cuda.Defines, cuda.CompileFlags, cuda.IncludeDirs, cuda.Libraries = []schema.Define{{Name: "N", Value: &two}, {Name: "X"}}, []string{"-O3"}, []string{"/usr/include"}, []string{"cublas"}
	schematest.Check(t, schematest.Document{
		Name: "payload", Title: "KERNELBOT_PAYLOAD, decoded: a task's configuration with a submission", Type: reflect.TypeFor[payload](), Open: true,
		Types: map[reflect.Type]*jsonschema.Schema{
			reflect.TypeFor[limit](): {Types: []string{"null", "number"}},
		},
	}, *update, []byte(python.JSON()), []byte(cuda.JSON()))
}

func value(t *testing.T, text string) schema.Value {
	t.Helper()
	v, err := schema.ParseValue(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
