package main

import (
	"reflect"
	"testing"

	"github.com/gpu-mode/kbgen/internal/schematest"
	"github.com/gpu-mode/kbgen/node/doctor"
	"github.com/gpu-mode/kbgen/node/setup"
	"github.com/gpu-mode/kbgen/node/status"
)

// What --json prints is what its published schema says.
func TestPublishedSchemas(t *testing.T) {
	for _, d := range []schematest.Document{
		{Name: "node-status", Title: "kbnode status --json: what each slot of a machine does", Type: reflect.TypeFor[status.Node]()},
		{Name: "node-doctor", Title: "kbnode doctor, preflight and verify --json: what was checked, and what is wrong", Type: reflect.TypeFor[doctor.Diagnosis]()},
		{Name: "node-plan", Title: "kbnode plan --json: what kbnode apply would change on a machine", Type: reflect.TypeFor[setup.Document]()},
		{Name: "node-images", Title: "kbnode image status --json: which image runs where a step names a reference", Type: reflect.TypeFor[nodeImages]()},
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
