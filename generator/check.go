package generator

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/buildkite/interpolate"
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema/pipeline"
)

// check refuses a document that is not what is wanted, or that the agent or
// Buildkite would take otherwise than it is written. want are the steps as
// they shall be once the agent has interpolated out.
//
// Steps that differ in names only are examined once; see [reduction]. Before
// is what is uploaded before out, for steps that depend on something there.
func check(before, out []byte, want []node, f Format) error {
	s, err := reduce(out, want, f)
	if err != nil {
		return err
	}
	if !bytes.Contains(out, []byte("depends_on")) {
		before = nil
	}
	return examine(before, s.document, s.want)
}

// examine is the whole check of one document.
func examine(before, out []byte, want []node) error {
	roots, err := pipeline.Parse(slices.Concat(before, out))
	if err != nil {
		return err
	}
	root := roots[len(roots)-1]
	dollars := bytes.IndexByte(out, '$') >= 0
	if !dollars { // interpolation leaves text without a dollar sign alone
		return sameSteps(root, want)
	}
	escaped, err := documentOf(want).escaped("pipeline")
	if err != nil {
		return err
	}
	if err := sameSteps(root, escaped.items[0].items); err != nil {
		return err
	}
	return interpolates(out, want)
}

func documentOf(steps []node) node {
	doc := node{kind: mapping}
	doc.set("steps", node{kind: list, items: steps})
	return doc
}

// interpolates refuses a document that becomes anything but the steps that are
// wanted when the agent interpolates it, in an empty environment or in a hostile
// one. The agent interpolates every text of a step, names of keys included, and
// so does this; the tests hold it against the agent's own parser.
func interpolates(out []byte, want []node) error {
	for _, env := range []variables{{}, {hostile: true}} {
		tree := new(yaml.Node)
		if err := yaml.Unmarshal(out, tree); err != nil {
			return fmt.Errorf("reading the pipeline again: %w", err)
		}
		if err := expand(tree, env); err != nil {
			return fmt.Errorf("interpolating with %s: %w", env, err)
		}
		if err := sameSteps(tree.Content[0], want); err != nil {
			return fmt.Errorf("interpolating with %s changes the pipeline: %w", env, err)
		}
	}
	return nil
}

// expand interpolates every text of a tree.
func expand(n *yaml.Node, env variables) (err error) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		n.Value, err = interpolate.Interpolate(env, n.Value)
		n.Tag = "!!str" // whatever it looks like now
		return err
	}
	for _, part := range n.Content {
		if err := expand(part, env); err != nil {
			return err
		}
	}
	return nil
}

// sameSteps refuses a document that reads otherwise than wanted.
func sameSteps(root *yaml.Node, want []node) error {
	doc := documentOf(want)
	if at := difference(root, &doc, "pipeline"); at != "" {
		return fmt.Errorf("%s does not read as wanted", at)
	}
	return nil
}

// difference is the path of the first value that reads otherwise; "" is none.
func difference(got *yaml.Node, want *node, path string) string {
	switch want.kind {
	case mapping:
		if got.Kind != yaml.MappingNode || len(got.Content) != 2*len(want.items) {
			return path
		}
		for i := range want.items {
			at := path + "." + want.names[i]
			if key := got.Content[2*i]; key.Value != want.names[i] || key.ShortTag() != "!!str" {
				return at
			}
			if found := difference(got.Content[2*i+1], &want.items[i], at); found != "" {
				return found
			}
		}
		return ""
	case list:
		if got.Kind != yaml.SequenceNode || len(got.Content) != len(want.items) {
			return path
		}
		for i := range want.items {
			if found := difference(got.Content[i], &want.items[i], fmt.Sprintf("%s[%d]", path, i)); found != "" {
				return found
			}
		}
		return ""
	}
	tag := map[nodeKind]string{text: "!!str", number: "!!int", boolean: "!!bool"}[want.kind]
	if got.Kind != yaml.ScalarNode || got.Value != want.text || got.ShortTag() != tag {
		return path
	}
	return ""
}

// variables is an environment to interpolate with: empty, or one in which
// every name has a value that breaks whatever it gets into.
type variables struct{ hostile bool }

func (v variables) Get(string) (string, bool) {
	if v.hostile {
		return "$(hostile) ${HOSTILE} \"'\n- !!hostile {", true
	}
	return "", false
}

func (v variables) String() string {
	if v.hostile {
		return "a hostile environment"
	}
	return "an empty environment"
}
