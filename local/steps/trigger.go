package steps

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// A Trigger is what a trigger step starts.
type Trigger struct {
	Pipeline string // slug
	Async    bool   // go on at once
	Message  string // the step's label when empty
	Commit   string // "HEAD" when empty
	Branch   string // the pipeline's default branch when empty
	Env      map[string]string
	MetaData map[string]string
}

func (s *Step) triggers() *Trigger {
	if s.Trigger == nil {
		s.Trigger = &Trigger{}
	}
	return s.Trigger
}

// triggered reads the build attribute of a trigger step.
func triggered(s *Step, raw json.RawMessage) error {
	fields, err := object(raw)
	if err != nil {
		return err
	}
	t := s.triggers()
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := fields[name]
		if jsonType(value) == "null" {
			continue
		}
		switch name {
		case "message":
			t.Message, err = text(value)
		case "commit":
			t.Commit, err = text(value)
		case "branch":
			t.Branch, err = text(value)
		case "env":
			t.Env, err = scalarMap(value)
		case "meta_data":
			t.MetaData, err = scalarMap(value)
		default:
			err = unknownProperty(name, "triggered build")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return CheckEnv(t.Env)
}

// scalarMap reads a map of scalars as text: the agent normalizes only the env of
// command steps.
func scalarMap(raw json.RawMessage) (map[string]string, error) {
	fields, err := object(raw)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch value := fields[name]; jsonType(value) {
		case "a string":
			out[name], err = text(value)
		case "a number", "a boolean":
			out[name] = string(value)
		case "null":
			out[name] = ""
		default:
			return nil, fmt.Errorf("%s: got %s, want a string", name, jsonType(value))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}
