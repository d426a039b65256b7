// Package validation checks values against JSON Schemas (draft 7) with
// xeipuuv/gojsonschema and reports each fault by path and keyword. It knows no
// format: the words for a person are its callers'.
package validation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/xeipuuv/gojsonschema"
)

// An Error is one fault of a value.
type Error struct {
	Path     []string // keys and indexes, from the root of the value
	Keyword  string   // "type", "required", "pattern", …
	Property string   // which one; of required, additionalProperties, dependencies and propertyNames
}

// A Schema is a JSON Schema whose definitions are compiled at their first use.
// Several goroutines may use it.
type Schema struct {
	source []byte

	shapes func() map[string]*Shape // by definition; "" is the whole schema

	mu       sync.Mutex
	loader   *gojsonschema.SchemaLoader      // with source, from the first use on
	compiled map[string]*gojsonschema.Schema // by definition
}

// address is what the loader knows a schema by; nothing is read from there.
const address = "file:///schema"

// New returns the schema in source, a constant of the program.
func New(source []byte) *Schema {
	shapes := sync.OnceValue(func() map[string]*Shape {
		var all struct {
			Shape
			Definitions map[string]*Shape `json:"definitions"`
		}
		if err := json.Unmarshal(source, &all); err != nil {
			panic(fmt.Sprintf("a schema: %v", err)) // a fault of ours; every test meets it
		}
		whole := map[string]*Shape{"": &all.Shape}
		maps.Copy(whole, all.Definitions)
		return whole
	})
	return &Schema{source: source, shapes: shapes, compiled: map[string]*gojsonschema.Schema{}}
}

// A Shape is what messages need of one part of a schema. Its description says
// what is wanted there.
type Shape struct {
	Ref         string                       `json:"$ref"`
	Description string                       `json:"description"`
	Properties  map[string]*Shape            `json:"properties"`
	Names       struct{ Description string } `json:"propertyNames"`
	Items       *Shape                       `json:"items"`
	Additional  json.RawMessage              `json:"additionalProperties"` // a shape or a boolean
}

// Shape returns what a definition says of the value at a path, or the whole schema
// if definition is empty. A member of a list without a description has that of the
// list.
func (s *Schema) Shape(definition string, path []string) Shape {
	at := *s.shapes()[definition]
	for _, segment := range path {
		next := at.Properties[segment]
		_, notIndex := strconv.Atoi(segment)
		switch {
		case next != nil:
		case notIndex == nil && at.Items != nil:
			next = at.Items
		default:
			_ = json.Unmarshal(at.Additional, &next) // a boolean has no properties
		}
		if next == nil {
			return Shape{}
		}
		list := at.Description
		if at = *next; next.Ref != "" {
			at = *s.shapes()[strings.TrimPrefix(next.Ref, "#/definitions/")]
			at.Description = cmp.Or(next.Description, at.Description)
		}
		if notIndex == nil {
			at.Description = cmp.Or(at.Description, list)
		}
	}
	return at
}

// Validate checks v against a definition, or against the whole schema if
// definition is empty. The faults are ordered by path. Numbers in v are
// json.Number.
//
// Errors: a schema that does not compile; its author's fault.
func (s *Schema) Validate(definition string, v any) ([]Error, error) {
	compiled, err := s.compile(definition)
	if err != nil {
		return nil, fmt.Errorf("schema %q: %w", definition, err)
	}
	result, err := compiled.Validate(gojsonschema.NewRawLoader(v))
	if err != nil {
		return nil, fmt.Errorf("schema %q: %w", definition, err)
	}
	return faults(result.Errors()), nil
}

func (s *Schema) compile(definition string) (*gojsonschema.Schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if compiled, ok := s.compiled[definition]; ok {
		return compiled, nil
	}
	if s.loader == nil {
		loader := gojsonschema.NewSchemaLoader()
		loader.Draft, loader.AutoDetect = gojsonschema.Draft7, false
		if err := loader.AddSchema(address, gojsonschema.NewBytesLoader(s.source)); err != nil {
			return nil, err
		}
		s.loader = loader
	}
	reference := address
	if definition != "" {
		reference += "#/definitions/" + definition
	}
	compiled, err := s.loader.Compile(gojsonschema.NewReferenceLoader(reference))
	if err != nil {
		return nil, err
	}
	s.compiled[definition] = compiled
	return compiled, nil
}

// keywords names the keyword behind each type of error of gojsonschema.
var keywords = map[string]string{
	"invalid_type": "type", "required": "required", "additional_property_not_allowed": "additionalProperties",
	"missing_dependency": "dependencies", "invalid_property_name": "propertyNames", "pattern": "pattern",
	"number_gte": "minimum", "number_lte": "maximum", "number_not": "not", "number_one_of": "oneOf",
	"array_min_items": "minItems", "array_max_items": "maxItems", "array_min_properties": "minProperties",
	"string_gte": "minLength", "string_lte": "maxLength", "const": "const", "enum": "enum",
}

// faults converts errors of gojsonschema, which come in the order of a map.
func faults(errors []gojsonschema.ResultError) []Error {
	var all []Error
	name, object := "", "" // the last refused name of a property, and whose
	for _, e := range errors {
		place := e.Context().String("\x00")
		f := Error{Keyword: cmp.Or(keywords[e.Type()], e.Type()), Path: strings.Split(place, "\x00")[1:]}
		switch f.Keyword {
		case "required", "additionalProperties":
			f.Property = fmt.Sprint(e.Details()["property"])
		case "dependencies":
			f.Property = fmt.Sprint(e.Details()["dependency"])
		case "propertyNames":
			f.Property = fmt.Sprint(e.Details()["property"])
			name, object = f.Property, place
		default:
			if e.Value() == any(name) && place == object {
				continue // why the name is refused
			}
		}
		all = append(all, f)
	}
	slices.SortStableFunc(all, func(a, b Error) int {
		return cmp.Or(slices.Compare(a.Path, b.Path), cmp.Compare(a.Property, b.Property))
	})
	return all
}
