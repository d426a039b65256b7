package generator_test

import (
	"fmt"
	"os"

	"github.com/gpu-mode/kbgen/generator"
	"github.com/gpu-mode/kbgen/pipelines"
)

// A pipeline and a request in, a checked document out.
func ExampleRender() {
	ci, err := pipelines.Find("ci")
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := generator.Render(ci, pipelines.Request{}, generator.YAML)
	if err != nil {
		fmt.Println(err)
		return
	}
	os.Stdout.Write(out)
	// Output:
	// steps:
	//   - key: ci
	//     label: Tests and checks
	//     command: .ci/run
	//     agents:
	//       queue: cpu
	//     timeout_in_minutes: 60
	//     retry:
	//       automatic:
	//         - exit_status: -1
	//           signal_reason: none
	//           limit: 2
	//         - signal_reason: agent_stop
	//           limit: 2
}

// What a build costs in the worst case, every retry counted.
func ExamplePlan() {
	evaluate, _ := pipelines.Find("evaluate")
	h100, _ := pipelines.Fleet.Lookup("H100_BK")
	steps, err := generator.Plan(evaluate, pipelines.Request{GPUs: pipelines.Table{h100}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range steps {
		fmt.Printf("%s: %d minutes, %d tries: at most %d GPU minutes\n", s.Key, s.Minutes, s.Tries, s.GPUMinutes)
	}
	// Output:
	// evaluate-h100: 15 minutes, 5 tries: at most 75 GPU minutes
}

// Two renderings are compared by meaning: layout, order and comments do not count.
func ExampleDiff() {
	older := []byte("steps:\n- key: a\n  command: make\n  timeout_in_minutes: 5\n")
	newer := []byte("steps:\n- key: a\n  timeout_in_minutes: 10 # slow machine\n  command: make\n")
	changes, err := generator.Diff(older, newer)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range changes {
		fmt.Println(c)
	}
	// Output:
	// a.timeout_in_minutes: 5 → 10
}
