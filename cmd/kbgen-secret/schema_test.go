package main

import (
	"encoding/json"
	"flag"
	"reflect"
	"testing"

	"github.com/gpu-mode/kbgen/internal/schematest"
)

var update = flag.Bool("update", false, "rewrite the published schema")

// What audit --json prints is what its published schema says.
func TestPublishedSchema(t *testing.T) {
	var full []audited
	schematest.Fill(&full, nil)
	text, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	schematest.Check(t, schematest.Document{
		Name: "audit", Title: "kbgen secret audit --json: sealed values, and what is wrong with them", Type: reflect.TypeFor[[]audited](),
	}, *update, text)
}

// Each page names every flag of its command.
func TestPagesAreWhole(t *testing.T) {
	for _, fault := range program(nil).Undocumented() {
		t.Error(fault)
	}
}
