package generator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// A Format is a way to write a document. Both mean the same steps.
type Format string

const (
	// YAML is for people and goldens.
	YAML Format = "yaml"
	// JSON is for pipes: cut short, it parses nowhere.
	JSON Format = "json"
)

// write returns the whole document.
func write(doc node, comment []string, f Format) ([]byte, error) {
	if f == JSON {
		return writeJSON(doc)
	}
	tree, err := styled((*yaml.Node)(&doc))
	if err != nil {
		return nil, fmt.Errorf("writing YAML: %w", err)
	}
	var out bytes.Buffer
	for _, line := range comment {
		out.WriteString(strings.TrimRight("# "+line, " ") + "\n")
	}
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(tree), enc.Close()); err != nil {
		return nil, fmt.Errorf("writing YAML: %w", err)
	}
	return out.Bytes(), nil
}

// styled returns the tree with the quotes that its texts need.
func styled(n *yaml.Node) (*yaml.Node, error) {
	out := *n
	if n.Tag == "!!str" {
		err := out.Encode(n.Value)
		if n.Value == "<<" || !visible(n.Value) {
			out.Tag, out.Style = "!!str", yaml.DoubleQuotedStyle
		}
		return &out, err
	}
	out.Content = nil
	for _, item := range n.Content {
		item, err := styled(item)
		if err != nil {
			return nil, err
		}
		out.Content = append(out.Content, item)
	}
	return &out, nil
}

// visible reports whether s is lines of visible ASCII, which may be written as
// they are: the first begins with something, and none ends with a blank.
func visible(s string) bool {
	for i := range len(s) {
		if (s[i] < ' ' || s[i] > '~') && s[i] != '\n' {
			return false
		}
	}
	return !strings.Contains(s, "\n") || s[0] != ' ' && s[0] != '\n' && !strings.HasSuffix(s, "\n") && !strings.Contains(s+"\n", " \n")
}

func writeJSON(doc node) ([]byte, error) {
	var compact, out bytes.Buffer
	if err := compactJSON(&compact, (*yaml.Node)(&doc)); err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	if err := json.Indent(&out, compact.Bytes(), "", "  "); err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

func compactJSON(out *bytes.Buffer, n *yaml.Node) error {
	brackets, marks := "[]", ",,"
	switch {
	case n.Tag == "!!str":
		data, err := json.Marshal(n.Value)
		out.Write(data)
		return err
	case n.Kind == yaml.ScalarNode:
		out.WriteString(n.Value)
		return nil
	case n.Kind == yaml.MappingNode:
		brackets, marks = "{}", ",:"
	}
	out.WriteByte(brackets[0])
	for i, item := range n.Content {
		if i > 0 {
			out.WriteByte(marks[i%2])
		}
		if err := compactJSON(out, item); err != nil {
			return err
		}
	}
	out.WriteByte(brackets[1])
	return nil
}
