package harness

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

// known are the variants of plan.KnownHarness, and whether the isolated harness
// takes their tasks.
var known = map[string]bool{
	"": true, "pmpp": true, "mla_decode": true, "pmpp_v2": true, "amd": true, "trimul": true, "kernelbot": true, "amd_202602": true,
	"nvidia": true, "nvidia_batch": true, "nvidia_group": true, "eigh": true, "qr": true, "cholesky": true,
	"helion": false, "amd_distributed": false, "moe_mxfp4": false, "cross_entropy": false,
}

func TestRulesOfVariants(t *testing.T) {
	for variant, takes := range known {
		_, ok := rulesFor(variant)
		if ok != takes || (legacyWhy(variant) == "") != takes {
			t.Errorf("%q: rules %v, why not %q, want taken: %v", variant, ok, legacyWhy(variant), takes)
		}
	}
	if _, ok := rulesFor("somebody's"); ok {
		t.Error("an unknown variant has rules")
	}
	// Source: contracts of the published eval.py files, their sampling loops.
	for _, tt := range []struct {
		variant             string
		benchmark, ranked   int
		benchmarkS, rankedS time.Duration
		err                 float64
		last, combine       bool
		fail                int
	}{
		{"pmpp", 100, 100, 10, 30, 0.01, true, false, 0},
		{"mla_decode", 100, 100, 10, 30, 0.01, true, false, 0},
		{"pmpp_v2", 100, 100, 10, 30, 0.001, false, true, 0},
		{"amd", 100, 100, 10, 30, 0.001, false, true, 0},
		{"trimul", 100, 100, 10, 30, 0.001, false, true, 0},
		{"kernelbot", 100, 100, 10, 30, 0.001, false, true, 0},
		{"amd_202602", 1000, 100, 50, 30, 0.001, false, true, 0},
		{"nvidia", 200, 1000, 10, 30, 0.001, false, true, 0},
		{"nvidia_batch", 200, 1000, 10, 30, 0.001, false, true, 0},
		{"nvidia_group", 100, 100, 10, 30, 0.001, false, true, 0},
		{"eigh", 200, 1000, 10, 30, 0.001, false, true, 112},
		{"qr", 200, 1000, 10, 30, 0.001, false, true, 112},
		{"cholesky", 200, 1000, 10, 30, 0.001, false, true, 112},
	} {
		r, _ := rulesFor(tt.variant)
		b, l := r.sampling(schema.ModeBenchmark), r.sampling(schema.ModeLeaderboard)
		want := []sampling{{tt.benchmark, tt.benchmarkS * time.Second, wallLimit, tt.err}, {tt.ranked, tt.rankedS * time.Second, wallLimit, tt.err}}
		if b != want[0] || l != want[1] || r.lastOnly != tt.last || r.combine != tt.combine || r.failStatus != tt.fail || r.typed {
			t.Errorf("%s: got %+v, want %+v, last %v, combine %v, fail %d", tt.variant, r, want, tt.last, tt.combine, tt.fail)
		}
	}
	if r, _ := rulesFor(""); !r.typed || !r.combine || r.benchmark.wall > 5*time.Second || r.leaderboard.wall > 5*time.Second {
		t.Errorf("ours: got %+v, want typed, combined and short", r)
	}
}

// A line as each variant's tester reads it. The testers' patterns differ in what
// they take for a value; what none of them takes is refused.
func TestParseCases(t *testing.T) {
	for _, tt := range []struct{ variant, line, want string }{
		{"pmpp_v2", "size: 128; seed: 5", `[["size",128],["seed",5]]`},
		{"pmpp_v2", " size : -128 ;seed:+5 ", `[["size",-128],["seed",5]]`},
		{"pmpp", "kernelsize: 32; batch: 1", `[["kernelsize",32],["batch",1]]`},
		{"trimul", "nomask: True; distribution: normal; dim: 8", `[["nomask","True"],["distribution","normal"],["dim",8]]`},
		{"trimul", "nomask: false", `[["nomask","false"]]`},
		{"amd_202602", "a: true; b: false; c: True", `[["a",true],["b",false],["c","True"]]`},
		{"nvidia_group", "m: [96, 128]; n: (64,32); g: 2", `[["m",{"tuple":[96,128]}],["n",{"tuple":[64,32]}],["g",2]]`},
		{"nvidia_group", "m: []", `[["m",{"tuple":[]}]]`},
		{"pmpp_v2", "m: [96, 128]", `[["m","[96, 128]"]]`},
		{"pmpp_v2", "seed: 123456789012345678901234567890", `[["seed",123456789012345678901234567890]]`},
		{"pmpp_v2", "a: 007", `[["a",7]]`},
		{"pmpp_v2", "size 128", ""},
		{"pmpp_v2", "size: 1.5", ""},
		{"pmpp_v2", "size: 1e5", ""},
		{"pmpp_v2", "size: 128; ", ""},
		{"pmpp_v2", "size: 128,, seed: 5", ""},
		{"pmpp_v2", ": 5", ""},
		{"pmpp_v2", "size: ", ""},
		{"pmpp_v2", "size: exit(0)", ""},
		{"pmpp_v2", `size: "x"`, ""},
		{"pmpp_v2", "1size: 5", ""},
	} {
		r, _ := rulesFor(tt.variant)
		args, err := r.parse(tt.line)
		got, _ := json.Marshal(args)
		if tt.want == "" && err == nil || tt.want != "" && (err != nil || string(got) != tt.want) {
			t.Errorf("%s: %q: got %s, %v, want %s", tt.variant, tt.line, got, err, tt.want)
		}
	}
}

func TestReadCases(t *testing.T) {
	seed := int64(5)
	p := addPayload(right, ints("n", 3, "seed", 3), ints("n", 4, "seed", 4))
	read := func(variant, mode, ranking string, secret *int64) []string {
		t.Helper()
		r, _ := rulesFor(variant)
		p.Mode, p.RankingBy, p.Seed = mode, ranking, secret
		planned := plan.New(p, plan.Machine{})
		cases, err := r.readCases(&planned[len(planned)-1], p)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, c := range cases {
			args, _ := json.Marshal(c.args)
			lines = append(lines, c.spec+" "+string(args))
		}
		return lines
	}
	plain := []string{`n: 3; seed: 3 [["n",3],["seed",3]]`, `n: 4; seed: 4 [["n",4],["seed",4]]`}
	mixed := []string{`n: 3; seed: 3 [["n",3],["seed",39]]`, `n: 4; seed: 4 [["n",4],["seed",49]]`} // 3+8*9/2, 4+9*10/2
	for _, tt := range []struct {
		variant, mode, ranking string
		secret                 *int64
		want                   []string
	}{
		{"", schema.ModeTest, schema.RankGeom, nil, plain},
		{"", schema.ModeTest, schema.RankGeom, &seed, mixed},
		{"", schema.ModeBenchmark, schema.RankLast, &seed, mixed[1:]},
		{"pmpp_v2", schema.ModeBenchmark, schema.RankGeom, &seed, mixed},
		{"pmpp", schema.ModeTest, schema.RankGeom, &seed, plain}, // only sets the generators there
		{"pmpp", schema.ModeLeaderboard, schema.RankLast, &seed, plain[1:]},
	} {
		if got := read(tt.variant, tt.mode, tt.ranking, tt.secret); !slices.Equal(got, tt.want) {
			t.Errorf("%q, %s, %s: got %q, want %q", tt.variant, tt.mode, tt.ranking, got, tt.want)
		}
	}
	p.Benchmarks = nil
	for variant := range known {
		r, ok := rulesFor(variant)
		p.Mode, p.RankingBy = schema.ModeBenchmark, schema.RankGeom
		planned := plan.New(p, plan.Machine{})
		if _, err := r.readCases(&planned[0], p); ok && (err == nil || err.Error() != "there is no case to measure") {
			t.Errorf("%q without benchmarks: got %v", variant, err)
		}
	}
}

// Known answers of Kernelbot's formula, a + (a+b)(a+b+1)//2 in Python.
func TestCombine(t *testing.T) {
	for _, tt := range []struct {
		seed   string
		secret int64
		want   string
	}{
		{"3", 5, "39"},
		{"0", 0, "0"},
		{"1", 0, "2"},
		{"0", 1, "1"},
		{"4242", 20260117, "205322132976862"},
		{"2147483647", 2147483646, "9223372028264841218"},
		{"-7", 5, "-6"},
		{"-7", 6, "-7"},
		{"123456789012345678901234567890", 1, ""},
	} {
		c := testCase{args: []argument{{"n", json.RawMessage("1")}, {"seed", json.RawMessage(tt.seed)}}}
		before := c.args
		if err := c.combine(tt.secret); err != nil {
			t.Fatal(err)
		}
		_, got := c.seed()
		want := tt.want
		if want == "" { // by the formula, in whole numbers
			a, _ := new(big.Int).SetString(tt.seed, 10)
			sum := new(big.Int).Add(a, big.NewInt(tt.secret))
			want = new(big.Int).Add(a, new(big.Int).Div(new(big.Int).Mul(sum, new(big.Int).Add(sum, big.NewInt(1))), big.NewInt(2))).String()
		}
		if got.String() != want || string(before[1].value) != tt.seed {
			t.Errorf("combine(%s, %d) = %s, want %s; the case before: %s", tt.seed, tt.secret, got, want, before[1].value)
		}
	}
	seen := map[string]bool{}
	for a := range 40 {
		for b := range int64(40) {
			c := testCase{args: []argument{{"seed", json.RawMessage(fmt.Sprint(a))}}}
			c.combine(b)
			_, got := c.seed()
			if seen[got.String()] {
				t.Fatalf("seed %d, secret %d: %s is another pair's", a, b, got)
			}
			seen[got.String()] = true
		}
	}
	c := testCase{args: []argument{{"n", json.RawMessage("1")}}}
	if err := c.combine(5); err != nil || string(c.args[0].value) != "1" {
		t.Errorf("a case without a seed: %v, %s", err, c.args[0].value)
	}
}

// Fresh seeds are others than the case's, near it, and come from what random
// says; the case itself stays.
func TestFresh(t *testing.T) {
	c := testCase{spec: "seed: 7", args: []argument{{"seed", json.RawMessage("7")}, {"n", json.RawMessage("3")}}}
	for _, n := range []int64{0, 1, 1<<24 - 1} {
		asked := int64(0)
		got := c.fresh(func(limit int64) int64 { asked = limit; return n })
		if _, seed := got.seed(); seed.Int64() != 8+n || asked != 1<<24 || got.spec != c.spec || string(got.args[1].value) != "3" {
			t.Errorf("fresh with %d of %d: %+v", n, asked, got)
		}
	}
	if _, seed := c.seed(); seed.Int64() != 7 {
		t.Errorf("the case has changed: %s", seed)
	}
	without := testCase{args: []argument{{"n", json.RawMessage("3")}, {"seed", json.RawMessage(`"word"`)}}}
	if got := without.fresh(func(int64) int64 { panic("asked") }); string(got.args[1].value) != `"word"` {
		t.Errorf("a seed that is a word: %+v", got)
	}
}

func TestChoose(t *testing.T) {
	usual := schema.Files{{Name: plan.SubmissionFile, Text: right}, {Name: referenceFile, Text: addReference}, {Name: "eval.py", Text: "print()"}}
	cuda := schema.Files{{Name: plan.SubmissionCUDA}, {Name: "eval.cu"}, {Name: plan.ReferenceCUDA}, {Name: plan.TaskHeader}}
	lacks := func(without string) schema.Files {
		return slices.DeleteFunc(slices.Clone(usual), func(f schema.File) bool { return f.Name == without })
	}
	reference := func(text string) schema.Files {
		return append(lacks(referenceFile), schema.File{Name: referenceFile, Text: text})
	}
	for _, tt := range []struct {
		name    string
		p       schema.Payload
		want    string
		why     string
		refused bool
	}{
		{"wished", schema.Payload{Extension: schema.Extension{Harness: schema.HarnessIsolated}, Sources: usual}, schema.HarnessIsolated, "", false},
		{"wished the other", schema.Payload{Extension: schema.Extension{Harness: schema.HarnessLegacy}, Sources: usual}, schema.HarnessLegacy, "the task asks for it", false},
		{"unknown main file", schema.Payload{Sources: usual}, schema.HarnessLegacy, "unknown main file", false},
		{"no reference", schema.Payload{Extension: schema.Extension{Harness: schema.HarnessIsolated}, Sources: lacks(referenceFile)}, "", "there is no reference.py", true},
		{"no reference, no wish", schema.Payload{Sources: lacks(referenceFile)}, schema.HarnessLegacy, "there is no reference.py", false},
		{"no submission", schema.Payload{Extension: schema.Extension{Harness: schema.HarnessIsolated}, Sources: lacks(plan.SubmissionFile)}, "", "there is no submission.py", true},
		{"several GPUs", schema.Payload{Extension: schema.Extension{Harness: schema.HarnessIsolated}, Sources: usual, MultiGPU: true}, "", "several GPUs", true},
		{"a profile", schema.Payload{Extension: schema.Extension{Harness: schema.HarnessIsolated}, Sources: usual, Mode: schema.ModeProfile}, schema.HarnessIsolated, "", false},
		{"C++", schema.Payload{Extension: schema.Extension{Harness: schema.HarnessIsolated}, Sources: cuda[:2], Headers: cuda[2:], Lang: schema.LangCUDA}, schema.HarnessIsolated, "", false},
		{"C++, no wish", schema.Payload{Sources: cuda[:2], Headers: cuda[2:], Lang: schema.LangCUDA}, schema.HarnessLegacy, "only when it says harness: isolated", false},
		{"C++, the other wish", schema.Payload{Extension: schema.Extension{Harness: schema.HarnessLegacy}, Sources: cuda, Lang: schema.LangCUDA}, schema.HarnessLegacy, "the task asks for it", false},
		{"C++, no submission", schema.Payload{Extension: schema.Extension{Harness: schema.HarnessIsolated}, Headers: cuda[1:], Lang: schema.LangCUDA}, "", "there is no submission.cu", true},
		{"C++, no header", schema.Payload{Extension: schema.Extension{Harness: schema.HarnessIsolated}, Sources: cuda[:3], Lang: schema.LangCUDA}, "", "there is no task.h", true},
		{"C++, no reference", schema.Payload{Extension: schema.Extension{Harness: schema.HarnessIsolated}, Sources: usual, Headers: append(cuda[3:4:4], cuda[0]), Lang: schema.LangCUDA}, "", "there is no reference.cuh", true},
		{"C++, a profile", schema.Payload{Extension: schema.Extension{Harness: schema.HarnessIsolated}, Sources: cuda, Mode: schema.ModeProfile, Lang: schema.LangCUDA}, "", "a profile of C++", true},
		{"C++, several GPUs", schema.Payload{Extension: schema.Extension{Harness: schema.HarnessIsolated}, Sources: cuda, MultiGPU: true, Lang: schema.LangCUDA}, "", "several GPUs", true},
		{"no check", schema.Payload{Extension: schema.Extension{Harness: schema.HarnessIsolated}, Sources: reference("def generate_input(n): pass\n")}, "", "reference.py defines no check_implementation", true},
		{"check by a name", schema.Payload{Extension: schema.Extension{Harness: schema.HarnessIsolated}, Sources: reference("def generate_input(n): pass\ncheck_implementation = make_match_reference(ref_kernel)\n")}, schema.HarnessIsolated, "", false},
		{"check within", schema.Payload{Extension: schema.Extension{Harness: schema.HarnessIsolated}, Sources: reference("def generate_input(n):\n    def check_implementation(): pass\n")}, "", "no check_implementation", true},
		{"check like it", schema.Payload{Extension: schema.Extension{Harness: schema.HarnessIsolated}, Sources: reference("def generate_input(n): pass\ndef check_implementation_of(x): pass\n")}, "", "no check_implementation", true},
	} {
		p := tt.p
		p.Main = "eval.py"
		if p.Lang == "" {
			p.Lang = schema.LangPython
		}
		h, err := Choose(&p)
		switch {
		case tt.refused && (err == nil || !strings.Contains(err.Error(), tt.why)):
			t.Errorf("%s: got %+v, %v, want refused: %s", tt.name, h, err, tt.why)
		case !tt.refused && (err != nil || h.Name != tt.want || !strings.Contains(h.Why, tt.why) || (h.Why == "") != (tt.want == schema.HarnessIsolated)):
			t.Errorf("%s: got %+v, %v, want %s, why %q", tt.name, h, err, tt.want, tt.why)
		}
	}
}

// A main file without rules here is nobody's fault but the task's, and asking for
// this harness does not change it.
func TestChooseKnownMainFiles(t *testing.T) {
	usual := schema.Files{{Name: plan.SubmissionFile, Text: right}, {Name: referenceFile, Text: addReference}}
	for variant, takes := range known {
		p := schema.Payload{Lang: schema.LangPython, Sources: usual}
		h, err := choose(&p, variant, true)
		if err != nil || (h.Name == schema.HarnessIsolated) != takes || h.Variant != variant || (h.Why == "") != takes {
			t.Errorf("%s: got %+v, %v, want isolated: %v", variant, h, err, takes)
		}
		p.Harness = schema.HarnessIsolated
		if h, err := choose(&p, variant, true); (err == nil) != takes {
			t.Errorf("%s, wished: got %+v, %v, want taken: %v", variant, h, err, takes)
		}
	}
}

func TestImports(t *testing.T) {
	for source, want := range map[string]string{
		"import torch\n":                      "torch",
		"import torch.nn.functional as F\n":   "torch",
		"from torch import nn, numpy\n":       "torch",
		"import os, numpy as np\n":            "numpy",
		"    import torch\r\n":                "torch",
		"import triton\nimport torch\n":       "torch triton",
		"from utils import torch\n":           "",
		"import torchvision\n":                "",
		"# import torch\n":                    "",
		"torch = None\nimport\nfrom\n":        "",
		"from triton.language import extra\n": "triton",
	} {
		p := &schema.Payload{Sources: schema.Files{{Name: referenceFile, Text: source}, {Name: plan.SubmissionFile, Text: "import triton, torch, numpy\n"}}}
		if got := strings.Join(imports(p), " "); got != want {
			t.Errorf("%q: got %q, want %q", source, got, want)
		}
	}
}
