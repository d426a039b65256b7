package engine_test

import (
	"context"
	"fmt"
	"os"

	"github.com/gpu-mode/kbgen/local/engine"
)

// An agent, played by hand, runs the only job of a build.
func Example() {
	dir, err := os.MkdirTemp("", "engine-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	e, err := engine.New(engine.Options{Dir: dir})
	if err != nil {
		panic(err)
	}
	defer e.Close()
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}

	_, err = e.CreatePipeline(engine.Pipeline{Slug: "hello", Configuration: "steps: [{command: make, key: make}]"})
	must(err)
	b, err := e.CreateBuild("hello", engine.NewBuild{Message: "first"})
	must(err)

	a, _, err := e.Register(engine.AgentInfo{Name: "by hand", Tags: []string{"queue=default"}})
	must(err)
	must(e.Connect(a.ID))
	order, err := e.Ping(a.ID)
	must(err)
	got, err := e.Accept(a.ID, order.JobID)
	must(err)
	fmt.Println("runs", got.Env["BUILDKITE_COMMAND"])
	must(e.Start(order.JobID))
	must(e.FinishJob(order.JobID, engine.Finish{ExitStatus: 0}))

	b, err = e.Wait(context.Background(), b.ID)
	must(err)
	fmt.Println("build", b.Number, b.State)
	// Output:
	// runs make
	// build 1 passed
}
