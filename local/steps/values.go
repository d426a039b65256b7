package steps

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// object reads a JSON object into its members.
func object(raw json.RawMessage) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return nil, fmt.Errorf("got %s, want an object", jsonType(raw))
	}
	return fields, nil
}

func keys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }

// jsonType names the JSON type of raw without quoting it.
func jsonType(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

func text(raw json.RawMessage) (string, error) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil || jsonType(raw) == "null" {
		return "", fmt.Errorf("got %s, want a string", jsonType(raw))
	}
	return s, nil
}

func truth(raw json.RawMessage) (bool, error) {
	switch string(bytes.TrimSpace(raw)) {
	case "true", `"true"`:
		return true, nil
	case "false", `"false"`:
		return false, nil
	}
	return false, fmt.Errorf("got %s, want true or false", jsonType(raw))
}

func wholeNumber(raw json.RawMessage, low, high int) (int, error) {
	n, err := strconv.Atoi(string(bytes.TrimSpace(raw)))
	if err != nil {
		return 0, fmt.Errorf("got %s, want a whole number", describe(raw))
	}
	if n < low || n > high {
		return 0, fmt.Errorf("got %d, want %d to %d", n, low, high)
	}
	return n, nil
}

// describe quotes short scalars, which a person must see to find them.
func describe(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if jsonType(raw) == "an object" || jsonType(raw) == "a list" || len(raw) > 40 {
		return jsonType(raw)
	}
	return string(raw)
}

// stringMap reads env. The agent turns every value into a string, so another
// type means that something else wrote the document.
func stringMap(raw json.RawMessage) (map[string]string, error) {
	if jsonType(raw) == "null" {
		return nil, nil
	}
	fields, err := object(raw)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if out[name], err = text(fields[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

// words reads a string or a list of strings.
func words(raw json.RawMessage) ([]string, error) {
	if jsonType(raw) == "null" {
		return nil, nil
	}
	if one, err := text(raw); err == nil {
		return []string{one}, nil
	}
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("got %s, want a string or a list of strings", jsonType(raw))
	}
	return list, nil
}

func command(raw json.RawMessage) (string, error) {
	lines, err := words(raw)
	return strings.Join(lines, "\n"), err
}

// branches reads "main release/*" or a list of such.
func branches(raw json.RawMessage) ([]string, error) {
	list, err := words(raw)
	var out []string
	for _, item := range list {
		out = append(out, strings.Fields(item)...)
	}
	return out, err
}

// agentRules reads {"queue": "gpu"} or ["queue=gpu"].
func agentRules(raw json.RawMessage) ([]string, error) {
	if jsonType(raw) == "a list" {
		list, err := words(raw)
		for _, rule := range list {
			if !strings.Contains(rule, "=") {
				return nil, fmt.Errorf("got rule %q, want key=value", rule)
			}
		}
		return list, err
	}
	fields, err := object(raw)
	if err != nil {
		return nil, err
	}
	rules := []string{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := fields[name]
		switch jsonType(value) {
		case "a string":
			v, err := text(value)
			if err != nil {
				return nil, err
			}
			rules = append(rules, name+"="+v)
		case "a number", "a boolean":
			rules = append(rules, name+"="+string(bytes.TrimSpace(value)))
		default:
			return nil, fmt.Errorf("%s: got %s, want a string", name, jsonType(value))
		}
	}
	return rules, nil
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
			err = unknownProperty(name, "dependency", []string{"step", "allow_failure"})
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

// plugins reads a list of names and one-key objects, and passes on objects.
func plugins(raw json.RawMessage) ([]json.RawMessage, error) {
	if jsonType(raw) == "null" {
		return nil, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("got %s, want a list of one-key objects", jsonType(raw))
	}
	out := make([]json.RawMessage, 0, len(list))
	for i, item := range list {
		if name, err := text(item); err == nil {
			item, _ = json.Marshal(map[string]any{name: nil})
		}
		if fields, err := object(item); err != nil || len(fields) != 1 {
			return nil, fmt.Errorf("[%d]: want an object with one key, the plugin", i)
		}
		out = append(out, item)
	}
	return out, nil
}

func softFail(raw json.RawMessage) (SoftFail, error) {
	if all, err := truth(raw); err == nil {
		return SoftFail{All: all}, nil
	}
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return SoftFail{}, fmt.Errorf("got %s, want true, false or a list of {exit_status}", jsonType(raw))
	}
	var out SoftFail
	for i, item := range list {
		for name, value := range item {
			if name != "exit_status" {
				return SoftFail{}, fmt.Errorf("[%d]: %w", i, unknownProperty(name, "soft_fail rule", []string{"exit_status"}))
			}
			any, statuses, err := exitStatuses(value)
			if err != nil {
				return SoftFail{}, fmt.Errorf("[%d]: exit_status: %w", i, err)
			}
			out.All = out.All || any
			out.Statuses = append(out.Statuses, statuses...)
		}
	}
	return out, nil
}

// exitStatuses reads "*", a number or a list of numbers.
func exitStatuses(raw json.RawMessage) (any bool, statuses []int, err error) {
	if word, err := text(raw); err == nil {
		if word == "*" {
			return true, nil, nil
		}
		raw = json.RawMessage(word) // numbers in quotes are taken
	}
	if jsonType(raw) == "a list" {
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return false, nil, err
		}
		for _, item := range list {
			n, err := wholeNumber(item, -1, 255)
			if err != nil {
				return false, nil, err
			}
			statuses = append(statuses, n)
		}
		return false, statuses, nil
	}
	n, err := wholeNumber(raw, -1, 255)
	return false, []int{n}, err
}

func skip(raw json.RawMessage) (*string, error) {
	if on, err := truth(raw); err == nil {
		if !on {
			return nil, nil
		}
		return new(string), nil
	}
	reason, err := text(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("got %s, want true, false or a reason", jsonType(raw))
	case reason == "":
		return nil, nil
	case len(reason) > 70:
		return nil, fmt.Errorf("got a reason of %d characters, want at most 70", len(reason))
	}
	return &reason, nil
}

func checkout(raw json.RawMessage) (Checkout, error) {
	fields, err := object(raw)
	if err != nil {
		return Checkout{}, err
	}
	var out Checkout
	for name, value := range fields {
		on, err := truth(value)
		switch name {
		case "skip":
			out.Skip = &on
		case "submodules":
			out.Submodules = &on
		case "lfs":
			out.LFS = &on
		default:
			return Checkout{}, fmt.Errorf("%s is not supported by kblocal, only skip, submodules and lfs", name)
		}
		if err != nil {
			return Checkout{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}
