package generator

import (
	"fmt"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// A node is a value of a document, without null and aliases, which the strict
// subset has not. Every scalar has its tag; texts get their style when they are
// written.
type node yaml.Node

func str(s string) node { return node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }
func num(n int) node    { return node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(n)} }
func truth(b bool) node {
	return node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(b)}
}

func list(items ...node) node {
	n := node{Kind: yaml.SequenceNode}
	for _, i := range items {
		n.add(i)
	}
	return n
}

// A field is one entry of a mapping.
type field struct {
	name  string
	value node
}

func mapping(fields ...field) node {
	n := node{Kind: yaml.MappingNode}
	for _, f := range fields {
		n.set(f.name, f.value)
	}
	return n
}

func (n *node) add(i node) { n.Content = append(n.Content, (*yaml.Node)(&i)) }

func (n *node) set(name string, value node) {
	n.add(str(name))
	n.add(value)
}

func strs(values []string) node {
	n := list()
	for _, v := range values {
		n.add(str(v))
	}
	return n
}

// nums is one number, or a list of several.
func nums(values []int) node {
	if len(values) == 1 {
		return num(values[0])
	}
	n := list()
	for _, v := range values {
		n.add(num(v))
	}
	return n
}

// escaped returns the tree with every dollar sign in it doubled, names
// included, so that one interpolation gives back the text as it was.
//
// Refused, because no escape of it is safe in every environment: a dollar sign
// behind an odd number of backslashes. The last one would be taken for part of
// the escape.
func (n node) escaped(path string) (node, error) {
	out := n
	out.Content = nil
	var err error
	if n.Tag == "!!str" {
		if out.Value, err = double(n.Value); err != nil {
			return out, fmt.Errorf("%s: %w", path, err)
		}
	}
	for i, item := range n.Content {
		item, err := node(*item).escaped(below(path, (*yaml.Node)(&n), i))
		if err != nil {
			return out, err
		}
		out.add(item)
	}
	return out, nil
}

// below is the path of something in n: of a mapping's key it is the mapping's own.
func below(path string, n *yaml.Node, i int) string {
	switch {
	case n.Kind != yaml.MappingNode:
		return fmt.Sprintf("%s[%d]", path, i)
	case i%2 == 0:
		return path
	}
	return path + "." + n.Content[i-1].Value
}

func double(s string) (string, error) {
	backslashes := 0
	for i := range len(s) {
		switch {
		case s[i] == '\\':
			backslashes++
			continue
		case s[i] == '$' && backslashes%2 == 1:
			return "", fmt.Errorf(`a dollar sign behind a backslash (\$) cannot be escaped`)
		}
		backslashes = 0
	}
	return strings.ReplaceAll(s, "$", "$$"), nil
}
