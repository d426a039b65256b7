package generator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

// render writes doc down as YAML or JSON, escaped for one interpolation, and
// checks what it wrote.
func render(doc any, asJSON bool) ([]byte, error) {
	meant, err := writeYAML(doc)
	if err != nil {
		return nil, err
	}
	out := meant
	if asJSON || bytes.IndexByte(meant, '$') >= 0 {
		// Nine documents in ten need neither, and the detour through a tree
		// takes as long as everything else here.
		var tree yaml.Node
		if err := yaml.Unmarshal(meant, &tree); err != nil {
			return nil, fmt.Errorf("reading back the pipeline: %w", err)
		}
		if err := escape(&tree, "pipeline"); err != nil {
			return nil, fmt.Errorf("escaping the pipeline: %w", err)
		}
		if out, err = encode(&tree, asJSON); err != nil {
			return nil, err
		}
	}
	if err := check(out, meant); err != nil {
		return nil, fmt.Errorf("checking the pipeline: %w", err)
	}
	return out, nil
}

func encode(tree *yaml.Node, asJSON bool) ([]byte, error) {
	if !asJSON {
		return writeYAML(tree)
	}
	var compact, out bytes.Buffer
	if err := writeJSON(&compact, tree); err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	if err := json.Indent(&out, compact.Bytes(), "", "  "); err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

func writeYAML(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(v), enc.Close()); err != nil {
		return nil, fmt.Errorf("writing YAML: %w", err)
	}
	return out.Bytes(), nil
}

// writeJSON writes n as JSON with its keys in the order of the tree.
func writeJSON(out *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.DocumentNode:
		return writeJSON(out, n.Content[0])
	case yaml.MappingNode:
		return writeList(out, "{}", n.Content, func(i int) string {
			if i%2 == 1 {
				return ":"
			}
			return ","
		})
	case yaml.SequenceNode:
		return writeList(out, "[]", n.Content, func(int) string { return "," })
	case yaml.ScalarNode:
		var value any
		if err := n.Decode(&value); err != nil {
			return err
		}
		text, err := json.Marshal(value)
		out.Write(text)
		return err
	default:
		return fmt.Errorf("a YAML node of kind %d has no JSON form", n.Kind)
	}
}

func writeList(out *bytes.Buffer, brackets string, items []*yaml.Node, separator func(int) string) error {
	out.WriteByte(brackets[0])
	for i, item := range items {
		if i > 0 {
			out.WriteString(separator(i))
		}
		if err := writeJSON(out, item); err != nil {
			return err
		}
	}
	out.WriteByte(brackets[1])
	return nil
}

// backslashDollar finds the backslashes right before a dollar sign.
var backslashDollar = regexp.MustCompile(`(\\+)\$`)

// escape doubles every dollar sign in the tree's strings, keys included, so
// that one interpolation gives back the text as it was.
//
// Refused, because no escape of them is safe in every environment: a dollar
// sign behind an odd number of backslashes (the last one would be taken for
// part of the escape). Refused as well: null and aliases, which the strict
// subset does not have.
func escape(n *yaml.Node, path string) error {
	switch n.Kind {
	case yaml.AliasNode:
		return fmt.Errorf("%s: an alias is not allowed", path)
	case yaml.ScalarNode:
		return escapeScalar(n, path)
	}
	for i, child := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch n.Kind {
		case yaml.DocumentNode:
			at = path
		case yaml.MappingNode:
			at = path + "." + n.Content[i-i%2].Value
		}
		if err := escape(child, at); err != nil {
			return err
		}
	}
	return nil
}

func escapeScalar(n *yaml.Node, path string) error {
	switch n.ShortTag() {
	case "!!null":
		return fmt.Errorf("%s: null is not allowed", path)
	case "!!str":
		for _, m := range backslashDollar.FindAllStringSubmatch(n.Value, -1) {
			if len(m[1])%2 == 1 {
				return fmt.Errorf(`%s: a dollar sign behind a backslash (\$) cannot be escaped`, path)
			}
		}
		n.Value = strings.ReplaceAll(n.Value, "$", "$$")
	}
	return nil
}
