package pipeline_test

import (
	"fmt"

	"github.com/gpu-mode/kbgen/schema/pipeline"
)

// Check says where a pipeline will not do what it says.
func ExampleCheck() {
	stream := []byte(`steps:
  - key: test
    command: make test
    agents: {queue: cpu}
    timeout_in_minuts: 10
    depends_on: biuld
`)
	for _, f := range pipeline.Check(stream, pipeline.Options{Ignore: []string{"KB202"}}) {
		fmt.Printf("%d:%d: %s: %s\n", f.Line, f.Column, f.Severity, f.Message())
	}
	// Output:
	// 5:5: error: steps[0] (test): unknown key "timeout_in_minuts", nearest is "timeout_in_minutes" [KB011]
	// 6:17: info: steps[0] (test).depends_on: no step of this stream has the key "biuld" [KB105]
}

// Parse checks a stream against the strict subset that kbgen writes.
func ExampleParse() {
	_, err := pipeline.Parse([]byte("steps:\n- command: make\n  agents: {queue: cpu}\n  timeout_in_minutes: \"10\"\n"))
	fmt.Println(err)
	// Output:
	// line 4: steps[0].timeout_in_minutes: got "10", want a whole number [KB017]
}
