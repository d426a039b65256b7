package task_test

import (
	"fmt"
	"testing/fstest"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/task"
)

// A task and a submission make the payload of a build.
func ExampleTask_Payload() {
	folder := fstest.MapFS{
		"add/task.yml": {Data: []byte(`files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: eval.py, source: eval.py}
lang: py
description: Add two numbers.
config: {main: eval.py}
tests:
  - {n: 3, seed: 1}
benchmarks:
  - {n: 1000, seed: 2}
test_timeout: 30
`)},
		"add/eval.py": {Data: []byte("import submission\n")},
	}
	t, err := task.Load(folder, "add")
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := t.Payload(schema.File{Name: "mine.py", Text: "def add(a, b): return a + b\n"}, schema.ModeTest, nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Mode, p.Lang, p.Main)
	for _, f := range p.Sources {
		fmt.Printf("%s: %d bytes\n", f.Name, len(f.Text))
	}
	fmt.Print(schema.CasesText(p.Tests, false))
	// Output:
	// test py eval.py
	// submission.py: 28 bytes
	// eval.py: 18 bytes
	// n: 3; seed: 1
}
