package local_test

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
)

// A client of the REST API asks the stand-in for a build.
func Example() {
	dir, err := os.MkdirTemp("", "kblocal-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	s, err := local.Start(local.Options{Dir: dir})
	if err != nil {
		panic(err)
	}
	defer s.Close(context.Background())
	if _, err := s.Engine.CreatePipeline(engine.Pipeline{Slug: "eval", Configuration: "steps: [{command: make}]"}); err != nil {
		panic(err)
	}
	if _, err := s.Engine.CreateBuild("eval", engine.NewBuild{}); err != nil {
		panic(err)
	}

	req, err := http.NewRequest("GET", s.URL()+"/v2/organizations/gpu-mode/pipelines/eval/builds/1", nil)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.APIToken())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		panic(err)
	}
	resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}
