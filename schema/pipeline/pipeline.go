// Package pipeline is the format of Buildkite pipeline documents, in the
// strict subset that kbgen writes and expects of this repository's own
// pipelines: numbers as numbers, plugins as a list of one-key mappings with a
// pinned version, nothing null, no anchors, no key that Buildkite does not
// know, nothing that would still have to be interpolated to become valid.
//
// It knows the shape of steps. It does not know GPU types, policies, or what
// plugins mean, except that the docker plugin's settings are those that kbgen
// writes. It is stricter than Buildkite; a pipeline that fails here may be
// fine there.
//
// Sources: the step types in buildkite.com/docs/pipelines/configure, limits
// from the same place.
package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/xeipuuv/gojsonschema"
	"gopkg.in/yaml.v3"
)

// A Fault is one thing wrong with a document. Line and Column count from 1 and
// are 0 where no place is to blame.
type Fault struct {
	Line, Column int
	Path         string // "steps[0] (evaluate-h100).retry.automatic[0].limit"
	Text         string
}

func (f *Fault) Error() string {
	var where string
	if f.Line > 0 {
		where = fmt.Sprintf("line %d: ", f.Line)
	}
	if f.Path != "" {
		where += f.Path + ": "
	}
	return where + f.Text
}

// Validate checks one document, YAML or JSON.
//
// Errors: every [Fault], joined, in the order of the document.
func Validate(doc []byte) error {
	root, err := decode(doc)
	if err != nil {
		return err
	}
	c := checker{keys: map[string]string{}}
	c.apply("document", root, "")
	c.steps(child(root, "steps"), "steps")
	slices.SortStableFunc(c.faults, func(a, b *Fault) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return strings.Compare(a.Path+a.Text, b.Path+b.Text)
	})
	faults := make([]error, len(c.faults))
	for i, f := range c.faults {
		faults[i] = f
	}
	return errors.Join(faults...)
}

// A checker walks one document.
type checker struct {
	keys   map[string]string // step key to the path of its step
	faults []*Fault
}

// steps checks each step by the definition for its type. One definition per
// type gives one fault per mistake, where a choice of definitions would
// report all of them.
func (c *checker) steps(list *yaml.Node, path string) {
	if list == nil || list.Kind != yaml.SequenceNode {
		return // the enclosing definition has said so
	}
	for i, step := range list.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		if step.Kind == yaml.ScalarNode {
			if !slices.Contains([]string{"wait", "block", "input"}, step.Value) {
				c.fault(step, at, fmt.Sprintf("got %q, want a mapping, or wait, block or input", step.Value))
			}
			continue
		}
		if key := child(step, "key"); key != nil {
			at += " (" + key.Value + ")"
			c.key(key, at)
		}
		kind := kindOf(step)
		if kind == "" {
			c.fault(step, at, "a step without a type, want command, wait, block, input, trigger or group")
			continue
		}
		c.apply(kind, step, at)
		if kind == "group" {
			c.steps(child(step, "steps"), at+".steps")
		}
	}
}

// key checks that a step's key is the only one of its kind: Buildkite rejects
// the upload otherwise.
func (c *checker) key(key *yaml.Node, at string) {
	if other, taken := c.keys[key.Value]; taken {
		c.fault(key, at+".key", fmt.Sprintf("got %q, which is the key of %s too, want a unique key", key.Value, other))
		return
	}
	c.keys[key.Value] = at
}

// kindOf infers a step's type as the agent does, first match first.
func kindOf(step *yaml.Node) string {
	for _, kind := range []struct{ key, name string }{
		{"command", "command"}, {"plugins", "command"}, {"wait", "wait"}, {"block", "block"},
		{"input", "block"}, {"trigger", "trigger"}, {"group", "group"},
	} {
		if child(step, kind.key) != nil {
			return kind.name
		}
	}
	return ""
}

func (c *checker) fault(n *yaml.Node, path, text string) {
	c.faults = append(c.faults, faultAt(n, path, text))
}

// apply checks n by one definition of the format.
func (c *checker) apply(definition string, n *yaml.Node, path string) {
	result, err := definitions.validate(definition, value(n))
	if err != nil {
		c.fault(n, path, err.Error())
		return
	}
	for _, e := range result.Errors() {
		at, name := locate(n, e.Context().String("\x00"), path)
		if e.Type() == "additional_property_not_allowed" {
			at = keyNode(at, fmt.Sprint(e.Details()["property"]))
		}
		c.fault(at, name, describe(e))
	}
}

// locate finds the node that a schema error is about, and names it.
func locate(n *yaml.Node, context, path string) (*yaml.Node, string) {
	for _, segment := range strings.Split(context, "\x00")[1:] { // the first is "(root)"
		var next *yaml.Node
		if n.Kind == yaml.SequenceNode {
			var i int
			if _, err := fmt.Sscan(segment, &i); err == nil && i < len(n.Content) {
				next = n.Content[i]
			}
			path += "[" + segment + "]"
		} else {
			next = child(n, segment)
			path = join(path, segment)
		}
		if next == nil {
			break
		}
		n = next
	}
	return n, path
}

// describe says what is wrong, and what was there where that is short.
func describe(e gojsonschema.ResultError) string {
	switch e.Type() {
	case "additional_property_not_allowed":
		return fmt.Sprintf("unknown key %q", e.Details()["property"])
	case "required":
		return fmt.Sprintf("missing key %q", e.Details()["property"])
	case "number_not":
		return fmt.Sprintf("got %q, a form that is not allowed", e.Value())
	}
	if v, ok := e.Value().(string); ok && len(v) <= 80 {
		return fmt.Sprintf("got %q: %s", v, e.Description())
	}
	return e.Description()
}

func faultAt(n *yaml.Node, path, text string) *Fault {
	return &Fault{Line: n.Line, Column: n.Column, Path: path, Text: text}
}
