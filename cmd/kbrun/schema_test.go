package main

import (
	"reflect"
	"testing"

	"github.com/gpu-mode/kbgen/internal/schematest"
	"github.com/gpu-mode/kbgen/runner/doctor"
)

// What doctor --json prints is what its published schema says.
func TestPublishedSchema(t *testing.T) {
	schematest.CheckFilled(t, schematest.Document{
		Name: "doctor", Title: "kbrun doctor --json: how well a machine can shut a submission in", Type: reflect.TypeFor[doctor.Diagnosis](),
	}, *update, nil)
}

// Each page names every flag of its command.
func TestPagesAreWhole(t *testing.T) {
	for _, fault := range program(nil).Undocumented() {
		t.Error(fault)
	}
}
