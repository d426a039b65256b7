package main

import (
	"reflect"
	"testing"

	"github.com/gpu-mode/kbgen/internal/schematest"
)

// What list --json prints is what its published schema says.
func TestPublishedSchemas(t *testing.T) {
	for _, d := range []schematest.Document{
		{Name: "boards", Title: "kbserve board list --json: the boards of a competition", Type: reflect.TypeFor[[]listed]()},
		{Name: "users", Title: "kbserve user list --json: who has an account", Type: reflect.TypeFor[[]listedUser]()},
	} {
		schematest.CheckFilled(t, d, *update, nil)
	}
}

// Each page names every flag of its command.
func TestPagesAreWhole(t *testing.T) {
	for _, fault := range program().Undocumented() {
		t.Error(fault)
	}
}
