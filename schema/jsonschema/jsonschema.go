// Package jsonschema checks values against the part of JSON Schema (draft 7)
// that our formats are written in, and says of each fault where it is and which
// keyword it breaks.
//
// It exists because kbgen starts once for every build: the general validators
// at hand cost more to load than everything else that kbgen does for one step
// (they bring an HTTP client or tables of languages). Nothing is compiled
// before it is needed. A keyword that it does not know is an error, never
// ignored, and the tests hold every verdict against xeipuuv/gojsonschema.
package jsonschema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// An Error is one fault of a value.
type Error struct {
	Path     []string // keys and indexes, from the root of the value
	Keyword  string   // "type", "required", "pattern", …
	Property string   // of required, additionalProperties, dependencies and propertyNames: which
}

func (e Error) Error() string {
	return fmt.Sprintf("/%s: %s %s", strings.Join(e.Path, "/"), e.Keyword, e.Property)
}

// A Document is a schema with its definitions. It may be used by several
// goroutines.
type Document struct {
	source []byte

	mu          sync.Mutex
	raw         map[string]json.RawMessage // definitions, as they are written
	definitions map[string]*schema
}

// New returns the document that source holds. It is read when it is first used.
func New(source []byte) *Document { return &Document{source: source} }

// Validate checks v by a definition, or by the whole document when definition
// is empty, and returns what is wrong with it, ordered by path as far as v is.
// Values are what encoding/json makes of JSON: map[string]any, []any, string,
// bool, nil, and float64, int or json.Number.
//
// Errors: a schema that cannot be used; that is its author's fault.
func (d *Document) Validate(definition string, v any) ([]Error, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.definition(definition)
	if err != nil {
		return nil, fmt.Errorf("schema %q: %w", definition, err)
	}
	check := validation{document: d}
	check.value(s, v, nil)
	if check.broken != nil {
		return nil, fmt.Errorf("schema %q: %w", definition, check.broken)
	}
	return check.errors, nil
}

// Properties lists the names that a definition knows at a path within it,
// sorted; none when it knows no such path.
func (d *Document) Properties(definition string, path []string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.definition(definition)
	if err != nil {
		return nil
	}
	return d.propertiesAt(s, path)
}

func (d *Document) propertiesAt(s *schema, path []string) []string {
	if s.Ref != "" {
		target, err := d.definition(strings.TrimPrefix(s.Ref, "#/definitions/"))
		if err != nil {
			return nil
		}
		return d.propertiesAt(target, path)
	}
	if len(path) == 0 {
		return slices.Sorted(maps.Keys(s.Properties))
	}
	raw, known := s.Properties[path[0]]
	if _, err := strconv.Atoi(path[0]); !known && err == nil {
		raw = s.Items
	} else if !known {
		raw = s.AdditionalProperties
	}
	if raw == nil {
		return nil
	}
	part, err := compile(raw)
	if err != nil {
		return nil
	}
	return d.propertiesAt(part, path[1:])
}

// definition returns the compiled definition of that name.
func (d *Document) definition(name string) (*schema, error) {
	if s, ok := d.definitions[name]; ok {
		return s, nil
	}
	if d.raw == nil {
		var err error
		if d.raw, err = definitions(d.source); err != nil {
			return nil, err
		}
		d.definitions = map[string]*schema{}
	}
	raw, ok := d.raw[name]
	if name == "" {
		raw, ok = d.source, true
	}
	if !ok {
		return nil, fmt.Errorf("there is no definition %q", name)
	}
	s, err := compile(raw)
	if err != nil {
		return nil, err
	}
	d.definitions[name] = s
	return s, nil
}

// A schema is one node of a document. Its parts are compiled when a value
// meets them.
type schema struct {
	keywords
	types   []string
	open    bool // additionalProperties is absent or true
	pattern *regexp.Regexp

	properties map[string]*schema
	items      *schema
	names      *schema
	not        *schema
	additional *schema
	oneOf      []*schema
}

// keywords are those that are known. Annotations are read over.
type keywords struct {
	Schema      string          `json:"$schema"`
	ID          string          `json:"$id"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Definitions json.RawMessage `json:"definitions"`

	Ref                  string                     `json:"$ref"`
	Type                 json.RawMessage            `json:"type"`
	Const                *any                       `json:"const"`
	Enum                 []any                      `json:"enum"`
	OneOf                []json.RawMessage          `json:"oneOf"`
	Not                  json.RawMessage            `json:"not"`
	Minimum              *float64                   `json:"minimum"`
	Maximum              *float64                   `json:"maximum"`
	MinLength            *int                       `json:"minLength"`
	MaxLength            *int                       `json:"maxLength"`
	Pattern              *string                    `json:"pattern"`
	Items                json.RawMessage            `json:"items"`
	MinItems             *int                       `json:"minItems"`
	MaxItems             *int                       `json:"maxItems"`
	Properties           map[string]json.RawMessage `json:"properties"`
	Required             []string                   `json:"required"`
	MinProperties        *int                       `json:"minProperties"`
	PropertyNames        json.RawMessage            `json:"propertyNames"`
	AdditionalProperties json.RawMessage            `json:"additionalProperties"`
	Dependencies         map[string][]string        `json:"dependencies"`
}

func compile(raw json.RawMessage) (*schema, error) {
	s := &schema{properties: map[string]*schema{}}
	in := json.NewDecoder(bytes.NewReader(raw))
	in.DisallowUnknownFields()
	if err := in.Decode(&s.keywords); err != nil {
		return nil, err
	}
	if s.Type != nil {
		if s.Type[0] == '"' {
			s.types = []string{""}
			if err := json.Unmarshal(s.Type, &s.types[0]); err != nil {
				return nil, err
			}
		} else if err := json.Unmarshal(s.Type, &s.types); err != nil {
			return nil, err
		}
	}
	more := string(s.AdditionalProperties)
	s.open = more == "" || more == "true"
	if s.open || more == "false" {
		s.AdditionalProperties = nil
	}
	return s, nil
}

// A validation is one walk over a value.
type validation struct {
	document *Document
	errors   []Error
	broken   error // of the schema
}

func (c *validation) fault(path []string, keyword, property string) {
	c.errors = append(c.errors, Error{slices.Clone(path), keyword, property})
}

// part compiles a part of a schema once; nil when there is none.
func (c *validation) part(kept **schema, raw json.RawMessage) *schema {
	if *kept == nil && raw != nil && c.broken == nil {
		*kept, c.broken = compile(raw)
	}
	return *kept
}

// holds reports whether v has no fault by s.
func (c *validation) holds(s *schema, v any) bool {
	inner := validation{document: c.document}
	inner.value(s, v, nil)
	if c.broken == nil {
		c.broken = inner.broken
	}
	return len(inner.errors) == 0
}

func (c *validation) value(s *schema, v any, path []string) {
	if s == nil || c.broken != nil {
		return
	}
	if s.Ref != "" { // draft 7: nothing beside it counts
		name, local := strings.CutPrefix(s.Ref, "#/definitions/")
		if !local {
			c.broken = fmt.Errorf("$ref %q: want one of this document's definitions", s.Ref)
			return
		}
		target, err := c.document.definition(name)
		if err != nil {
			c.broken = err
			return
		}
		c.value(target, v, path)
		return
	}
	if s.types != nil && !slices.ContainsFunc(s.types, func(t string) bool { return isType(v, t) }) {
		c.fault(path, "type", "")
		return
	}
	c.choices(s, v, path)
	switch v := v.(type) {
	case map[string]any:
		c.object(s, v, path)
	case []any:
		c.list(s, v, path)
	case string:
		c.text(s, v, path)
	default:
		if n, ok := numberOf(v); ok {
			if s.Minimum != nil && n < *s.Minimum {
				c.fault(path, "minimum", "")
			}
			if s.Maximum != nil && n > *s.Maximum {
				c.fault(path, "maximum", "")
			}
		}
	}
}

func (c *validation) choices(s *schema, v any, path []string) {
	if s.oneOf == nil {
		s.oneOf = make([]*schema, len(s.OneOf))
	}
	matches := 0
	for i, raw := range s.OneOf {
		if option := c.part(&s.oneOf[i], raw); option != nil && c.holds(option, v) {
			matches++
		}
	}
	if len(s.OneOf) > 0 && matches != 1 {
		c.fault(path, "oneOf", "")
	}
	if not := c.part(&s.not, s.Not); not != nil && c.holds(not, v) {
		c.fault(path, "not", "")
	}
	if s.Const != nil && !equal(v, *s.Const) {
		c.fault(path, "const", "")
	}
	if s.Enum != nil && !slices.ContainsFunc(s.Enum, func(e any) bool { return equal(v, e) }) {
		c.fault(path, "enum", "")
	}
}

func (c *validation) text(s *schema, v string, path []string) {
	if s.MinLength != nil && utf8.RuneCountInString(v) < *s.MinLength {
		c.fault(path, "minLength", "")
	}
	if s.MaxLength != nil && utf8.RuneCountInString(v) > *s.MaxLength {
		c.fault(path, "maxLength", "")
	}
	if s.Pattern == nil {
		return
	}
	if s.pattern == nil {
		if s.pattern, c.broken = regexp.Compile(*s.Pattern); c.broken != nil {
			return
		}
	}
	if !s.pattern.MatchString(v) {
		c.fault(path, "pattern", "")
	}
}

func (c *validation) list(s *schema, v []any, path []string) {
	if s.MinItems != nil && len(v) < *s.MinItems {
		c.fault(path, "minItems", "")
	}
	if s.MaxItems != nil && len(v) > *s.MaxItems {
		c.fault(path, "maxItems", "")
	}
	if items := c.part(&s.items, s.Items); items != nil {
		for i, item := range v {
			c.value(items, item, append(path, strconv.Itoa(i)))
		}
	}
}

func (c *validation) object(s *schema, v map[string]any, path []string) {
	if s.MinProperties != nil && len(v) < *s.MinProperties {
		c.fault(path, "minProperties", "")
	}
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			c.fault(path, "required", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if rule := c.part(&s.names, s.PropertyNames); rule != nil && !c.holds(rule, name) {
			c.fault(path, "propertyNames", name)
		}
		for _, other := range s.Dependencies[name] {
			if _, ok := v[other]; !ok {
				c.fault(path, "dependencies", other)
			}
		}
		raw, known := s.Properties[name]
		switch {
		case known:
			kept := s.properties[name]
			rule := c.part(&kept, raw)
			s.properties[name] = rule
			c.value(rule, v[name], append(path, name))
		case s.AdditionalProperties != nil:
			c.value(c.part(&s.additional, s.AdditionalProperties), v[name], append(path, name))
		case !s.open:
			c.fault(path, "additionalProperties", name)
		}
	}
}

func isType(v any, t string) bool {
	switch v := v.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case string:
		return t == "string"
	case []any:
		return t == "array"
	case map[string]any:
		return t == "object"
	default:
		n, ok := numberOf(v)
		return ok && (t == "number" || t == "integer" && n == math.Trunc(n))
	}
}

func numberOf(v any) (float64, bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case float64:
		return v, true
	case json.Number:
		n, err := strconv.ParseFloat(string(v), 64)
		return n, err == nil || math.IsInf(n, 0)
	}
	r := reflect.ValueOf(v) // other sizes of integers, as decoders make them
	switch {
	case !r.IsValid():
		return 0, false
	case r.CanInt():
		return float64(r.Int()), true
	case r.CanUint():
		return float64(r.Uint()), true
	}
	return 0, false
}

// equal compares as JSON does: numbers by value.
func equal(a, b any) bool {
	x, isNumber := numberOf(a)
	y, isToo := numberOf(b)
	if isNumber || isToo {
		return isNumber && isToo && x == y
	}
	return reflect.DeepEqual(a, b)
}
