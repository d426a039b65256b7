package main

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/gpu-mode/kbgen/internal/schematest"
	"github.com/gpu-mode/kbgen/launcher/fleet"
)

// What queues --json prints is what its published schema says.
func TestPublishedSchema(t *testing.T) {
	var full []fleet.Queue
	schematest.Fill(&full, nil)
	text, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	schematest.Check(t, schematest.Document{
		Name: "agents", Title: "kblaunch queues --json: the organization's queues and their agents", Type: reflect.TypeFor[[]fleet.Queue](),
	}, *update, text)
}

// Each page names every flag of its command.
func TestPagesAreWhole(t *testing.T) {
	for _, fault := range program().Undocumented() {
		t.Error(fault)
	}
}
