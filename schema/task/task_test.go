package task

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
)

func TestScalarsAreWhatPyYAMLReads(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/scalars.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		text, want, ok := strings.Cut(lines.Text(), "\t")
		if !ok {
			continue
		}
		rows++
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte("k: "+text), &doc); err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got := "refused"
		if v, err := scalar(doc.Content[0].Content[1]); err == nil {
			got = v.JSON()
		}
		if got != want {
			t.Errorf("scalar(%q): got %s, want %s", text, got, want)
		}
	}
	if rows < 150 {
		t.Errorf("read %d rows of the table, want all", rows)
	}
}

func TestOddTask(t *testing.T) {
	t.Parallel()
	task, err := LoadDir("testdata/odd_py")
	if err != nil {
		t.Fatal(err)
	}
	seed := int64(99)
	p, err := task.Payload(schema.File{Name: "mine.py", Text: "x\n"}, schema.ModeLeaderboard, nil, &seed)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"main": "eval.py", "sources": {"submission.py": "x\n", "eval.py": "print(\"tester\", \"\u00e9\", \"\ud83d\ude00\")\n", "dos.py": "a = 1\nb = 2\nc = 3\n"}, ` +
		`"lang": "py", "arch": null, "benchmarks": [{"zeta": 1, "alpha": 2}], ` +
		`"tests": [{"size": 15, "seed": 31, "flag": true, "off_": false, "quoted": "yes", "f": "1e5", "g": 100000.0, "t": 90, "n": null, "s": "bf16", "u": 1000}, ` +
		`{"shape": [96, 128, [1, true]], "empty": null, "big": 123456789012345678901234567890, "tiny": 1e-05, " spaced": "\u00e9 'x'"}, ` +
		`{"shape": [96, 128, [1, true]], "empty": null, "big": 123456789012345678901234567890, "tiny": 1e-05, " spaced": "\u00e9 'x'"}, {}], ` +
		`"mode": "leaderboard", "test_timeout": 15, "benchmark_timeout": null, "ranked_timeout": 180, "ranking_by": "geom", "seed": 99, "multi_gpu": false}`
	if diff := cmp.Diff(want, p.JSON()); diff != "" {
		t.Errorf("payload (-want +got):\n%s", diff)
	}
	if task.Seed == nil || *task.Seed != 5 || len(task.Templates) != 1 || len(task.Libraries) != 1 || len(task.GPUs) != 1 {
		t.Errorf("task: got %+v, want seed 5, one template, one library and one GPU type", task)
	}
}

func TestPayloadEqualsPythons(t *testing.T) {
	t.Parallel()
	if err := exec.Command("python3", "-c", "import yaml").Run(); err != nil {
		t.Skip("needs python3 with PyYAML:", err)
	}
	dirs, err := filepath.Glob("testdata/*/task.yml")
	if err != nil || len(dirs) == 0 {
		t.Fatal("no tasks", err)
	}
	more, _ := filepath.Glob("../../examples/*/task.yml")
	for i, file := range append(dirs, more...) {
		const submission = "# mine: é\n"
		arch, a := "", (*string)(nil)
		if i%2 == 1 {
			arch = "90a"
			a = &arch
		}
		task, err := LoadDir(file)
		if err != nil {
			t.Error(err)
			continue
		}
		p, err := task.Payload(schema.File{Name: "s.py", Text: submission}, schema.ModeTest, a, nil)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		out, err := exec.Command("python3", "testdata/config.py", file, submission, "test", arch).Output()
		if err != nil {
			t.Errorf("%s: python: %v", file, err)
			continue
		}
		if diff := cmp.Diff(strings.TrimSpace(string(out)), p.JSON()); diff != "" {
			t.Errorf("payload of %s (-python +go):\n%s", file, diff)
		}
	}
}

func TestCUDAFilesAreSourcesOrHeaders(t *testing.T) {
	t.Parallel()
	task, err := LoadDir("testdata/plain_cu/task.yml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := task.Payload(schema.File{Name: "a.cu", Text: "S"}, schema.ModeTest, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantSources := schema.Files{{Name: "submission.cu", Text: "S"}, {Name: "driver.cu", Text: "int main() {}\n"}}
	wantHeaders := schema.Files{{Name: "shapes.h", Text: "#define N 1\n"}}
	if diff := cmp.Diff(wantSources, p.Sources) + cmp.Diff(wantHeaders, p.Headers); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if len(p.Defines) != 2 || p.Defines[1].Value != nil || len(p.IncludeDirs) != 1 || len(p.CompileFlags) != 1 {
		t.Errorf("payload: got defines %v, include_dirs %v, compile_flags %v", p.Defines, p.IncludeDirs, p.CompileFlags)
	}
}

func TestExtensionOfTheSubmission(t *testing.T) {
	t.Parallel()
	task, err := LoadDir("testdata/plain_cu")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := task.Payload(schema.File{Name: "notes.txt", Text: "S"}, schema.ModeTest, nil, nil); err == nil || !strings.Contains(err.Error(), `".txt", want one of`) {
		t.Errorf("Payload of notes.txt: got %v, want the extensions named", err)
	}
}

const good = `files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: eval.py, source: eval.py}
lang: py
config: {main: eval.py}
description: d
`

func TestFaultsNameTheirLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ from, to, want string }{
		{"", "", ""},
		{"description: d", "description: d\ntest: []", `t/task.yml:7: the task: unknown key "test", nearest is "tests"`},
		{"description: d", "description: d\nmilestones: []", `unknown key "milestones"`},
		{"description: d\n", "", `t/task.yml:1: no key "description"`},
		{"description: d", "description: 1.5", `t/task.yml:6: description: got 1.5, want text`},
		{"lang: py", "lang: rust", `t/task.yml:4: lang: got "rust", want one of ["py" "cu"]`},
		{"{main: eval.py}", "{main: evil.py}", `t/task.yml:5: config: main: got "evil.py", which is not among the files`},
		{"{main: eval.py}", "{main: eval.py, sources: []}", `config of a py task: unknown key "sources"`},
		{"{main: eval.py}", "{}", `no key "main"`},
		{"source: eval.py", "source: missing.py", `t/task.yml:3: files: source: open t/missing.py`},
		{"source: eval.py", "source: /etc/passwd", `want one relative to task.yml`},
		{"source: eval.py", "source: ../../../etc/passwd", `which leads out of the tasks`},
		{"source: eval.py", "source: latin.py", `latin.py: not UTF-8`},
		{"name: eval.py,", "name: submission.py,", `the name "submission.py" occurs twice`},
		{`"@SUBMISSION@"`, "eval.py", `no file has the source "@SUBMISSION@"`},
		{"description: d", "description: d\ndescription: e", `t/task.yml:7: the task: the key "description" occurs twice`},
		{"description: d", "description: d\ntests: [{on: 1}]", `t/task.yml:7: tests: got the key "on", which YAML takes for another thing`},
		{"description: d", "description: d\ntests: [{d: 2024-01-02}]", `t/task.yml:7: tests: d: got a date`},
		{"description: d", "description: d\ntests: [{d: {a: 1}}]", `tests: d: got keys and values, want one value`},
		{"description: d", "description: d\ntests: [{d: !!str 5}]", `tests: d: got the tag !!str`},
		{"description: d", "description: d\ntests: [{<<: {a: 1}}]", `merge keys (<<) are not read`},
		{"description: d", "description: d\ntests:", `t/task.yml:7: tests: got nothing, want a list`},
		{"description: d", "description: d\nmulti_gpu: true\ntests: [{n: 1}]", `t/task.yml:8: tests: no "world_size"`},
		{"description: d", "description: d\nmulti_gpu: 1", `multi_gpu: got 1, want true or false`},
		{"description: d", "description: d\nranking_by: best", `ranking_by: got "best"`},
		{"description: d", "description: d\ntest_timeout: 1e3", `t/task.yml:7: test_timeout: got 1e3, want whole seconds`},
		{"description: d", "description: d\ntest_timeout: 0", `test_timeout: got 0`},
		{"description: d", "description: d\nseed: abc", `seed: want an integer`},
		{"description: d", "description: d\ntemplates: {}", `templates: got none`},
		{"{main: eval.py}", "{main: eval.py}\nharness: mine", `harness: got "mine", want one of ["isolated" "legacy"]`},
		{"description: d", "description: d\ntemplates: {Rust: eval.py}", `templates: unknown key "Rust"`},
		{"description: d", "description: d\ngpus: [1]", `gpus: got 1, want text`},
		{"description: d", "description: [", `t/task.yml:`},
		{"description: d", "description: d\n---\na: 1", `more than one document`},
		{good, "", `t/task.yml:1: the file is empty`},
		{good, "- 1\n", `t/task.yml:1: the task: got a list, want keys and values`},
	} {
		text := good
		if tt.from != "" {
			text = strings.Replace(good, tt.from, tt.to, 1)
		}
		fsys := fstest.MapFS{
			"t/task.yml": {Data: []byte(text)}, "t/eval.py": {Data: []byte("e")}, "t/latin.py": {Data: []byte("\xe9")},
		}
		_, err := Load(fsys, "t")
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("Load: got %v, want a task", err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("Load with %q: got %v, want %q", tt.to, err, tt.want)
		}
		var fault *schema.Finding
		if err != nil && !errors.As(err, &fault) {
			t.Errorf("Load with %q: got %T, want Faults", tt.to, err)
		}
	}
}

func TestEveryFaultIsReported(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer("lang: py", "lang: rust", "description: d", "tset: []").Replace(good)
	_, err := Load(fstest.MapFS{"t/task.yml": {Data: []byte(text)}, "t/eval.py": {Data: []byte("e")}}, "t")
	if err == nil || len(strings.Split(err.Error(), "\n")) != 3 {
		t.Errorf("Load with three faults: got %v", err)
	}
}

func TestMissingTask(t *testing.T) {
	t.Parallel()
	if _, err := LoadDir("testdata/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("LoadDir of no folder: got %v, want fs.ErrNotExist", err)
	}
	if _, err := Load(fstest.MapFS{}, "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load of no folder: got %v, want fs.ErrNotExist", err)
	}
}

func TestLinkedFolderClimbsWhereItLies(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "link")
	here, err := filepath.Abs("testdata/odd_py")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(here, link); err != nil {
		t.Skip(err)
	}
	if _, err := LoadDir(link); err != nil {
		t.Errorf("LoadDir of a link: %v", err)
	}
}

// A document that expands a thousandfold, and one that holds itself.
func TestAliasesAreBounded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(good + "gpus: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	b.WriteString("libraries: [x]\ntests:\n - k: &b0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n")
	for i := range 6 {
		name, last := string(rune('c'+i)), string(rune('b'+i))
		if i == 0 {
			last = "b0"
		}
		b.WriteString(" - k: &" + name + " [" + strings.TrimSuffix(strings.Repeat("*"+last+", ", 40), ", ") + "]\n")
	}
	for _, text := range []string{b.String(), good + "tests: [{k: &x [1, *x]}]\n"} {
		_, err := Load(fstest.MapFS{"t/task.yml": {Data: []byte(text)}, "t/eval.py": {Data: []byte("e")}}, "t")
		if err == nil {
			t.Error("Load of a document that expands without end: got no error")
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(good)
	for _, name := range []string{"testdata/odd_py/task.yml", "testdata/plain_cu/task.yml"} {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Fuzz(func(t *testing.T, text string) {
		task, err := parse(text, "task.yml", nil, func(string) (string, error) { return "text", nil })
		if (task == nil) == (err == nil) {
			t.Errorf("parse: got task %v with error %v", task, err)
		}
	})
}

// The harness stands in task.yml or beside it, where Kernelbot does not look;
// kbrun's own needs no main.
func TestHarness(t *testing.T) {
	const head = "files: [{name: submission.py, source: \"@SUBMISSION@\"}, {name: eval.py, source: eval.py}]\nlang: py\ndescription: d\n"
	for _, tt := range []struct{ config, beside, want, fault string }{
		{"config: {main: eval.py}\n", "", "", ""},
		{"config: {main: eval.py}\nharness: legacy\n", "", schema.HarnessLegacy, ""},
		{"config: {}\nharness: isolated\n", "", schema.HarnessIsolated, ""},
		{"config: {}\n", "harness: isolated\n", schema.HarnessIsolated, ""},
		{"config: {}\n", "", "", `no key "main"`},
		{"config: {main: eval.py}\nharness: legacy\n", "harness: isolated\n", "", `harness: got "legacy", and "isolated" in kbgen.yml`},
		{"config: {main: eval.py}\n", "harnes: isolated\n", "", `t/kbgen.yml:1: the file: unknown key "harnes"`},
		{"config: {}\nharness: isolated\n", "inputs: cold\nevidence: {runs: 20, width: 0.1}\n", schema.HarnessIsolated, ""},
		{"config: {main: eval.py}\n", "inputs: cold\n", "", `task.yml:1: harness: got "", want isolated, which inputs and evidence need`},
		{"config: {}\n", "harness: isolated\ninputs: hot\n", "", `t/kbgen.yml:2: inputs: got "hot", want one of ["cold" "warm"], or none`},
		{"config: {}\n", "harness: isolated\nevidence: {runs: 1001}\n", "", `t/kbgen.yml:2: evidence.runs: got 1001, want 0 to 1000 calls`},
		{"config: {}\n", "harness: isolated\nevidence: {runs: 2.5}\n", "", `evidence: runs: got 2.5, want a whole number`},
		{"config: {}\n", "harness: isolated\nevidence: {width: .nan}\n", "", "kbgen.yml:2: evidence"},
		{"config: {}\n", "harness: isolated\nevidence: {width: 2}\n", "", `evidence.width: got 2.0, want 0 to 1, a part of the mean`},
		{"config: {}\n", "harness: isolated\nevidence: {err: 2}\n", "", `unknown key "err"`},
	} {
		files := fstest.MapFS{"t/task.yml": {Data: []byte(head + tt.config)}, "t/eval.py": {Data: []byte("e")}}
		if tt.beside != "" {
			files["t/kbgen.yml"] = &fstest.MapFile{Data: []byte(tt.beside)}
		}
		got, err := Load(files, "t")
		if tt.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%s beside %q: %v, want %q", tt.config, tt.beside, err, tt.fault)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s beside %q: %v", tt.config, tt.beside, err)
		}
		p, err := got.Payload(schema.File{Name: "s.py", Text: "x"}, schema.ModeTest, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		back, err := schema.ParsePayload([]byte(p.JSON()))
		if err != nil || got.Harness != tt.want || back.Extension != got.Extension {
			t.Errorf("%s beside %q: %+v, in the payload %+v (%v), want %q", tt.config, tt.beside, got.Extension, back.Extension, err, tt.want)
		}
		if strings.Contains(tt.beside, "cold") && got.Extension != (schema.Extension{Harness: tt.want, Inputs: schema.InputsCold, Evidence: schema.MinEvidence{Runs: 20, Width: 0.1}}) {
			t.Errorf("%s beside %q: %+v", tt.config, tt.beside, got.Extension)
		}
	}
}
