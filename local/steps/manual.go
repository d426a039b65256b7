package steps

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
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

// formFields are those of a block or input step.
type formFields []Field

func (f *formFields) UnmarshalJSON(raw []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	*f = make(formFields, len(list))
	for i, item := range list {
		field := &(*f)[i]
		if err := json.Unmarshal(item, field); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
		if slices.ContainsFunc((*f)[:i], func(other Field) bool { return other.Key == field.Key }) {
			return fmt.Errorf("[%d]: key %q is used by two fields", i, field.Key)
		}
	}
	return nil
}

// UnmarshalJSON reads a text or select field.
func (f *Field) UnmarshalJSON(raw []byte) error {
	in := struct {
		Text, Select *scalar
		Key, Format  string
		Hint         scalar
		Required     flag
		Multiple     flag
		Default      words
		Options      []struct{ Label, Value, Hint scalar }
	}{Required: true}
	if err := json.Unmarshal(raw, &in); err != nil {
		return err
	}
	label := in.Text
	if in.Select != nil {
		label = in.Select
	}
	switch {
	case (in.Text == nil) == (in.Select == nil):
		return errors.New("want either text or select")
	case !fieldKey.MatchString(in.Key):
		return fmt.Errorf("key: got %q, want letters, digits, slashes, dashes and underscores", in.Key)
	case in.Select != nil && len(in.Options) == 0:
		return errors.New("options: a select needs at least one")
	case in.Select != nil && in.Format != "":
		return unknownProperty("format", "select field")
	case in.Text != nil && (in.Options != nil || bool(in.Multiple)):
		return unknownProperty("options", "text field")
	}
	*f = Field{Key: in.Key, Label: string(*label), Hint: string(in.Hint), Required: bool(in.Required), Default: in.Default, Multiple: bool(in.Multiple)}
	for _, o := range in.Options {
		o.Label = cmp.Or(o.Label, o.Value)
		f.Options = append(f.Options, Option{string(o.Label), string(o.Value), string(o.Hint)})
	}
	if in.Format == "" {
		return nil
	}
	var err error // the whole answer must match
	if f.Format, err = regexp.Compile("^(?:" + in.Format + ")$"); err != nil {
		return fmt.Errorf("format: got %q, which is no regular expression kblocal can use", in.Format)
	}
	return nil
}
