package queuefile

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/xeipuuv/gojsonschema"

	"github.com/gpu-mode/kbgen/schema/near"
)

// Schema is the JSON Schema (draft 7) of queue files. The description of each
// value says what is wanted there, in the words that faults use.
//
//go:embed format.json
var Schema []byte

// compiled is made when the first file is read: most runs of kbgen read none.
var compiled = sync.OnceValues(func() (*gojsonschema.Schema, error) {
	return gojsonschema.NewSchema(gojsonschema.NewBytesLoader(Schema))
})

// A part of the schema, as far as faults need it.
type part struct {
	Description string           `json:"description"`
	Properties  map[string]*part `json:"properties"`
	Items       *part            `json:"items"`
}

var schemaParts = sync.OnceValues(func() (*part, error) {
	root := &part{}
	return root, json.Unmarshal(Schema, root)
})

// described returns the part of the schema for the values at p.
func described(p path) *part {
	at, err := schemaParts()
	for _, step := range p {
		if err != nil || at == nil {
			break
		}
		switch step := step.(type) {
		case int:
			at = at.Items
		case string:
			at = at.Properties[step]
		}
	}
	if err != nil || at == nil {
		return &part{Description: "something else"}
	}
	return at
}

// validate reports what the schema does not allow; false when there is nothing
// below to look at.
func (r *report) validate() bool {
	schema, err := compiled()
	if err != nil {
		panic(fmt.Sprintf("schema of queue files: %v", err)) // a fault of ours; every test meets it
	}
	var document any
	if err := r.root.Decode(&document); err != nil {
		r.wrong(nil, said("no queue file: "+err.Error()), "one")
		return false
	}
	result, err := schema.Validate(gojsonschema.NewGoLoader(document))
	if err != nil {
		r.wrong(nil, said("no queue file: "+err.Error()), "numbers and text")
		return false
	}
	for _, fault := range result.Errors() {
		r.explain(fault)
	}
	_, isMap := document.(map[string]any)
	return isMap
}

// which are the three ways to say which GPUs.
var which = []string{"count", "indexes", "uuids"}

// explain puts a violation of the schema into our words.
func (r *report) explain(fault gojsonschema.ResultError) {
	p := pathOf(fault.Context())
	n := r.at(p)
	property, _ := fault.Details()["property"].(string)
	switch fault.Type() {
	case "required":
		if !slices.Contains(which, property) { // number_one_of says that
			r.add(Error, n, p.to(property), "nothing", described(p.to(property)).Description)
		}
	case "additional_property_not_allowed":
		known := slices.Sorted(maps.Keys(described(p).Properties))
		key, _ := member(n, property)
		r.add(Error, key, p.to(property), "an unknown key",
			fmt.Sprintf("%s perhaps, or another of %s", near.Name(property, known), strings.Join(known, ", ")))
	case "number_one_of":
		var given []string
		for _, name := range which {
			if key, _ := member(n, name); key != nil {
				given = append(given, name)
			}
		}
		got := "none"
		if len(given) > 0 {
			got = strings.Join(given, " and ")
		}
		r.add(Error, n, p, got, "exactly one of "+strings.Join(which, ", "))
	default:
		r.add(Error, n, p, written(n), described(p).Description)
		r.bad[p.String()] = true
	}
}

// pathOf reads gojsonschema's path to a value.
func pathOf(context *gojsonschema.JsonContext) path {
	var p path
	for i, step := range strings.Split(context.String("\x00"), "\x00") {
		if i == 0 {
			continue // "(root)"
		}
		if index, err := strconv.Atoi(step); err == nil {
			p = append(p, index)
		} else {
			p = append(p, step)
		}
	}
	return p
}
