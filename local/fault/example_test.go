package fault_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gpu-mode/kbgen/local/fault"
)

// The first poll of a build is answered with a 502, the others as they should be.
func Example() {
	rule, err := fault.Parse("GET /v2/*/builds/* status=502 count=1")
	if err != nil {
		panic(err)
	}
	var in fault.Injector
	if _, err := in.Add(rule); err != nil {
		panic(err)
	}
	api := in.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "passed")
	}))
	for range 2 {
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequest("GET", "/v2/pipelines/eval/builds/1", nil))
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 502 {"message":"502 Bad Gateway (injected)"}
	// 200 passed
}
