package queuefile

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/near"
	"github.com/gpu-mode/kbgen/schema/validation"
)

// Schema is the JSON Schema (draft 7) of queue files. The description of each
// value says what is wanted there, in the words that faults use.
//
//go:embed format.json
var Schema []byte

// compiled is read when the first file is: most runs of kbgen read none.
var compiled = validation.New(Schema)

// described returns what the schema says of the values at p.
func described(p path) validation.Shape {
	var segments []string
	for _, step := range p {
		segments = append(segments, fmt.Sprint(step))
	}
	at := compiled.Shape("", segments)
	at.Description = cmp.Or(at.Description, "something else")
	return at
}

// validate reports what the schema does not allow; false when there is nothing
// below to look at.
func (r *report) validate() bool {
	document, err := r.document()
	if err != nil {
		r.wrong(nil, said("no queue file: "+err.Error()), "one")
		return false
	}
	faults, err := compiled.Validate("", document)
	if err != nil {
		panic(fmt.Sprintf("schema of queue files: %v", err)) // a fault of ours; every test meets it
	}
	for _, fault := range faults {
		r.explain(fault)
	}
	_, isMap := document.(map[string]any)
	return isMap
}

// document returns the file as JSON values, with numbers as json.Number.
func (r *report) document() (document any, err error) {
	var tree any
	if err := r.root.Decode(&tree); err != nil {
		return nil, err
	}
	data, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return document, dec.Decode(&document)
}

// which are the three ways to say which GPUs.
var which = []string{"count", "indexes", "uuids"}

// explain puts a violation of the schema into our words.
func (r *report) explain(fault validation.Error) {
	p := pathOf(fault.Path)
	n := r.at(p)
	property := fault.Property
	switch fault.Keyword {
	case "required":
		if !slices.Contains(which, property) { // oneOf says that
			r.add(schema.SeverityError, n, p.to(property), "nothing", described(p.to(property)).Description)
		}
	case "additionalProperties":
		known := slices.Sorted(maps.Keys(described(p).Properties))
		key, _ := member(n, property)
		r.add(schema.SeverityError, key, p.to(property), "an unknown key",
			near.Perhaps(property, known))
	case "oneOf":
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
		r.add(schema.SeverityError, n, p, got, "exactly one of "+strings.Join(which, ", "))
	default:
		if !r.bad[p.String()] {
			r.add(schema.SeverityError, n, p, written(n), described(p).Description)
			r.bad[p.String()] = true
		}
		drop(n)
	}
}

// drop takes a value away that cannot be used, so that nobody expands it.
func drop(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode || n.Kind == yaml.SequenceNode {
		n.Kind, n.Tag, n.Value, n.Content = yaml.ScalarNode, "!!null", "", nil
	}
}

// pathOf tells indexes from names.
func pathOf(steps []string) path {
	var p path
	for _, step := range steps {
		if index, err := strconv.Atoi(step); err == nil {
			p = append(p, index)
		} else {
			p = append(p, step)
		}
	}
	return p
}
