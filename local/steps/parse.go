package steps

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema/pipeline"
)

// refused names what Buildkite offers and the stand-in does not.
var refused = map[string]string{
	"cache": "cache volumes exist on hosted agents only",
	"image": "image is for hosted and Kubernetes agents",
}

// Parse reads one document as the agent posts it.
//
// Errors name the step ("steps[2].steps[0]"), what it got and what it wants;
// they are for the person who wrote the pipeline.
func Parse(data []byte) (*Document, error) {
	if err := check(data); err != nil {
		return nil, err
	}
	var top struct {
		Env     environ
		Agents  agentRules
		Steps   []json.RawMessage
		Notify  []json.RawMessage
		Secrets secrets

		Cache, Image any
	}
	if jsonType(data) == "a list" {
		data = slices.Concat([]byte(`{"steps":`), data, []byte("}"))
	}
	if err := json.Unmarshal(data, &top); err != nil {
		return nil, fmt.Errorf("pipeline: %w", err)
	}
	for name, value := range map[string]any{"cache": top.Cache, "image": top.Image} {
		if value != nil {
			return nil, fmt.Errorf("pipeline: %s is not supported by kblocal: %s", name, refused[name])
		}
	}
	doc := &Document{Env: top.Env, Agents: top.Agents, Notify: top.Notify}
	var err error
	if doc.Steps, err = parseSteps(top.Steps, "steps"); err != nil {
		return nil, err
	}
	if err := doc.inherit(top.Secrets); err != nil {
		return nil, fmt.Errorf("pipeline: secrets: %w", err)
	}
	return doc, nil
}

// backend lists the rules of package pipeline for what Buildkite refuses at an
// upload. Other rules are advice, and a build shows what comes of it.
var backend = []string{"KB001", "KB002", "KB004", "KB010", "KB011", "KB012", "KB013", "KB018", "KB019", "KB101", "KB301", "KB304", "KB305", "KB306", "KB307"}

// lenient matches findings of these rules that the stand-in takes: an option
// without a label, a matrix whose adjustments bring the values, and a queue
// whose variable was empty.
var lenient = regexp.MustCompile(`\.options\[\d+\]: missing key "label"|\.matrix\.setup: got a mapping without members|agents\.queue: got "", want the name`)

// check holds a document against the format of every pipeline.
//
// Errors: what is wrong, all on one line.
func check(data []byte) error {
	var value any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&value); err != nil {
		return fmt.Errorf("pipeline: %w", err)
	}
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("pipeline: %w", err)
	}
	// YAML has no place for some characters that JSON takes as they are.
	data = bytes.Map(func(r rune) rune {
		if r >= 0x7f && r <= 0x9f || r == 0xfffe || r == 0xffff {
			return '?'
		}
		return r
	}, data)
	var faults []string
	for _, f := range pipeline.Check(data, pipeline.Options{NoInterpolation: true}) {
		if f.Severity == pipeline.Error && slices.Contains(backend, f.Rule) && !lenient.MatchString(f.Message()) {
			faults = append(faults, f.Message())
		}
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

func parseSteps(list []json.RawMessage, path string) ([]*Step, error) {
	out := make([]*Step, 0, len(list))
	for i, item := range list {
		s, err := parseStep(item, fmt.Sprintf("%s[%d]", path, i))
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func parseStep(raw json.RawMessage, at string) (*Step, error) {
	s := &Step{JSON: raw}
	var word string
	if json.Unmarshal(raw, &word) == nil {
		s.Kind = kinds[word]
		return s, nil
	}
	var properties map[string]json.RawMessage
	if err := json.Unmarshal(raw, &properties); err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	s.Kind = kindOf(properties)
	targets := s.properties()
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		value := properties[name]
		if reason, ok := refused[name]; ok {
			return nil, fmt.Errorf("%s: %s is not supported by kblocal: %s", at, name, reason)
		}
		target, ok := targets[name]
		if !ok || s.Kind == Block && name == "input" || s.Kind == Input && name == "block" {
			return nil, fmt.Errorf("%s: %w", at, unknownProperty(name, string(s.Kind)+" step"))
		}
		if jsonType(value) == "null" && name != "depends_on" {
			continue // as if it were not there
		}
		if target == nil {
			continue
		}
		if err := json.Unmarshal(value, target); err != nil {
			return nil, fmt.Errorf("%s%s: %s: %w", at, s.named(), name, err)
		}
	}
	if err := s.complete(); err != nil {
		return nil, fmt.Errorf("%s%s: %w", at, s.named(), err)
	}
	if s.Kind == Group {
		var inner []json.RawMessage
		err := json.Unmarshal(properties["steps"], &inner)
		if err != nil {
			return nil, fmt.Errorf("%s.steps: %w", at, err)
		}
		s.Steps, err = parseSteps(inner, at+".steps")
		return s, err
	}
	return s, nil
}

// kinds are what the property type, a step of one word, or the property that
// makes a step's kind may say.
var kinds = map[string]Kind{
	"script": Command, "command": Command, "commands": Command, "plugins": Command, "wait": Wait, "waiter": Wait,
	"group": Group, "block": Block, "manual": Block, "input": Input, "trigger": TriggerStep,
}

// kindOf returns a step's kind, which its properties decide.
func kindOf(properties map[string]json.RawMessage) Kind {
	if raw, ok := properties["type"]; ok {
		var t string
		_ = json.Unmarshal(raw, &t)
		return kinds[t]
	}
	for _, name := range []string{"wait", "waiter", "group", "block", "input", "trigger", "command", "commands", "plugins"} {
		if _, ok := properties[name]; ok {
			return kinds[name]
		}
	}
	return ""
}

// unknownProperty is the error for a property that the stand-in does not have.
func unknownProperty(name, where string) error {
	return fmt.Errorf("%s of a %s is not supported by kblocal", name, where)
}
