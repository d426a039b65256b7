package pipeline

import (
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema/near"
)

// child returns the value of a key in a mapping, the last one when it is
// written twice, nil when there is none.
func child(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := len(n.Content) - 2; i >= 0; i -= 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// keyNode returns the key itself, or the mapping when it has no such key.
func keyNode(n *yaml.Node, key string) *yaml.Node {
	if n.Kind == yaml.MappingNode {
		for i := 0; i < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				return n.Content[i]
			}
		}
	}
	return n
}

// scalarText returns the text of a scalar that is not null, "" for anything else.
func scalarText(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode || isNull(n) {
		return ""
	}
	return n.Value
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// isTrue reports whether a setting is on.
func isTrue(n *yaml.Node) bool { return scalarText(n) == "true" }

// items returns the members of a list, or a single scalar as a list of one.
func items(n *yaml.Node) []*yaml.Node {
	switch {
	case n == nil || isNull(n):
		return nil
	case n.Kind == yaml.SequenceNode:
		return n.Content
	}
	return []*yaml.Node{n}
}

// entries calls f for each key and value of a mapping.
func entries(n *yaml.Node, f func(key, value *yaml.Node)) {
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		f(n.Content[i], n.Content[i+1])
	}
}

// intValue returns a whole number, also one in quotes.
func intValue(n *yaml.Node) (int, bool) {
	v, err := strconv.Atoi(scalarText(n))
	return v, err == nil
}

// isVariable reports whether a text still holds something to replace.
func isVariable(s string) bool { return strings.Contains(s, "$") || strings.Contains(s, "{{") }

// lastLine returns the last line that a tree touches.
func lastLine(n *yaml.Node) int {
	last := n.Line
	if n.Kind == yaml.ScalarNode && (n.Style == yaml.LiteralStyle || n.Style == yaml.FoldedStyle) {
		last += strings.Count(n.Value, "\n")
	}
	for _, c := range n.Content {
		last = max(last, lastLine(c))
	}
	return last
}

// kindName says what a node is, for messages.
func kindName(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "null"
	case n.ShortTag() == "!!int" || n.ShortTag() == "!!float" || n.ShortTag() == "!!bool":
		return n.Value
	}
	return quote(n.Value)
}

// quote quotes a text, shortened to one line of a message.
func quote(s string) string {
	if r := []rune(s); len(r) > 60 {
		s = string(r[:57]) + "..."
	}
	return strconv.Quote(s)
}

func join(path, key string) string {
	if path == "" || strings.HasSuffix(path, ": ") {
		return path + key
	}
	return path + "." + key
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// nearest returns the known word that differs least from a misspelt one, ""
// when none is near.
func nearest(word string, known []string) string {
	best, distance := "", min(3, max(2, len(word)/2))
	for _, k := range known {
		if d := near.Distance(strings.ToLower(word), strings.ToLower(k)); d < distance {
			best, distance = k, d
		}
	}
	return best
}
