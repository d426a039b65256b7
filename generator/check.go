package generator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	agentparser "github.com/buildkite/go-pipeline"
	"github.com/buildkite/go-pipeline/ordered"
	"github.com/buildkite/go-pipeline/warning"
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema/pipeline"
)

// check refuses a document that is not what was meant, or that the agent or
// Buildkite would take otherwise than it is written. meant are the steps as
// they shall be once the agent has interpolated out.
//
// Steps that differ in names only are examined once; see [reduction]. Before
// is what is uploaded before out, for steps that depend on something there.
func check(before, out []byte, meant []node, f Format) error {
	s, err := reduce(out, meant, f)
	if err != nil {
		return err
	}
	if !bytes.Contains(out, []byte("depends_on")) {
		before = nil
	}
	return examine(before, s.document, s.meant)
}

// examine is the whole check of one document.
func examine(before, out []byte, meant []node) error {
	if err := pipeline.Validate(slices.Concat(before, out)); err != nil {
		return err
	}
	tree, p, err := parse(out)
	if err != nil {
		return err
	}
	dollars := bytes.IndexByte(out, '$') >= 0
	if !dollars { // interpolation leaves text without a dollar sign alone
		return sameSteps(tree, meant)
	}
	escaped, err := documentOf(meant).escaped("pipeline")
	if err != nil {
		return err
	}
	if err := sameSteps(tree, escaped.items[0].items); err != nil {
		return err
	}
	return interpolates(out, p, meant)
}

func documentOf(steps []node) node {
	doc := node{kind: mapping}
	doc.set("steps", node{kind: list, items: steps})
	return doc
}

// interpolates refuses a document that becomes anything but the steps that
// were meant, in an empty environment or in a hostile one.
func interpolates(out []byte, p *agentparser.Pipeline, meant []node) error {
	text, err := write(documentOf(meant), nil, YAML)
	if err != nil {
		return err
	}
	_, want, err := parse(text)
	if err != nil {
		return err
	}
	wantJSON, err := json.Marshal(want)
	if err != nil {
		return fmt.Errorf("marshalling the parsed pipeline: %w", err)
	}
	for _, env := range []variables{{}, {hostile: true}} {
		if p == nil {
			if _, p, err = parse(out); err != nil {
				return err
			}
		}
		if err := p.Interpolate(env, false); err != nil {
			return fmt.Errorf("interpolating with %s: %w", env, err)
		}
		got, err := json.Marshal(p)
		if err != nil {
			return fmt.Errorf("marshalling the interpolated pipeline: %w", err)
		}
		if !bytes.Equal(got, wantJSON) {
			return fmt.Errorf("interpolating with %s changes the pipeline: %s", env, firstDifference(got, wantJSON))
		}
		p = nil
	}
	return nil
}

// parse reads a document as the agent does. Its warnings are errors here.
func parse(doc []byte) (*yaml.Node, *agentparser.Pipeline, error) {
	tree := new(yaml.Node)
	if err := yaml.Unmarshal(doc, tree); err != nil {
		return nil, nil, fmt.Errorf("the agent's parser refuses it: %w", err)
	}
	p := new(agentparser.Pipeline)
	err := ordered.Unmarshal(tree, p) // what agentparser.Parse does with the tree
	if w := warning.As(err); w != nil {
		return nil, nil, fmt.Errorf("the agent's parser warns: %w", w)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the agent's parser refuses it: %w", err)
	}
	if len(p.Steps) == 0 {
		return nil, nil, errors.New("the pipeline has no steps")
	}
	return tree, p, nil
}

// sameSteps refuses a document that reads otherwise than it was meant.
func sameSteps(tree *yaml.Node, meant []node) error {
	doc := documentOf(meant)
	if at := difference(tree.Content[0], &doc, "pipeline"); at != "" {
		return fmt.Errorf("%s does not read as it was meant", at)
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

// Set is called for top-level env, which kbgen never writes.
func (v variables) Set(string, string) {}

func (v variables) String() string {
	if v.hostile {
		return "a hostile environment"
	}
	return "an empty environment"
}

// firstDifference quotes a few bytes of both texts where they part.
func firstDifference(got, want []byte) string {
	n := 0
	for n < len(got) && n < len(want) && got[n] == want[n] {
		n++
	}
	excerpt := func(b []byte) string {
		return strings.ToValidUTF8(string(b[max(0, n-20):min(len(b), n+30)]), "")
	}
	return fmt.Sprintf("got …%q…, want …%q…", excerpt(got), excerpt(want))
}
