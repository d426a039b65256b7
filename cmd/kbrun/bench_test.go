package main

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

const benchTester = `import os, sys
report = os.fdopen(int(os.environ["POPCORN_FD"]), "w")
import submission
if "--flood" in submission.OPTIONS:
    for _ in range(50):
        os.write(1, b"0123456789abcde\n" * 65536)
print("test-count: 1\ntest.0.spec: n: 1\ntest.0.status: pass\ncheck: pass", file=report, flush=True)
`

// BenchmarkOverPython measures what kbrun adds to the two Python processes of a
// test phase, the warm-up and the tester, run bare one after the other in a
// fresh directory: time in ms-over-bare, and kbrun's own peak of resident memory
// in MB-kbrun. The budgets are 25 ms and 20 MB. What the bare ones print is
// read through a pipe and forgotten; ms-over-null is against printing into
// /dev/null, which spares them the copying of 50 MB in flood.
func BenchmarkOverPython(b *testing.B) {
	python, err := exec.Command("python3", "-I", "-c", "import os, sys; print(os.path.dirname(sys.executable))").Output()
	if err != nil {
		b.Skip("python3 is not installed")
	}
	dir := b.TempDir()
	kbrun := filepath.Join(dir, "kbrun")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", kbrun, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("go build: %v: %s", err, out)
	}
	path := "PATH=" + strings.TrimSpace(string(python)) + ":/usr/bin:/bin"
	for name, options := range map[string]string{"quiet": "", "flood": "--flood"} {
		b.Run(name, func(b *testing.B) { benchOver(b, kbrun, path, options) })
	}
}

func benchOver(b *testing.B, kbrun, path, options string) {
	dir := b.TempDir()
	p := &schema.Payload{
		Main: "eval.py", Lang: schema.LangPython, Mode: schema.ModeTest,
		Sources: schema.Files{{Name: "eval.py", Text: benchTester}, {Name: "submission.py", Text: "OPTIONS = '" + options + "'\n"}},
		Tests:   []schema.Case{{{Name: "n", Value: schema.IntValue(1)}}},
	}
	for _, f := range append(p.Sources, schema.File{Name: "payload.json", Text: p.JSON()}, schema.File{Name: "cases.txt", Text: "n: 1\n"}) {
		if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(f.Text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	python := filepath.Join(strings.TrimPrefix(strings.Split(path, ":")[0], "PATH="), "python3")
	call := func(stdout io.Writer, env []string, argv ...string) time.Duration {
		cmd := &exec.Cmd{
			Path: argv[0], Args: argv, Dir: dir, Env: append([]string{path}, env...),
			ExtraFiles: []*os.File{null}, Stdout: stdout, Stderr: os.Stderr,
		}
		start := time.Now()
		if err := cmd.Run(); err != nil {
			b.Fatalf("%q: %v", argv, err)
		}
		return time.Since(start)
	}
	bare := func(stdout io.Writer) time.Duration {
		if err := os.RemoveAll(filepath.Join(dir, "__pycache__")); err != nil {
			b.Fatal(err)
		}
		return call(stdout, nil, python, "submission.py") + call(stdout, []string{"POPCORN_FD=3"}, python, "eval.py", "test", "cases.txt")
	}
	var over, overNull time.Duration
	var peak int64
	for b.Loop() {
		unread, read := bare(null), bare(forgetting{})
		judged := call(null, nil, kbrun, "evaluate", "--payload-file", "payload.json")
		over += judged - read
		overNull += judged - unread
		data, err := os.ReadFile(filepath.Join(dir, "result.json"))
		if err != nil {
			b.Fatal(err)
		}
		var r struct {
			Outcome struct{ Name string }
			Timing  schema.Timing
		}
		if err := json.Unmarshal(data, &r); err != nil || r.Outcome.Name != schema.OutcomePassed {
			b.Fatalf("%v: %+v", err, r)
		}
		peak = max(peak, r.Timing.Peak)
	}
	b.ReportMetric(float64(over.Microseconds())/1000/float64(b.N), "ms-over-bare")
	b.ReportMetric(float64(overNull.Microseconds())/1000/float64(b.N), "ms-over-null")
	b.ReportMetric(float64(peak)/1e6, "MB-kbrun")
}

// forgetting reads as io.Discard does, and is no file, so that package exec
// puts a pipe before it.
type forgetting struct{}

func (forgetting) Write(p []byte) (int, error) { return len(p), nil }
