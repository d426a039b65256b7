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
	Skip   *string           // the reason, maybe empty; nil: it runs
}

// Name lists the values in the order of their dimensions: "linux, amd64".
func (v *Variant) Name() string {
	var out []string
	for _, dimension := range slices.Sorted(maps.Keys(v.Values)) {
		out = append(out, v.Values[dimension])
	}
	return strings.Join(out, ", ")
}

// A matrix is as written, before it is expanded.
type matrix struct {
	setup       map[string][]string
	adjustments []adjustment
}

type adjustment struct {
	with     map[string]string
	skip     *string
	softFail *SoftFail
}

// readMatrix reads a list of values, or {setup, adjustments}.
func readMatrix(raw json.RawMessage) (*matrix, error) {
	if jsonType(raw) == "a list" {
		list, err := elements(raw)
		return &matrix{setup: map[string][]string{"": list}}, err
	}
	fields, err := object(raw)
	if err != nil {
		return nil, fmt.Errorf("got %s, want a list of values or {setup, adjustments}", jsonType(raw))
	}
	m := &matrix{}
	for _, name := range slices.Sorted(keys(fields)) {
		switch name {
		case "setup":
			m.setup, err = setup(fields[name])
		case "adjustments":
			m.adjustments, err = adjustments(fields[name])
		default:
			err = unknownProperty(name, "matrix")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(m.setup) == 0 {
		return nil, errors.New("setup: missing")
	}
	return m, nil
}

func setup(raw json.RawMessage) (map[string][]string, error) {
	if jsonType(raw) == "a list" {
		list, err := elements(raw)
		return map[string][]string{"": list}, err
	}
	fields, err := object(raw)
	if err != nil {
		return nil, err
	}
	if len(fields) > maxDimensions {
		return nil, fmt.Errorf("got %d dimensions, want at most %d", len(fields), maxDimensions)
	}
	out := map[string][]string{}
	for _, name := range slices.Sorted(keys(fields)) {
		if !dimensionName.MatchString(name) {
			return nil, fmt.Errorf("dimension %q: want letters, digits, _, - and dots", name)
		}
		if jsonType(fields[name]) == "null" {
			out[name] = nil // adjustments bring the values
			continue
		}
		if out[name], err = elements(fields[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

var dimensionName = regexp.MustCompile(`^[\w.-]{1,128}$`)

// elements reads the values of one dimension, scalars all.
func elements(raw json.RawMessage) ([]string, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("got %s, want a list of values", jsonType(raw))
	}
	if len(list) > maxElements {
		return nil, fmt.Errorf("got %d values, want at most %d", len(list), maxElements)
	}
	out := make([]string, len(list))
	for i, item := range list {
		value, err := scalar(item)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		out[i] = value
	}
	return out, nil
}

// scalar reads a string, number or boolean as text.
func scalar(raw json.RawMessage) (string, error) {
	value, err := text(raw)
	switch jsonType(raw) {
	case "a number", "a boolean":
		value, err = string(bytes.TrimSpace(raw)), nil
	}
	if err == nil && len(value) > maxElement {
		err = fmt.Errorf("got a value of %d bytes, want at most %d", len(value), maxElement)
	}
	return value, err
}

func adjustments(raw json.RawMessage) ([]adjustment, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("got %s, want a list", jsonType(raw))
	}
	if len(list) > maxAdjustments {
		return nil, fmt.Errorf("got %d, want at most %d", len(list), maxAdjustments)
	}
	out := make([]adjustment, len(list))
	for i, item := range list {
		var err error
		if out[i], err = readAdjustment(item); err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return out, nil
}

func readAdjustment(raw json.RawMessage) (adjustment, error) {
	fields, err := object(raw)
	if err != nil {
		return adjustment{}, err
	}
	var out adjustment
	for _, name := range slices.Sorted(keys(fields)) {
		switch name {
		case "with":
			out.with, err = permutation(fields[name])
		case "skip":
			out.skip, err = skip(fields[name])
		case "soft_fail":
			var soft SoftFail
			soft, err = softFail(fields[name])
			out.softFail = &soft
		default:
			err = unknownProperty(name, "matrix adjustment")
		}
		if err != nil {
			return out, fmt.Errorf("%s: %w", name, err)
		}
	}
	if out.with == nil {
		return out, errors.New("with: missing")
	}
	return out, nil
}

// permutation reads the values of one permutation: {dimension: value}, or a value of
// the only dimension there is.
func permutation(raw json.RawMessage) (map[string]string, error) {
	if value, err := scalar(raw); err == nil {
		return map[string]string{"": value}, nil
	}
	fields, err := object(raw)
	if err != nil {
		return nil, fmt.Errorf("got %s, want {dimension: value}", jsonType(raw))
	}
	out := map[string]string{}
	for _, name := range slices.Sorted(keys(fields)) {
		if out[name], err = scalar(fields[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

// permutations lists every combination, the last dimension changing fastest, then
// those that adjustments add. Limits hold before anything is multiplied.
func (m *matrix) permutations() ([]map[string]string, error) {
	dimensions := slices.Sorted(maps.Keys(m.setup))
	total := 1
	for _, name := range dimensions {
		if total *= len(m.setup[name]); total > maxCombinations {
			return nil, fmt.Errorf("got more than %d jobs, want at most %d", maxCombinations, maxVariants)
		}
	}
	out := []map[string]string{{}}
	for _, name := range dimensions {
		var next []map[string]string
		for _, so := range out {
			for _, value := range m.setup[name] {
				one := maps.Clone(so)
				one[name] = value
				next = append(next, one)
			}
		}
		out = next
	}
	for i, a := range m.adjustments {
		for name := range a.with {
			if _, known := m.setup[name]; !known {
				return nil, fmt.Errorf("adjustments[%d]: with: %q is no dimension, have %q", i, name, dimensions)
			}
		}
		if len(a.with) != len(dimensions) {
			return nil, fmt.Errorf("adjustments[%d]: with: got %d dimensions, want all of %q", i, len(a.with), dimensions)
		}
		if !slices.ContainsFunc(out, func(p map[string]string) bool { return maps.Equal(p, a.with) }) {
			out = append(out, a.with)
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
	for _, a := range m.adjustments {
		if a.skip != nil {
			combinations[fmt.Sprintf("%q", a.with)] = true
		}
	}
	return len(combinations)
}

// expand makes the step's variants.
func (s *Step) expand(m *matrix) error {
	all, err := m.permutations()
	if err != nil {
		return fmt.Errorf("matrix: %w", err)
	}
	for _, values := range all {
		v := Variant{Values: values}
		one := *s
		for _, a := range m.adjustments {
			if !maps.Equal(a.with, values) {
				continue
			}
			if a.skip != nil {
				v.Skip = a.skip
			}
			if a.softFail != nil {
				one.SoftFail = *a.softFail
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

// fill puts the values of a permutation into what may hold them.
func (s *Step) fill(values map[string]string) (err error) {
	fill := func(where, text string) string {
		return matrixToken.ReplaceAllStringFunc(text, func(token string) string {
			value, known := values[matrixToken.FindStringSubmatch(token)[1]]
			if !known && err == nil {
				err = fmt.Errorf("%s: %s names no dimension of the matrix", where, token)
			}
			return value
		})
	}
	s.Command, s.Label = fill("command", s.Command), fill("label", s.Label)
	env := make(map[string]string, len(s.Env))
	for name, value := range s.Env {
		env[fill("env", name)] = fill("env", value)
	}
	if s.Env != nil {
		s.Env = env
	}
	each := func(where string, list []string) []string {
		out := slices.Clone(list)
		for i := range out {
			out[i] = fill(where, out[i])
		}
		return out
	}
	s.Agents, s.ArtifactPaths = each("agents", s.Agents), each("artifact_paths", s.ArtifactPaths)
	s.Plugins = slices.Clone(s.Plugins)
	for i, raw := range s.Plugins {
		var plugin any
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		if err := dec.Decode(&plugin); err != nil {
			return fmt.Errorf("plugins[%d]: %w", i, err)
		}
		filled, encodeErr := json.Marshal(fillValue(plugin, func(text string) string { return fill("plugins", text) }))
		if encodeErr != nil {
			return fmt.Errorf("plugins[%d]: %w", i, encodeErr)
		}
		s.Plugins[i] = filled
	}
	return err
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
