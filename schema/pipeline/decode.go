package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"gopkg.in/yaml.v3"
)

// decode reads one YAML or JSON document without anything that two readers
// could understand differently. The tree gives positions to faults found later.
//
// Errors: [Fault] each, joined: aliases and anchors, duplicate or non-text
// keys, tags, null anywhere but as the value of wait, a second document.
func decode(doc []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(doc))
	var tree yaml.Node
	if err := dec.Decode(&tree); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, &Fault{Text: "the document is empty, want steps"}
		}
		return nil, &Fault{Text: "not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, &Fault{Text: "text behind the first document, want one document"}
	}
	root := tree.Content[0]
	var faults []error
	inspect(root, "", &faults)
	return root, errors.Join(faults...)
}

// inspect finds what the strict subset does not have, depth first.
func inspect(n *yaml.Node, path string, faults *[]error) {
	fault := func(at *yaml.Node, format string, args ...any) {
		*faults = append(*faults, faultAt(at, path, fmt.Sprintf(format, args...)))
	}
	if n.Anchor != "" {
		fault(n, "anchor &%s, want the text written out", n.Anchor)
	}
	switch n.Kind {
	case yaml.AliasNode:
		fault(n, "alias *%s, want the text written out", n.Value)
	case yaml.SequenceNode:
		for i, item := range n.Content {
			inspect(item, fmt.Sprintf("%s[%d]", path, i), faults)
		}
	case yaml.MappingNode:
		seen := map[string]bool{}
		for i := 0; i < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			switch {
			case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
				fault(key, "key %s, want text", key.Value)
			case seen[key.Value]:
				fault(key, "key %q twice in one mapping", key.Value)
			}
			seen[key.Value] = true
			if key.Value == "wait" && value.ShortTag() == "!!null" {
				continue // the usual way to write a wait step
			}
			inspect(value, join(path, key.Value), faults)
		}
	case yaml.ScalarNode:
		switch tag := n.ShortTag(); tag {
		case "!!str", "!!bool", "!!int", "!!float":
		case "!!null":
			fault(n, "null, want a value or no key")
		default:
			fault(n, "a value of type %s, want text, a number or a boolean", tag)
		}
	}
}

// value converts a tree that inspect found nothing in to what gojsonschema
// takes: map[string]any, []any, string, bool, json.Number, nil.
func value(n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i < len(n.Content); i += 2 {
			m[n.Content[i].Value] = value(n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			list[i] = value(item)
		}
		return list
	}
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return b
		}
	case "!!int", "!!float":
		var v any
		if n.Decode(&v) == nil {
			if text, err := json.Marshal(v); err == nil {
				return json.Number(text)
			}
		}
	}
	return n.Value
}

// child returns the value of a key in a mapping, nil when there is none.
func child(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// keyNode returns the key itself, or the mapping when it has no such key.
func keyNode(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i]
		}
	}
	return n
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
