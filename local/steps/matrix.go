package steps

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Buildkite's limits of one matrix.
const (
	maxDimensions   = 6
	maxElements     = 25
	maxElement      = 128 // bytes
	maxAdjustments  = 500 // Buildkite documents 12; pipelines with more are known to run
	maxVariants     = 50  // without skipped ones
	maxCombinations = 2000
)

// A Variant is one job of a step with a matrix: the step with the values of one
// permutation filled in.
type Variant struct {
	Values map[string]string // by dimension; "" names the only one of a list
	Step   *Step             // a copy; it shares what a matrix leaves alone
	Skip   Skip
}

// Name lists the values in the order of their dimensions: "linux, amd64".
func (v *Variant) Name() string {
	var out []string
	for _, dimension := range slices.Sorted(maps.Keys(v.Values)) {
		out = append(out, v.Values[dimension])
	}
	return strings.Join(out, ", ")
}

// A matrix is as written, before it is expanded: a list of values, or {setup,
// adjustments}.
type matrix struct {
	Setup       dimensions
	Adjustments []adjustment
}

func (m *matrix) UnmarshalJSON(raw []byte) error {
	if jsonType(raw) == "a list" {
		return json.Unmarshal(raw, &m.Setup)
	}
	type object matrix
	if err := json.Unmarshal(raw, (*object)(m)); err != nil {
		return err
	}
	if len(m.Adjustments) > maxAdjustments {
		return fmt.Errorf("adjustments: got %d, want at most %d", len(m.Adjustments), maxAdjustments)
	}
	return nil
}

// dimensions are the lists that a matrix multiplies. The only one of a list has
// the name "". One without values gets them from adjustments.
type dimensions map[string]words

var dimensionName = regexp.MustCompile(`^[\w.-]{1,128}$`)

func (d *dimensions) UnmarshalJSON(raw []byte) error {
	if jsonType(raw) == "a list" {
		raw = slices.Concat([]byte(`{"":`), raw, []byte("}"))
	}
	if err := json.Unmarshal(raw, (*map[string]words)(d)); err != nil {
		return err
	}
	if len(*d) > maxDimensions {
		return fmt.Errorf("setup: got %d dimensions, want at most %d", len(*d), maxDimensions)
	}
	for name, list := range *d {
		if len(list) > maxElements {
			return fmt.Errorf("got %d values, want at most %d", len(list), maxElements)
		}
		if name != "" && !dimensionName.MatchString(name) {
			return fmt.Errorf("dimension %q: want letters, digits, _, - and dots", name)
		}
		for i, value := range list {
			if len(value) > maxElement {
				return fmt.Errorf("[%d]: got a value of %d bytes, want at most %d", i, len(value), maxElement)
			}
		}
	}
	return nil
}

// An adjustment is about one permutation.
type adjustment struct {
	With     permutation
	Skip     Skip
	SoftFail *SoftFail `json:"soft_fail"`
}

// A permutation has a value of each dimension, or of the only dimension there is.
type permutation map[string]string

func (p *permutation) UnmarshalJSON(raw []byte) error {
	var only scalar
	if json.Unmarshal(raw, &only) == nil {
		*p = permutation{"": string(only)}
		return nil
	}
	return json.Unmarshal(raw, (*pairs)(p))
}

// permutations lists every combination, the last dimension changing fastest, then
// those that adjustments add. Limits hold before anything is multiplied.
func (m *matrix) permutations() ([]map[string]string, error) {
	dimensions := slices.Sorted(maps.Keys(m.Setup))
	total := 1
	for _, name := range dimensions {
		if total *= len(m.Setup[name]); total > maxCombinations {
			return nil, fmt.Errorf("got more than %d jobs, want at most %d", maxCombinations, maxVariants)
		}
	}
	out := []map[string]string{{}}
	for _, name := range dimensions {
		var next []map[string]string
		for _, so := range out {
			for _, value := range m.Setup[name] {
				one := maps.Clone(so)
				one[name] = value
				next = append(next, one)
			}
		}
		out = next
	}
	for i, a := range m.Adjustments {
		for name := range a.With {
			if _, known := m.Setup[name]; !known {
				return nil, fmt.Errorf("adjustments[%d]: with: %q is no dimension, have %q", i, name, dimensions)
			}
		}
		if len(a.With) != len(dimensions) {
			return nil, fmt.Errorf("adjustments[%d]: with: got %d dimensions, want all of %q", i, len(a.With), dimensions)
		}
		if !slices.ContainsFunc(out, func(p map[string]string) bool { return maps.Equal(p, a.With) }) {
			out = append(out, a.With)
		}
	}
	if n := len(out) - m.skipped(); n > maxVariants {
		return nil, fmt.Errorf("got %d jobs, want at most %d", n, maxVariants)
	}
	if len(out) == 0 {
		return nil, errors.New("got no combination, want at least one")
	}
	return out, nil
}

// skipped counts the combinations that run nowhere.
func (m *matrix) skipped() int {
	combinations := map[string]bool{}
	for _, a := range m.Adjustments {
		if a.Skip.On {
			combinations[fmt.Sprintf("%q", a.With)] = true
		}
	}
	return len(combinations)
}

// expand makes the step's variants.
func (s *Step) expand() error {
	m := s.matrix
	all, err := m.permutations()
	if err != nil {
		return fmt.Errorf("matrix: %w", err)
	}
	for _, values := range all {
		v := Variant{Values: values}
		one := *s
		for _, a := range m.Adjustments {
			if !maps.Equal(a.With, values) {
				continue
			}
			if a.Skip.On {
				v.Skip = a.Skip
			}
			if a.SoftFail != nil {
				one.SoftFail = *a.SoftFail
			}
		}
		if err := one.fill(values); err != nil {
			return err
		}
		one.Variants = nil
		v.Step = &one
		s.Variants = append(s.Variants, v)
	}
	return nil
}

var matrixToken = regexp.MustCompile(`\{\{\s*matrix(?:\.([\w.-]+))?\s*\}\}`)

// filled are the properties that may hold values of a matrix.
var filled = []string{"command", "commands", "label", "name", "env", "agents", "artifact_paths", "plugins"}

// fill puts the values of a permutation into what may hold them.
func (s *Step) fill(values map[string]string) error {
	var properties map[string]json.RawMessage
	if err := json.Unmarshal(s.JSON, &properties); err != nil {
		return err
	}
	s.Env, s.Agents, s.ArtifactPaths, s.Plugins = nil, nil, nil, nil
	targets := s.properties()
	for _, name := range filled {
		var value any
		dec := json.NewDecoder(bytes.NewReader(properties[name]))
		dec.UseNumber()
		if dec.Decode(&value) != nil || value == nil {
			continue
		}
		var unknown string
		value = fillValue(value, func(text string) string {
			return matrixToken.ReplaceAllStringFunc(text, func(token string) string {
				value, known := values[matrixToken.FindStringSubmatch(token)[1]]
				if !known {
					unknown = token
				}
				return value
			})
		})
		if unknown != "" {
			return fmt.Errorf("%s: %s names no dimension of the matrix", name, unknown)
		}
		raw, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := json.Unmarshal(raw, targets[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// fillValue applies fn to every string of a JSON value, names included.
func fillValue(v any, fn func(string) string) any {
	switch v := v.(type) {
	case string:
		return fn(v)
	case []any:
		for i := range v {
			v[i] = fillValue(v[i], fn)
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, value := range v {
			out[fn(name)] = fillValue(value, fn)
		}
		return out
	}
	return v
}
