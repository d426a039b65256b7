package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// maxNodes bounds a document whose aliases multiply.
const maxNodes = 1_000_000

// refusal begins the line that kbgen prints in place of a pipeline.
const refusal = "@kbgen:"

// decode reads a stream of documents into trees without aliases and merges,
// and reports what two readers could understand differently. The positions of
// what an alias stands for are those of its anchor.
//
// ok is false when the rest of the stream, or a document of it, is lost.
func (c *checker) decode(stream []byte) (roots []*yaml.Node, ok bool) {
	ok = true
	dec := yaml.NewDecoder(bytes.NewReader(stream))
	for {
		var tree yaml.Node
		err := dec.Decode(&tree)
		switch {
		case errors.Is(err, io.EOF):
			if len(roots) == 0 && ok {
				c.report("KB001", nil, "", "the document is empty, want steps")
				ok = false
			}
			return roots, ok
		case err != nil:
			c.notYAML(stream, err)
			return roots, false
		}
		root := tree.Content[0]
		if root.ShortTag() == "!!null" {
			c.report("KB001", root, "", "the document is empty, want steps")
			ok = false
			continue
		}
		r := resolver{c: c}
		if r.inspect(root, ""); r.aliases {
			if root = r.resolve(root); r.broken {
				c.report("KB004", root, "", "an alias that contains itself, or aliases that make more than %d nodes", maxNodes)
				return roots, false
			}
		}
		roots = append(roots, root)
	}
}

// notYAML reports what the YAML reader stumbled over.
func (c *checker) notYAML(stream []byte, err error) {
	line, words := text.YAMLError(err)
	at := schema.Finding{Line: line, Column: min(1, line)}
	if i := bytes.Index(stream, []byte(refusal)); i == 0 || i > 0 && stream[i-1] == '\n' {
		at.Line, at.Column = bytes.Count(stream[:i], []byte("\n"))+1, 1
		words = "this is the line that kbgen leaves when it fails: look for its error in the log"
	}
	c.add("KB002", at, "not YAML: %s", words)
}

// A resolver replaces aliases and merges by what they stand for.
type resolver struct {
	c       *checker
	aliases bool // there is something to replace
	nodes   int
	active  []*yaml.Node // being resolved, outermost first
	broken  bool
}

// inspect reports keys written twice, and what the strict subset does not
// have, depth first.
func (r *resolver) inspect(n *yaml.Node, path string) {
	if n.Anchor != "" {
		r.c.report("KB005", n, path, "anchor &%s, want the text written out", n.Anchor)
	}
	switch n.Kind {
	case yaml.AliasNode:
		r.aliases = true
		r.c.report("KB005", n, path, "alias *%s, want the text written out", n.Value)
	case yaml.SequenceNode:
		for i, item := range n.Content {
			r.inspect(item, index(path, i))
		}
	case yaml.MappingNode:
		r.inspectMapping(n, path)
	case yaml.ScalarNode:
		switch tag := n.ShortTag(); tag {
		case "!!str", "!!bool", "!!int", "!!float":
		case "!!null":
			r.c.report("KB006", n, path, "null, want a value or no key")
		default:
			r.c.report("KB007", n, path, "a value of type %s, want text, a number or a boolean", tag)
		}
	}
}

func (r *resolver) inspectMapping(n *yaml.Node, path string) {
	seen := make(map[string]bool, len(n.Content)/2)
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.ShortTag() == "!!merge":
			r.aliases = true
			r.c.report("KB005", key, path, "merge <<, want the keys written out")
			r.inspect(value, path)
			continue
		case key.Kind == yaml.AliasNode:
			r.aliases = true
			r.c.report("KB005", key, path, "alias *%s, want the text written out", key.Value)
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			r.c.report("KB007", key, path, "key %s, want text", key.Value)
		case seen[key.Value]:
			r.c.report("KB003", key, path, "key %q twice in one mapping, the last one wins", key.Value)
		}
		seen[key.Value] = true
		if value.ShortTag() == "!!null" && (key.Value == "wait" || key.Value == "waiter") {
			continue // the usual way to write a wait step
		}
		r.inspect(value, join(path, key.Value))
	}
}

// resolve copies n as far as it contains aliases or merges.
func (r *resolver) resolve(n *yaml.Node) *yaml.Node {
	if r.nodes++; r.nodes > maxNodes || r.broken {
		r.broken = true
		return n
	}
	switch n.Kind {
	case yaml.AliasNode:
		return r.resolve(n.Alias)
	case yaml.ScalarNode:
		return n
	}
	if slices.Contains(r.active, n) {
		r.broken = true
		return n
	}
	r.active = append(r.active, n)
	defer func() { r.active = r.active[:len(r.active)-1] }()
	out := *n
	out.Content = make([]*yaml.Node, 0, len(n.Content))
	if n.Kind == yaml.MappingNode {
		r.mapping(n, &out)
		return &out
	}
	for _, item := range n.Content {
		out.Content = append(out.Content, r.resolve(item))
	}
	return &out
}

// mapping resolves the entries of n into out. What is merged comes behind
// what is written, which beats it.
func (r *resolver) mapping(n, out *yaml.Node) {
	var merged []*yaml.Node
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], r.resolve(n.Content[i+1])
		if key.ShortTag() != "!!merge" {
			out.Content = append(out.Content, r.resolve(key), value)
			continue
		}
		if value.Kind == yaml.SequenceNode {
			merged = append(merged, value.Content...)
		} else {
			merged = append(merged, value)
		}
	}
	for _, m := range merged {
		if m.Kind != yaml.MappingNode {
			r.c.report("KB004", m, "", "merge of %s, want a mapping", kindName(m))
			continue
		}
		for i := 0; i+1 < len(m.Content); i += 2 {
			if child(out, m.Content[i].Value) == nil {
				out.Content = append(out.Content, m.Content[i], m.Content[i+1])
			}
		}
	}
}

// value converts a tree to what gojsonschema takes: map[string]any, []any,
// string, bool, json.Number, nil. Keys without a value are left out, as if
// they were not there, except where the key alone says something.
func value(n *yaml.Node) any { return convert(n, false) }

// convert does the work of value. Below plugins nothing is left out: a plugin
// without settings is written with null.
func convert(n *yaml.Node, nulls bool) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if v := convert(n.Content[i+1], nulls || key == "plugins"); v != nil || nulls || nullKeys[key] {
				m[key] = v
			}
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			list = append(list, convert(item, nulls))
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
			if text, err := json.Marshal(v); err == nil { // JSON has no infinity
				return json.Number(text)
			}
		}
	}
	return n.Value
}
