package steps

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A Field is one that a block or input step asks for; its answer becomes
// meta-data.
type Field struct {
	Key      string
	Label    string
	Hint     string
	Required bool
	Default  []string // one value but for a select with Multiple
	Format   *regexp.Regexp
	Options  []Option // of a select; nil: free text
	Multiple bool
}

// An Option is a choice of a select.
type Option struct{ Label, Value, Hint string }

var fieldKey = regexp.MustCompile(`^[A-Za-z0-9/_-]{1,100}$`)

// Answer checks one answer to the field and returns it as meta-data holds it;
// several choices are lines. No answer is the default.
func (f *Field) Answer(values []string) (string, error) {
	values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "" })
	if len(values) == 0 {
		values = f.Default
	}
	switch {
	case len(values) == 0 && f.Required:
		return "", fmt.Errorf("field %s: an answer is required", f.Key)
	case len(values) > 1 && !f.Multiple:
		return "", fmt.Errorf("field %s: got %d answers, want one", f.Key, len(values))
	}
	for _, v := range values {
		if f.Options != nil && !slices.ContainsFunc(f.Options, func(o Option) bool { return o.Value == v }) {
			return "", fmt.Errorf("field %s: got %q, want one of %s", f.Key, v, f.choices())
		}
		if f.Format != nil && !f.Format.MatchString(v) {
			return "", fmt.Errorf("field %s: the answer does not match %q", f.Key, f.Format)
		}
	}
	return strings.ReplaceAll(strings.Join(values, "\n"), "\r\n", "\n"), nil
}

func (f *Field) choices() string {
	var out []string
	for _, o := range f.Options {
		out = append(out, fmt.Sprintf("%q", o.Value))
	}
	return strings.Join(out, ", ")
}

// readFields reads the fields of a block or input step.
func readFields(raw json.RawMessage) ([]Field, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("got %s, want a list of fields", jsonType(raw))
	}
	seen := map[string]bool{}
	out := make([]Field, len(list))
	for i, item := range list {
		var err error
		if out[i], err = readField(item); err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		if seen[out[i].Key] {
			return nil, fmt.Errorf("[%d]: key %q is used by two fields", i, out[i].Key)
		}
		seen[out[i].Key] = true
	}
	return out, nil
}

func readField(raw json.RawMessage) (Field, error) {
	fields, err := object(raw)
	if err != nil {
		return Field{}, err
	}
	f := Field{Required: true}
	_, isSelect := fields["select"]
	_, isText := fields["text"]
	if isSelect == isText {
		return f, errors.New("want either text or select")
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := fields[name]
		switch {
		case name == "text" || name == "select":
			f.Label, err = text(value)
		case name == "key":
			f.Key, err = text(value)
		case name == "hint":
			f.Hint, err = text(value)
		case name == "required":
			f.Required, err = truth(value)
		case name == "default":
			f.Default, err = words(value)
		case name == "format" && isText:
			f.Format, err = format(value)
		case name == "multiple" && isSelect:
			f.Multiple, err = truth(value)
		case name == "options" && isSelect:
			f.Options, err = options(value)
		default:
			err = unknownProperty(name, "field")
		}
		if err != nil {
			return f, fmt.Errorf("%s: %w", name, err)
		}
	}
	switch {
	case !fieldKey.MatchString(f.Key):
		return f, fmt.Errorf("key: got %q, want letters, digits, slashes, dashes and underscores", f.Key)
	case isSelect && len(f.Options) == 0:
		return f, errors.New("options: a select needs at least one")
	}
	return f, nil
}

// format anchors the expression: the whole answer must match.
func format(raw json.RawMessage) (*regexp.Regexp, error) {
	expr, err := text(raw)
	if err != nil {
		return nil, err
	}
	re, err := regexp.Compile("^(?:" + expr + ")$")
	if err != nil {
		return nil, fmt.Errorf("got %q, which is no regular expression kblocal can use", expr)
	}
	return re, nil
}

func options(raw json.RawMessage) ([]Option, error) {
	var list []struct {
		Label, Value, Hint string
		Required           *bool
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("got %s, want a list of {label, value}", jsonType(raw))
	}
	out := make([]Option, len(list))
	for i, o := range list {
		if o.Value == "" {
			return nil, fmt.Errorf("[%d]: value: missing", i)
		}
		if o.Label == "" {
			o.Label = o.Value
		}
		out[i] = Option{o.Label, o.Value, o.Hint}
	}
	return out, nil
}

func blockedState(raw json.RawMessage) (string, error) {
	state, err := text(raw)
	if err == nil && state != "passed" && state != "failed" && state != "running" {
		err = fmt.Errorf("got %q, want passed, failed or running", state)
	}
	return state, err
}
