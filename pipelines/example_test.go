package pipelines_test

import (
	"errors"
	"fmt"

	"github.com/gpu-mode/kbgen/pipelines"
)

// A name that no row has is an error that knows the nearest one.
func ExampleTable_Lookup() {
	g, err := pipelines.Fleet.Lookup("h100_bk")
	fmt.Println(g.Name, g.Queue, err)

	_, err = pipelines.Fleet.Lookup("H10_BK")
	var unknown *pipelines.UnknownError
	if errors.As(err, &unknown) {
		fmt.Println(unknown.Got, "is unknown, nearest is", unknown.Nearest)
	}
	// Output:
	// H100_BK h100 <nil>
	// H10_BK is unknown, nearest is H100_BK
}

// A build's variables become a request, and a pipeline's steps for it.
func ExampleNewRequest() {
	build := map[string]string{"KERNELBOT_GPU": "H100_BK", "KERNELBOT_MODE": "leaderboard", "KERNELBOT_TIMEOUT_SECONDS": "240"}
	evaluate, err := pipelines.Find("evaluate")
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := pipelines.NewRequest(evaluate, pipelines.Choice{}, func(name string) (string, bool) {
		v, ok := build[name]
		return v, ok
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	steps, err := evaluate.Steps(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range steps {
		fmt.Printf("%s on queue %s, %s, priority %d: %s\n", s.Key, s.On.Queue, s.Timeout, *s.Priority, s.Command[0])
	}
	// Output:
	// evaluate-h100 on queue h100, 7m0s, priority 1: exec kbrun evaluate
}
