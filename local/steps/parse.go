package steps

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
	fields, err := object(data)
	if err != nil {
		return nil, fmt.Errorf("pipeline: %w", err)
	}
	doc := &Document{}
	var shared []Secret
	for _, name := range slices.Sorted(keys(fields)) {
		raw := fields[name]
		var err error
		switch name {
		case "env":
			doc.Env, err = stringMap(raw)
		case "agents":
			doc.Agents, err = agentRules(raw)
		case "steps":
			doc.Steps, err = parseSteps(raw, "steps")
			if err != nil {
				return nil, err
			}
		case "notify":
			doc.Notify, err = notifications(raw)
		case "secrets":
			shared, err = secrets(raw)
		default:
			// Any other name may hold what anchors are taken from.
			if reason, ok := refused[name]; ok {
				return nil, fmt.Errorf("pipeline: %s is not supported by kblocal: %s", name, reason)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("pipeline: %s: %w", name, err)
		}
	}
	if err := doc.inherit(shared); err != nil {
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

func parseSteps(raw json.RawMessage, path string) ([]*Step, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("%s: got %s, want a list of steps", path, jsonType(raw))
	}
	out := make([]*Step, 0, len(list))
	for i, item := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		s, err := parseStep(item, at)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func parseStep(raw json.RawMessage, at string) (*Step, error) {
	var word string
	if json.Unmarshal(raw, &word) == nil {
		switch word {
		case "wait", "waiter":
			return &Step{Kind: Wait, JSON: raw}, nil
		case "block", "manual":
			return &Step{Kind: Block, JSON: raw}, nil
		case "input":
			return &Step{Kind: Input, JSON: raw}, nil
		}
		return nil, fmt.Errorf("%s: got %q, want a step, \"wait\", \"block\" or \"input\"", at, word)
	}
	fields, err := object(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	s := &Step{JSON: raw}
	if s.Kind, err = kind(fields); err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	known := stepProperties[s.Kind]
	for _, name := range slices.Sorted(keys(fields)) {
		if reason, ok := refused[name]; ok && s.Kind == Command {
			return nil, fmt.Errorf("%s: %s is not supported by kblocal: %s", at, name, reason)
		}
		set, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("%s: %w", at, unknownProperty(name, string(s.Kind)+" step"))
		}
		if jsonType(fields[name]) == "null" && !slices.Contains(nullMeans, name) {
			continue // as if it were not there
		}
		if name == "steps" {
			if s.Steps, err = parseSteps(fields[name], at+".steps"); err != nil {
				return nil, err
			}
			continue
		}
		if err := set(s, fields[name]); err != nil {
			return nil, fmt.Errorf("%s%s: %s: %w", at, s.named(), name, err)
		}
	}
	return s, s.check(at)
}

// nullMeans are properties of which null says something.
var nullMeans = []string{"depends_on", "steps"}

// kind returns a step's kind, which its properties decide.
func kind(fields map[string]json.RawMessage) (Kind, error) {
	if raw, ok := fields["type"]; ok {
		var t string
		_ = json.Unmarshal(raw, &t)
		switch t {
		case "script", "command", "commands":
			return Command, nil
		case "wait", "waiter":
			return Wait, nil
		case "group":
			return Group, nil
		case "block", "manual":
			return Block, nil
		case "input":
			return Input, nil
		case "trigger":
			return TriggerStep, nil
		}
		return "", fmt.Errorf("type: got %s, want \"command\", \"wait\", \"block\", \"input\", \"trigger\" or \"group\"", raw)
	}
	for _, k := range []struct {
		name string
		kind Kind
	}{{"wait", Wait}, {"waiter", Wait}, {"group", Group}, {"block", Block}, {"input", Input}, {"trigger", TriggerStep}, {"command", Command}, {"commands", Command}, {"plugins", Command}} {
		if _, ok := fields[k.name]; ok {
			return k.kind, nil
		}
	}
	return "", errors.New("got a step without command, plugins, wait, block, input, trigger or group")
}

// unknownProperty is the error for a property that the stand-in does not have.
func unknownProperty(name, where string) error {
	return fmt.Errorf("%s of a %s is not supported by kblocal", name, where)
}
