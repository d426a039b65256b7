package steps

import (
	"encoding/json"
	"errors"
	"fmt"
)

// A Dependency names a step or group by key.
type Dependency struct {
	Key          string
	AllowFailure bool
}

// dependencies reads every form of depends_on. The result is never nil.
func dependencies(raw json.RawMessage) ([]Dependency, error) {
	out := []Dependency{}
	switch jsonType(raw) {
	case "null":
		return out, nil
	case "a string":
		key, err := text(raw)
		if key != "" {
			out = append(out, Dependency{Key: key})
		}
		return out, err
	case "a list":
	default:
		return nil, fmt.Errorf("got %s, want a key or a list", jsonType(raw))
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	for i, item := range list {
		dep, err := dependency(item)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		out = append(out, dep)
	}
	return out, nil
}

func dependency(raw json.RawMessage) (Dependency, error) {
	if key, err := text(raw); err == nil {
		return Dependency{Key: key}, nil
	}
	fields, err := object(raw)
	if err != nil {
		return Dependency{}, errors.New("want a key or {step, allow_failure}")
	}
	var dep Dependency
	for name, value := range fields {
		switch name {
		case "step":
			dep.Key, err = text(value)
		case "allow_failure":
			dep.AllowFailure, err = truth(value)
		default:
			err = unknownProperty(name, "dependency")
		}
		if err != nil {
			return Dependency{}, err
		}
	}
	if dep.Key == "" {
		return Dependency{}, errors.New("step: missing")
	}
	return dep, nil
}
