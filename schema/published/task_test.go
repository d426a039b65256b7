package published_test

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"testing/fstest"

	"github.com/google/jsonschema-go/jsonschema"
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/internal/schematest"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
)

// The keys of task.yml. Package task reads YAML nodes, so that it can say where
// a fault stands.
type taskFile struct {
	Files            []taskSource       `json:"files" jsonschema:"what is created where the task runs; one of them is the submission's place"`
	Lang             string             `json:"lang" jsonschema:"py or cu"`
	Config           taskConfig         `json:"config"`
	Description      string             `json:"description"`
	Templates        map[string]string  `json:"templates,omitempty" jsonschema:"files to begin from, by language: CUDA, Python, Triton, HIP, CuteDSL"`
	Tests            []map[string]any   `json:"tests,omitempty" jsonschema:"cases: parameters by name"`
	Benchmarks       []map[string]any   `json:"benchmarks,omitempty" jsonschema:"cases: parameters by name"`
	TestTimeout      *wholeSeconds      `json:"test_timeout,omitempty" jsonschema:"null: no limit; absent: 180"`
	BenchmarkTimeout *wholeSeconds      `json:"benchmark_timeout,omitempty" jsonschema:"null: no limit; absent: 180"`
	RankedTimeout    *wholeSeconds      `json:"ranked_timeout,omitempty" jsonschema:"null: no limit; absent: 180"`
	RankingBy        string             `json:"ranking_by,omitempty" jsonschema:"last, mean or geom"`
	MultiGPU         bool               `json:"multi_gpu,omitempty" jsonschema:"each case has a world_size then"`
	Seed             *int64             `json:"seed,omitempty" jsonschema:"secret"`
	Libraries        []string           `json:"libraries,omitempty" jsonschema:"without effect: Kernelbot drops them"`
	GPUs             []string           `json:"gpus,omitempty" jsonschema:"GPU types, where the competition names none"`
	Harness          string             `json:"harness,omitempty" jsonschema:"isolated or legacy: kbrun's extension, which Kernelbot's own loader refuses; it may stand in kbgen.yml instead"`
	Inputs           string             `json:"inputs,omitempty" jsonschema:"cold or warm, of measured calls; for harness: isolated"`
	Evidence         schema.MinEvidence `json:"evidence,omitzero" jsonschema:"what the figure of each case must rest on in leaderboard mode; for harness: isolated"`
}

type taskSource struct {
	Name   string `json:"name"`
	Source string `json:"source" jsonschema:"a file beside task.yml, or @SUBMISSION@"`
}

type taskConfig struct {
	Main         string             `json:"main,omitempty" jsonschema:"py: the tester, one of the files"`
	Sources      []string           `json:"sources,omitempty" jsonschema:"cu: given to nvcc; the other files are headers"`
	IncludeDirs  []string           `json:"include_dirs,omitempty" jsonschema:"cu"`
	CompileFlags []string           `json:"compile_flags,omitempty" jsonschema:"cu"`
	Defines      map[string]*string `json:"defines,omitempty" jsonschema:"cu"`
}

type wholeSeconds int

const (
	pythonTask = `
files: [{name: submission.py, source: "@SUBMISSION@"}, {name: eval.py, source: eval.py}]
lang: py
config: {main: eval.py}
description: All that a task in Python may say.
templates: {Python: eval.py}
tests: [{n: 1, seed: 2}]
benchmarks: [{n: 1, kind: [1, 2]}]
test_timeout: 10
benchmark_timeout: null
ranked_timeout: 20
ranking_by: geom
multi_gpu: false
seed: 12
libraries: [x]
gpus: [H100_BK]
harness: isolated
inputs: cold
evidence: {runs: 20, width: 0.1}
`
	cudaTask = `
files: [{name: submission.cu, source: "@SUBMISSION@"}, {name: eval.cu, source: eval.cu}]
lang: cu
config: {sources: [eval.cu], include_dirs: [/usr/include], compile_flags: [-O3], defines: {N: "2"}}
description: All that a task in C++ may say.
`
)

var quoted = regexp.MustCompile(`"([^"]+)"`)

func TestTask(t *testing.T) {
	load := func(text string) error {
		_, err := task.Load(fstest.MapFS{
			"task.yml": {Data: []byte(text)}, "eval.py": {Data: []byte("pass\n")}, "eval.cu": {Data: []byte("//\n")},
		}, ".")
		return err
	}
	var examples [][]byte
	for _, text := range []string{pythonTask, cudaTask} {
		if err := load(text); err != nil {
			t.Fatalf("an example is no task: %v", err)
		}
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		encoded, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		examples = append(examples, encoded)
	}
	schematest.Check(t, schematest.Document{
		Name: "task", Title: "task.yml: a problem of a competition", Type: reflect.TypeFor[taskFile](),
		Types: map[reflect.Type]*jsonschema.Schema{reflect.TypeFor[wholeSeconds](): {Types: []string{"null", "integer"}, Minimum: jsonschema.Ptr(1.0)}},
	}, *update, examples...)

	// What the reader says that it knows is what the schema has.
	var known []string
	for _, m := range quoted.FindAllStringSubmatch(load("zzz: 1\n").Error(), -1) {
		known = append(known, m[1])
	}
	text, err := os.ReadFile("task.json")
	if err != nil {
		t.Fatal(err)
	}
	var s struct{ Properties map[string]any }
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	for name := range s.Properties {
		if !slices.Contains(known, name) {
			t.Errorf("the schema has %s, which package task does not read", strconv.Quote(name))
		}
	}
	for _, name := range known {
		if s.Properties[name] == nil && name != "zzz" {
			t.Errorf("package task reads %s, which the schema does not have", strconv.Quote(name))
		}
	}
}
