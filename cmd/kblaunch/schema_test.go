package main

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/gpu-mode/kbgen/internal/schematest"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/launcher/fleet"
	"github.com/gpu-mode/kbgen/verdict/comparison"
)

// What the commands print with --json is what their published schemas say.
func TestPublishedSchemas(t *testing.T) {
	raw := map[reflect.Type]any{reflect.TypeFor[json.RawMessage](): json.RawMessage(`{"name": "passed"}`)}
	anything := map[reflect.Type]*jsonschema.Schema{reflect.TypeFor[json.RawMessage](): {Type: "object"}}
	for _, d := range []schematest.Document{
		{Name: "agents", Title: "kblaunch queues --json: the organization's queues and their agents", Type: reflect.TypeFor[[]fleet.Queue]()},
		{Name: "submission", Title: "kblaunch submit, watch and retry --json: how runs ended", Type: reflect.TypeFor[documentJSON](), Types: anything},
		{Name: "event", Title: "kblaunch submit, watch and retry --events: one line of them", Type: reflect.TypeFor[eventJSON](), Types: anything},
		{Name: "dry-run", Title: "kblaunch submit --dry-run --json: what would be sent", Type: reflect.TypeFor[dryRunJSON]()},
		{Name: "builds", Title: "kblaunch list --json: builds of launchers, the newest first", Type: reflect.TypeFor[[]launcher.Overview]()},
		{Name: "compare", Title: "kblaunch compare --json: the times of two results", Type: reflect.TypeFor[comparison.Comparison]()},
		{Name: "examples", Title: "kblaunch examples --json: the tasks that come with it", Type: reflect.TypeFor[[]exampleJSON]()},
	} {
		schematest.CheckFilled(t, d, *update, raw)
	}
}

// Each page names every flag of its command.
func TestPagesAreWhole(t *testing.T) {
	for _, fault := range program().Undocumented() {
		t.Error(fault)
	}
}
