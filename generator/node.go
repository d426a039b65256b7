package generator

import (
	"fmt"
	"strconv"
	"strings"
)

// A node is a value of a document before it is written. It is what YAML and
// JSON have in common, less null and aliases, which the strict subset has not.
type node struct {
	kind  nodeKind
	text  string   // of a scalar
	names []string // of a mapping, one per item, in printed order
	items []node   // of a list or a mapping
}

type nodeKind byte

const (
	text nodeKind = iota
	number
	boolean
	list
	mapping
)

func str(s string) node    { return node{kind: text, text: s} }
func num(n int) node       { return node{kind: number, text: strconv.Itoa(n)} }
func truth(b bool) node    { return node{kind: boolean, text: strconv.FormatBool(b)} }
func (n *node) add(i node) { n.items = append(n.items, i) }

func (n *node) set(name string, value node) {
	n.names = append(n.names, name)
	n.items = append(n.items, value)
}

// single is a mapping of one name.
func single(name string, value node) node {
	return node{kind: mapping, names: []string{name}, items: []node{value}}
}

func strs(values []string) node {
	n := node{kind: list, items: make([]node, len(values))}
	for i, v := range values {
		n.items[i] = str(v)
	}
	return n
}

// nums is one number, or a list of several.
func nums(values []int) node {
	if len(values) == 1 {
		return num(values[0])
	}
	n := node{kind: list}
	for _, v := range values {
		n.add(num(v))
	}
	return n
}

// has reports whether any text in the tree holds b.
func (n *node) has(b byte) bool {
	if n.kind == text && strings.IndexByte(n.text, b) >= 0 {
		return true
	}
	for i := range n.items {
		if n.kind == mapping && strings.IndexByte(n.names[i], b) >= 0 || n.items[i].has(b) {
			return true
		}
	}
	return false
}

// escaped returns the tree with every dollar sign in it doubled, names
// included, so that one interpolation gives back the text as it was.
//
// Refused, because no escape of it is safe in every environment: a dollar sign
// behind an odd number of backslashes. The last one would be taken for part of
// the escape.
func (n node) escaped(path string) (node, error) {
	out := node{kind: n.kind, text: n.text}
	var err error
	if n.kind == text {
		if out.text, err = double(n.text); err != nil {
			return out, fmt.Errorf("%s: %w", path, err)
		}
	}
	for i, item := range n.items {
		at := fmt.Sprintf("%s[%d]", path, i)
		if n.kind == mapping {
			at = path + "." + n.names[i]
			name, err := double(n.names[i])
			if err != nil {
				return out, fmt.Errorf("%s: %w", path, err)
			}
			out.names = append(out.names, name)
		}
		item, err := item.escaped(at)
		if err != nil {
			return out, err
		}
		out.items = append(out.items, item)
	}
	return out, nil
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
