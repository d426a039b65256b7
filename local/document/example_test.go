package document_test

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/gpu-mode/kbgen/local/document"
	"github.com/gpu-mode/kbgen/local/engine"
)

func ExampleView() {
	dir, err := os.MkdirTemp("", "resource-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	e, err := engine.New(engine.Options{Dir: dir})
	if err != nil {
		panic(err)
	}
	defer e.Close()
	view := document.NewView(e, "http://127.0.0.1:7777")
	text, err := json.MarshalIndent(view.Annotation(engine.Annotation{
		ID: "a1", Context: "verdict", Style: "success", Priority: 3, Body: "passed",
		CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC),
	}), "", "  ")
	fmt.Println(string(text), err)
	// Output:
	// {
	//   "id": "a1",
	//   "context": "verdict",
	//   "style": "success",
	//   "scope": "build",
	//   "priority": 3,
	//   "body_html": "\u003cp\u003epassed\u003c/p\u003e\n",
	//   "created_at": "2026-01-02T03:04:05.006Z",
	//   "updated_at": null
	// } <nil>
}
