package steps

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

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

// A scalar is a string, number or boolean, as text.
type scalar string

func (s *scalar) UnmarshalJSON(raw []byte) error {
	switch kind := jsonType(raw); kind {
	case "a string":
		return json.Unmarshal(raw, (*string)(s))
	case "a number", "a boolean":
		*s = scalar(raw)
		return nil
	default:
		return fmt.Errorf("got %s, want a string", kind)
	}
}

// A flag is true or false, also in quotes: a variable that an upload fills in
// leaves text.
type flag bool

func (f *flag) UnmarshalJSON(raw []byte) error {
	switch string(raw) {
	case "true", `"true"`:
		*f = true
	case "false", `"false"`:
		*f = false
	default:
		return fmt.Errorf("got %s, want true or false", jsonType(raw))
	}
	return nil
}

// A number is a whole number, also in quotes.
type number int

func (n *number) UnmarshalJSON(raw []byte) (err error) {
	var text scalar
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf("got %s, want a whole number", jsonType(raw))
	}
	*n, err = text.number()
	return err
}

func (s scalar) number() (number, error) {
	n, err := strconv.Atoi(string(s))
	if err != nil || int64(n) != int64(int32(n)) {
		return 0, fmt.Errorf("got %.40q, want a whole number", string(s))
	}
	return number(n), nil
}

// words are a scalar or a list of scalars.
type words []string

func (w *words) UnmarshalJSON(raw []byte) error {
	switch jsonType(raw) {
	case "null":
		return nil
	case "a list":
	default:
		raw = slices.Concat([]byte("["), raw, []byte("]"))
	}
	var list []scalar
	if err := json.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("%w or a list of strings", err)
	}
	for _, item := range list {
		*w = append(*w, string(item))
	}
	return nil
}

// environ is an env. The agent turns every value into a string, so another type
// means that something else wrote the document.
type environ map[string]string

func (e *environ) UnmarshalJSON(raw []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if kind := jsonType(fields[name]); kind != "a string" {
			return fmt.Errorf("%s: got %s, want a string", name, kind)
		}
	}
	if err := json.Unmarshal(raw, (*map[string]string)(e)); err != nil {
		return err
	}
	return CheckEnv(*e)
}

// pairs map names to scalars, or null for the empty text: the agent normalizes
// only the env of command steps.
type pairs map[string]string

func (p *pairs) UnmarshalJSON(raw []byte) error {
	var fields map[string]*scalar
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	*p = make(pairs, len(fields))
	for name, value := range fields {
		if value == nil {
			value = new(scalar)
		}
		(*p)[name] = string(*value)
	}
	return nil
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
