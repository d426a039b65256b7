package steps_test

import (
	"fmt"

	"github.com/gpu-mode/kbgen/local/steps"
)

func ExampleParse() {
	doc, err := steps.Parse([]byte(`{"steps": [
		{"key": "test", "command": "make test", "agents": {"queue": "cpu"}, "parallelism": 2},
		"wait",
		{"key": "bench", "command": "make bench", "retry": {"automatic": [{"exit_status": 75, "limit": 1}]}}
	]}`))
	if err != nil {
		panic(err)
	}
	for _, s := range doc.All() {
		fmt.Printf("%s %q %v\n", s.Kind, s.Key, s.Agents)
	}
	fmt.Println(doc.Jobs(), "jobs, as the upload limit counts them")
	fmt.Println(doc.Steps[2].Retry.Automatic[0].Matches(75, "", ""))

	_, err = steps.Parse([]byte(`{"steps": [{"key": "test", "comand": "make test", "plugins": []}]}`))
	fmt.Println(err)
	// Output:
	// command "test" [queue=cpu]
	// wait "" []
	// command "bench" []
	// 4 jobs, as the upload limit counts them
	// true
	// steps[0] (test): unknown key "comand", nearest is "command" [KB011]
}
