// Package schematest makes the JSON Schemas in schema/published from Go types,
// for the tests of the packages that own the types.
package schematest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
)

// A Document is one kind of document that has a published schema.
type Document struct {
	Name  string // of the file in schema/published, without its extension
	Title string // one line
	Type  reflect.Type
	Open  bool // further members are allowed at the top

	// Types whose JSON is made by their own code, and what it looks like.
	Types map[reflect.Type]*jsonschema.Schema
}

// Check compares the published schema with the type, or rewrites it, and holds
// examples against it: each has to be valid, and together they have to have
// every member that the schema names, so that none is out of date.
func Check(t *testing.T, d Document, update bool, examples ...[]byte) {
	t.Helper()
	types := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[schema.Severity](): {Type: "string", Enum: []any{"off", "info", "note", "warning", "error"}},
	}
	for typ, s := range d.Types {
		types[typ] = s
	}
	s, err := jsonschema.ForType(d.Type, &jsonschema.ForOptions{TypeSchemas: types})
	if err != nil {
		t.Fatal(err)
	}
	s.Schema, s.Title = "https://json-schema.org/draft/2020-12/schema", d.Title
	if d.Open {
		s.AdditionalProperties = nil
	}
	listsAreThere(s)
	want, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	path := filepath.Join(testenv.Root(), "schema", "published", d.Name+".json")
	if update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, want) {
		t.Errorf("schema/published/%s.json is not what its type says (%v); run: make golden", d.Name, err)
	}
	hold(t, d.Name, s, examples)
}

// listsAreThere takes null from the lists: the commands print an empty list
// instead, which the examples show.
func listsAreThere(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if len(s.Types) == 2 && s.Types[0] == "null" && s.Types[1] == "array" {
		s.Types, s.Type = nil, "array"
	}
	for _, p := range s.Properties {
		listsAreThere(p)
	}
	listsAreThere(s.Items)
	listsAreThere(s.AdditionalProperties)
}

func hold(t *testing.T, name string, s *jsonschema.Schema, examples [][]byte) {
	t.Helper()
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[*jsonschema.Schema]map[string]bool{}
	for i, text := range examples {
		var v any
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatalf("%s: example %d: %v", name, i, err)
		}
		if err := resolved.Validate(v); err != nil {
			t.Errorf("%s: example %d does not keep to its schema: %v", name, i, err)
		}
		mark(seen, s, v)
	}
	missing(t, name, seen, s)
}

// mark notes which members of which object the examples have.
func mark(seen map[*jsonschema.Schema]map[string]bool, s *jsonschema.Schema, v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			if s.Items != nil {
				mark(seen, s.Items, item)
			}
		}
	case map[string]any:
		if seen[s] == nil {
			seen[s] = map[string]bool{}
		}
		for key, value := range v {
			seen[s][key] = true
			if p := s.Properties[key]; p != nil {
				mark(seen, p, value)
			} else if s.AdditionalProperties != nil {
				mark(seen, s.AdditionalProperties, value)
			}
		}
	}
}

func missing(t *testing.T, at string, seen map[*jsonschema.Schema]map[string]bool, s *jsonschema.Schema) {
	t.Helper()
	for key, p := range s.Properties {
		if !seen[s][key] {
			t.Errorf("%s.%s: no example has it; is it still printed?", at, key)
			continue
		}
		missing(t, at+"."+key, seen, p)
	}
	for _, below := range []*jsonschema.Schema{s.Items, s.AdditionalProperties} {
		if below != nil && len(seen[s]) > 0 || s.Items == below && below != nil {
			missing(t, at+"[]", seen, below)
		}
	}
}
