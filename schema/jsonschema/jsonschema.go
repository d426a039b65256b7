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
	if s.ref != "" {
		target, err := d.definition(strings.TrimPrefix(s.ref, "#/definitions/"))
		if err != nil {
			return nil
		}
		return d.propertiesAt(target, path)
	}
	if len(path) == 0 {
		return slices.Sorted(maps.Keys(s.properties))
	}
	p, known := s.properties[path[0]]
	if _, err := strconv.Atoi(path[0]); !known && err == nil {
		p = &s.items
	} else if !known {
		p = &s.additional
	}
	c := validation{document: d}
	if next := c.part(p); next != nil && c.broken == nil {
		return d.propertiesAt(next, path[1:])
	}
	return nil
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

// A validation is one walk over a value.
type validation struct {
	document *Document
	errors   []Error
	broken   error // of the schema
}

func (c *validation) fault(path []string, keyword, property string) {
	c.errors = append(c.errors, Error{slices.Clone(path), keyword, property})
}

// part compiles a part of a schema; nil when there is none.
func (c *validation) part(p *part) *schema {
	if p.compiled == nil && p.raw != nil && c.broken == nil {
		p.compiled, c.broken = compile(p.raw)
	}
	return p.compiled
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
	if s.ref != "" { // draft 7: nothing beside it counts
		name, local := strings.CutPrefix(s.ref, "#/definitions/")
		if !local {
			c.broken = fmt.Errorf("$ref %q: want one of this document's definitions", s.ref)
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
			if s.minimum != nil && n < *s.minimum {
				c.fault(path, "minimum", "")
			}
			if s.maximum != nil && n > *s.maximum {
				c.fault(path, "maximum", "")
			}
		}
	}
}

func (c *validation) choices(s *schema, v any, path []string) {
	matches := 0
	for i := range s.oneOf {
		if option := c.part(&s.oneOf[i]); option != nil && c.holds(option, v) {
			matches++
		}
	}
	if len(s.oneOf) > 0 && matches != 1 {
		c.fault(path, "oneOf", "")
	}
	if not := c.part(&s.not); not != nil && c.holds(not, v) {
		c.fault(path, "not", "")
	}
	if s.constant != nil && !equal(v, *s.constant) {
		c.fault(path, "const", "")
	}
	if s.enum != nil && !slices.ContainsFunc(s.enum, func(e any) bool { return equal(v, e) }) {
		c.fault(path, "enum", "")
	}
}

func (c *validation) text(s *schema, v string, path []string) {
	if s.minLength != nil && utf8.RuneCountInString(v) < *s.minLength {
		c.fault(path, "minLength", "")
	}
	if s.maxLength != nil && utf8.RuneCountInString(v) > *s.maxLength {
		c.fault(path, "maxLength", "")
	}
	if s.patternText == "" {
		return
	}
	if s.pattern == nil {
		if s.pattern, c.broken = regexp.Compile(s.patternText); c.broken != nil {
			return
		}
	}
	if !s.pattern.MatchString(v) {
		c.fault(path, "pattern", "")
	}
}

func (c *validation) list(s *schema, v []any, path []string) {
	if s.minItems != nil && len(v) < *s.minItems {
		c.fault(path, "minItems", "")
	}
	if s.maxItems != nil && len(v) > *s.maxItems {
		c.fault(path, "maxItems", "")
	}
	if items := c.part(&s.items); items != nil {
		for i, item := range v {
			c.value(items, item, append(path, strconv.Itoa(i)))
		}
	}
}

func (c *validation) object(s *schema, v map[string]any, path []string) {
	if s.minProperties != nil && len(v) < *s.minProperties {
		c.fault(path, "minProperties", "")
	}
	for _, name := range s.required {
		if _, ok := v[name]; !ok {
			c.fault(path, "required", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if rule := c.part(&s.propertyNames); rule != nil && !c.holds(rule, name) {
			c.fault(path, "propertyNames", name)
		}
		for _, other := range s.dependencies[name] {
			if _, ok := v[other]; !ok {
				c.fault(path, "dependencies", other)
			}
		}
		property, known := s.properties[name]
		switch {
		case known:
			c.value(c.part(property), v[name], append(path, name))
		case s.closed:
			c.fault(path, "additionalProperties", name)
		default:
			c.value(c.part(&s.additional), v[name], append(path, name))
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
