package jsonschema

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

// A schema is one node of a document. Its parts are compiled when a value
// meets them.
type schema struct {
	ref   string
	types []string

	constant *any
	enum     []any
	minimum  *float64
	maximum  *float64

	minLength, maxLength *int
	pattern              *regexp.Regexp
	patternText          string

	minItems, maxItems *int
	minProperties      *int
	required           []string
	dependencies       map[string][]string
	properties         map[string]*part
	items              part
	propertyNames      part
	additional         part
	closed             bool // additionalProperties is false

	not   part
	oneOf []part
}

// A part is a schema within another, compiled once it is asked for.
type part struct {
	raw      json.RawMessage // nil: there is none
	compiled *schema
}

// compile reads one node. It goes through the text by hand: encoding/json would
// take longer than the checks of a whole step.
func compile(raw json.RawMessage) (*schema, error) {
	s := &schema{}
	err := members(raw, func(keyword string, value []byte) (err error) {
		switch keyword {
		case "$schema", "$id", "title", "description", "definitions": // say nothing about values
		case "$ref":
			s.ref, err = unquote(value)
		case "type":
			if value[0] == '[' {
				return json.Unmarshal(value, &s.types)
			}
			s.types = []string{""}
			s.types[0], err = unquote(value)
		case "pattern":
			s.patternText, err = unquote(value)
			if err == nil && s.patternText == "" {
				err = errors.New("pattern: want one that says something")
			}
		case "properties":
			s.properties = map[string]*part{}
			return members(value, func(name string, value []byte) error {
				s.properties[name] = &part{raw: value}
				return nil
			})
		case "additionalProperties":
			switch string(value) {
			case "true":
			case "false":
				s.closed = true
			default:
				s.additional.raw = value
			}
		case "items":
			s.items.raw = value
		case "propertyNames":
			s.propertyNames.raw = value
		case "not":
			s.not.raw = value
		case "oneOf":
			var options []json.RawMessage
			err = json.Unmarshal(value, &options)
			for _, option := range options {
				s.oneOf = append(s.oneOf, part{raw: option})
			}
		case "const":
			s.constant = new(any)
			return json.Unmarshal(value, s.constant)
		default:
			return s.compileLimit(keyword, value)
		}
		return err
	})
	return s, err
}

// compileLimit reads the keywords whose values encoding/json reads as they are.
func (s *schema) compileLimit(keyword string, value []byte) error {
	to, known := map[string]any{
		"enum": &s.enum, "minimum": &s.minimum, "maximum": &s.maximum,
		"minLength": &s.minLength, "maxLength": &s.maxLength, "minItems": &s.minItems, "maxItems": &s.maxItems,
		"minProperties": &s.minProperties, "required": &s.required, "dependencies": &s.dependencies,
	}[keyword]
	if !known {
		return fmt.Errorf("keyword %q is not known here", keyword)
	}
	return json.Unmarshal(value, to)
}
