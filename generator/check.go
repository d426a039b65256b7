package generator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	agentparser "github.com/buildkite/go-pipeline"
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema/pipeline"
)

// check refuses a document that is not what is wanted, or that the agent or
// Buildkite would take otherwise than it is written. want are the steps as
// they shall be once the agent has interpolated out. Before is what is uploaded
// before out, for steps that depend on something there.
func check(before, out []byte, want []node) error {
	if !bytes.Contains(out, []byte("depends_on")) {
		before = nil
	}
	documents, err := pipeline.Parse(slices.Concat(before, out))
	if err != nil {
		return err
	}
	document := documents[len(documents)-1]
	if bytes.IndexByte(out, '$') < 0 { // interpolation leaves text without a dollar sign alone
		return sameSteps(document.Root, want)
	}
	escaped, err := documentOf(want).escaped("pipeline")
	if err != nil {
		return err
	}
	if err := sameSteps(document.Root, escaped.items[0].items); err != nil {
		return err
	}
	return interpolates(document.Pipeline, want)
}

func documentOf(steps []node) node { return single("steps", node{kind: list, items: steps}) }

// interpolates refuses a pipeline that asks for a variable when the agent
// interpolates it, or that becomes anything but the steps that are wanted.
func interpolates(p *agentparser.Pipeline, want []node) error {
	var env recorder
	if err := p.Interpolate(&env, false); err != nil {
		return fmt.Errorf("interpolating: %w", err)
	}
	if len(env.names) > 0 {
		return fmt.Errorf("interpolation changes the pipeline: it replaces $%s", env.names[0])
	}
	got, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("interpolating: %w", err)
	}
	text, err := writeJSON(documentOf(want))
	if err != nil {
		return err
	}
	wanted, err := agentparser.Parse(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("parsing the pipeline that is wanted: %w", err)
	}
	wantedJSON, err := json.Marshal(wanted)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, wantedJSON) {
		return errors.New("interpolation changes the pipeline")
	}
	return nil
}

// A recorder is an empty environment that records which variables the agent
// asks for.
type recorder struct{ names []string }

func (r *recorder) Get(name string) (string, bool) {
	r.names = append(r.names, name)
	return "", false
}

func (r *recorder) Set(string, string) {}

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
