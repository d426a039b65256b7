package restapi

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/local/engine"
)

// A form is the JSON object of a request's body. Endpoints take its fields out
// one by one; what is left at the end is unknown. Names are case-sensitive.
type form struct {
	left  map[string]json.RawMessage
	wrong []engine.FieldError
	err   error // the body is not an object, or larger than [maxBody]
}

// form reads the body; none at all is an empty object. [call.check] reports what
// is wrong with it.
func (c *call) form() *form {
	f := &form{}
	data, err := io.ReadAll(c.r.Body)
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge:
		f.err = engine.Refuse(http.StatusRequestEntityTooLarge, "The request body is too large")
	case err != nil:
		f.err = engine.Refuse(engine.BadRequest, "The request body ends early")
	case len(data) > 0 && json.Unmarshal(data, &f.left) != nil:
		f.err = engine.Refuse(engine.BadRequest, "The request body is not a JSON object")
	}
	return f
}

// take removes a field from the form; absent and null are the same. A value
// of the wrong type is noted.
func take[T any](f *form, name string) (value T, given bool) {
	raw, ok := f.left[name]
	delete(f.left, name)
	if !ok || string(raw) == "null" {
		return value, false
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		var zero T
		f.refuse(name, "invalid")
		return zero, false
	}
	return value, true
}

// required takes a string that must be there and not be empty.
func required(f *form, name string) string {
	value, given := take[string](f, name)
	if value == "" && (given || !f.refused(name)) {
		f.refuse(name, "missing")
	}
	return value
}

// stringMap takes an object whose values are strings, all of them.
func stringMap(f *form, name string) map[string]string {
	items, _ := take[map[string]*string](f, name)
	out := make(map[string]string, len(items))
	for key, value := range items {
		if value == nil {
			f.refuse(name, "invalid")
			return nil
		}
		out[key] = *value
	}
	return out
}

func (f *form) refuse(field, code string) {
	f.wrong = append(f.wrong, engine.FieldError{Field: field, Code: code})
}

func (f *form) refused(field string) bool {
	return slices.ContainsFunc(f.wrong, func(e engine.FieldError) bool { return e.Field == field })
}

// check returns what is wrong with the form: fields refused so far and, unless
// the API is lenient, fields that no caller took.
func (c *call) check(f *form) error {
	if f.err != nil {
		return f.err
	}
	if !c.opts.Lenient {
		for _, name := range slices.Sorted(maps.Keys(f.left)) {
			f.refuse(name, "unknown")
		}
	}
	if f.wrong == nil {
		return nil
	}
	words := make([]string, len(f.wrong))
	for i, e := range f.wrong {
		words[i] = e.Field + " (" + e.Code + ")"
	}
	return &engine.Error{Kind: engine.Invalid, Message: "Validation failed: " + strings.Join(words, ", "), Fields: f.wrong}
}
