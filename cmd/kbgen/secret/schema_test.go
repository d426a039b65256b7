package secret

import (
	"flag"
	"reflect"
	"testing"

	"github.com/gpu-mode/kbgen/internal/schematest"
	"github.com/gpu-mode/kbgen/secrets/inventory"
)

var update = flag.Bool("update", false, "rewrite the published schema")

// What audit --json prints is what its published schema says.
func TestPublishedSchema(t *testing.T) {
	schematest.CheckFilled(t, schematest.Document{
		Name: "audit", Title: "kbgen secret audit --json: sealed values, and what is wrong with them", Type: reflect.TypeFor[[]inventory.Audit](),
	}, *update, nil)
}

// Each page names every flag of its command.
func TestPagesAreWhole(t *testing.T) {
	for _, fault := range program(nil).Undocumented() {
		t.Error(fault)
	}
}
