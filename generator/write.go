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
	tree, err := doc.yaml()
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

// yaml returns the tree for yaml.v3.
func (n *node) yaml() (*yaml.Node, error) {
	out := &yaml.Node{}
	switch n.kind {
	case text:
		if err := out.Encode(n.text); err != nil { // with the quotes that it needs
			return nil, err
		}
		if n.text == "<<" || !visible(n.text) {
			out.Tag, out.Style = "!!str", yaml.DoubleQuotedStyle
		}
		return out, nil
	case number, boolean:
		out.Kind, out.Value = yaml.ScalarNode, n.text
	case list:
		out.Kind = yaml.SequenceNode
	case mapping:
		out.Kind = yaml.MappingNode
	}
	for i := range n.items {
		if n.kind == mapping {
			key := str(n.names[i])
			name, err := key.yaml()
			if err != nil {
				return nil, err
			}
			out.Content = append(out.Content, name)
		}
		item, err := n.items[i].yaml()
		if err != nil {
			return nil, err
		}
		out.Content = append(out.Content, item)
	}
	return out, nil
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
	if err := compactJSON(&compact, &doc); err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	if err := json.Indent(&out, compact.Bytes(), "", "  "); err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

func compactJSON(out *bytes.Buffer, n *node) error {
	switch n.kind {
	case number, boolean:
		out.WriteString(n.text)
		return nil
	case text:
		return jsonText(out, n.text)
	}
	brackets := "[]"
	if n.kind == mapping {
		brackets = "{}"
	}
	out.WriteByte(brackets[0])
	for i := range n.items {
		if i > 0 {
			out.WriteByte(',')
		}
		if n.kind == mapping {
			if err := jsonText(out, n.names[i]); err != nil {
				return err
			}
			out.WriteByte(':')
		}
		if err := compactJSON(out, &n.items[i]); err != nil {
			return err
		}
	}
	out.WriteByte(brackets[1])
	return nil
}

func jsonText(out *bytes.Buffer, s string) error {
	data, err := json.Marshal(s)
	out.Write(data)
	return err
}
