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

// wholeNumber reads a number, also one in quotes: a variable that an upload fills
// in leaves text.
func wholeNumber(raw json.RawMessage, low, high int) (int, error) {
	if word, err := text(raw); err == nil && word != "" && strings.Trim(word, "-0123456789") == "" {
		raw = json.RawMessage(word)
	}
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
	return out, CheckEnv(out)
}

// CheckEnv refuses what no process environment can hold: a variable without a
// name, a name with "=", and a NUL anywhere. It quotes names, never values.
func CheckEnv(env map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch {
		case name == "":
			return errors.New("got a variable without a name")
		case strings.ContainsAny(name, "=\x00"):
			return fmt.Errorf("got the name %q, want one without \"=\" and NUL", name)
		case strings.Contains(env[name], "\x00"):
			return fmt.Errorf("%s: got a NUL in the value, which no environment can hold", name)
		}
	}
	return nil
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
