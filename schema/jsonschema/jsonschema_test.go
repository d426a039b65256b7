package jsonschema

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/xeipuuv/gojsonschema"
	"gopkg.in/yaml.v3"
)

// keywordOf says which keyword an error of gojsonschema is about.
var keywordOf = map[string]string{
	"invalid_type": "type", "required": "required", "additional_property_not_allowed": "additionalProperties",
	"missing_dependency": "dependencies", "invalid_property_name": "propertyNames", "pattern": "pattern",
	"number_gte": "minimum", "number_lte": "maximum", "number_not": "not", "number_one_of": "oneOf",
	"array_min_items": "minItems", "array_max_items": "maxItems", "array_min_properties": "minProperties",
	"string_gte": "minLength", "string_lte": "maxLength", "const": "const", "enum": "enum",
}

// oracle validates with gojsonschema and says what it found in our terms.
func oracle(t *testing.T, s *gojsonschema.Schema, v any) []string {
	t.Helper()
	result, err := s.Validate(gojsonschema.NewRawLoader(v))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{} // objects whose names were refused: the reasons follow as errors of their own
	for _, e := range result.Errors() {
		if e.Type() == "invalid_property_name" {
			names[e.Context().String("/")] = true
		}
	}
	var found []string
	for _, e := range result.Errors() {
		keyword := keywordOf[e.Type()]
		if keyword == "" {
			t.Fatalf("gojsonschema says %q, which has no keyword here", e.Type())
		}
		path := strings.TrimPrefix(e.Context().String("/"), "(root)")
		property := ""
		switch keyword {
		case "required", "additionalProperties", "propertyNames":
			property = fmt.Sprint(e.Details()["property"])
		case "dependencies":
			property = fmt.Sprint(e.Details()["dependency"])
		case "pattern":
			if names[e.Context().String("/")] && isObject(v, path) {
				continue // one of its names', which is reported as that
			}
		}
		found = append(found, path+": "+keyword+" "+property)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// isObject reports whether the value at path is an object.
func isObject(v any, path string) bool {
	for _, step := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		if m, ok := v.(map[string]any); ok && step != "" {
			v = m[step]
		} else if list, ok := v.([]any); ok && step != "" {
			var i int
			fmt.Sscan(step, &i)
			v = list[i]
		}
	}
	_, is := v.(map[string]any)
	return is
}

func ours(t *testing.T, d *Document, definition string, v any) []string {
	t.Helper()
	errs, err := d.Validate(definition, v)
	if err != nil {
		t.Fatal(err)
	}
	found := []string{}
	for _, e := range errs {
		path := strings.Join(append([]string{""}, e.Path...), "/")
		found = append(found, path+": "+e.Keyword+" "+e.Property)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// Every document of both corpora, every step in it by every definition, and
// some thousand broken variants of them get the same faults from us and from
// gojsonschema.
func TestAgreesWithGojsonschema(t *testing.T) {
	for _, format := range []struct {
		schema, corpus string
		rounds         int
	}{
		{"../pipeline/format.json", "../pipeline/testdata/corpus/*/*.y*ml", 12},
		{"../queuefile/format.json", "testdata/queuefile.yml", 3000},
	} {
		source, err := os.ReadFile(format.schema)
		if err != nil {
			t.Fatal(err)
		}
		document := New(source)
		raw, err := definitions(source)
		if err != nil {
			t.Fatal(err)
		}
		schemas := map[string]*gojsonschema.Schema{}
		compileOracle := func(name string) {
			text := source
			if name != "" {
				text = fmt.Appendf(nil, `{"$ref":"#/definitions/%s","definitions":%s}`, name, definitionsText(t, source))
			}
			loader := gojsonschema.NewSchemaLoader()
			loader.Draft, loader.AutoDetect = gojsonschema.Draft7, false
			if schemas[name], err = loader.Compile(gojsonschema.NewBytesLoader(text)); err != nil {
				t.Fatalf("%s: %s: %v", format.schema, name, err)
			}
		}
		compileOracle("")
		names := []string{""}
		for name := range raw {
			compileOracle(name)
			names = append(names, name)
		}
		slices.Sort(names)
		random := rand.New(rand.NewPCG(1, 2))
		compared, faulty := 0, 0
		for _, start := range samples(t, format.corpus) {
			v := start
			for round := range format.rounds {
				switch {
				case round%4 > 0:
					v = broken(random, v) // and again
				case round > 0:
					v = broken(random, start)
				}
				for _, name := range names {
					want, got := oracle(t, schemas[name], v), ours(t, document, name, v)
					if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
						shown, _ := json.Marshal(v)
						t.Fatalf("%s: definition %q of %s (-gojsonschema +ours):\n%s", format.schema, name, shown, diff)
					}
					compared++
					faulty += min(1, len(got))
				}
			}
		}
		if faulty == 0 || faulty == compared {
			t.Errorf("%s: %d of %d values have faults: that compares nothing", format.schema, faulty, compared)
		}
		t.Logf("%s: %d comparisons, %d with faults", format.schema, compared, faulty)
	}
}

func definitionsText(t *testing.T, source []byte) json.RawMessage {
	var all struct {
		Definitions json.RawMessage `json:"definitions"`
	}
	if err := json.Unmarshal(source, &all); err != nil {
		t.Fatal(err)
	}
	return all.Definitions
}

// samples reads the documents of a corpus, and the steps in them.
func samples(t *testing.T, pattern string) []any {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files match %s: %v", pattern, err)
	}
	all := []any{"text", nil, true, json.Number("3"), []any{"a"}, map[string]any{}}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var v map[string]any
		if yaml.Unmarshal(text, &v) != nil {
			continue // some of the wrong ones are no YAML
		}
		data, err := json.Marshal(v)
		if err != nil {
			continue
		}
		in := json.NewDecoder(strings.NewReader(string(data)))
		in.UseNumber()
		var document map[string]any
		if err := in.Decode(&document); err != nil {
			t.Fatal(err)
		}
		all = append(all, document)
		if steps, ok := document["steps"].([]any); ok {
			all = append(all, steps...)
		}
	}
	return all
}

// broken returns a copy of v with one part replaced, added or taken away.
func broken(random *rand.Rand, v any) any {
	odd := []any{nil, true, "", "text", "a b=c", "$X", "{{matrix}}", "0190c0de-0000-4000-8000-000000000001", json.Number("-1"), json.Number("0"), json.Number("11"),
		json.Number("1.5"), json.Number("2.0"), json.Number("1e3"), []any{}, []any{json.Number("256")}, map[string]any{}, map[string]any{"a b": "c"}, strings.Repeat("x", 201)}
	if random.IntN(4) == 0 {
		return odd[random.IntN(len(odd))]
	}
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		names := []string{}
		for name, part := range v {
			out[name] = part
			names = append(names, name)
		}
		slices.Sort(names)
		extra := []string{"concurrency", "key", "skip", "retry", "colour", "queue", "limit", "exit_status", "indexes", "uuids", "count"}
		switch {
		case len(names) == 0 || random.IntN(3) == 0:
			out[extra[random.IntN(len(extra))]] = odd[random.IntN(len(odd))]
		case random.IntN(4) == 0:
			delete(out, names[random.IntN(len(names))])
		default:
			name := names[random.IntN(len(names))]
			out[name] = broken(random, out[name])
		}
		return out
	case []any:
		out := slices.Clone(v)
		if len(out) == 0 || random.IntN(4) == 0 {
			return append(out, odd[random.IntN(len(odd))])
		}
		i := random.IntN(len(out))
		out[i] = broken(random, out[i])
		return out
	}
	return odd[random.IntN(len(odd))]
}

func TestSchemasThatCannotBeUsed(t *testing.T) {
	for _, c := range []struct{ schema, definition, want string }{
		{`{"multipleOf": 3}`, "", "multipleOf"},
		{`{"$ref": "https://example.com/schema"}`, "", "want one of this document's definitions"},
		{`{"$ref": "#/definitions/none"}`, "", `no definition "none"`},
		{`{"definitions": {"a": {}}}`, "b", `no definition "b"`},
		{`{"pattern": "("}`, "", "missing closing"},
		{`{"type": `, "", ""},
		{`[`, "x", "not a JSON object"},
	} {
		_, err := New([]byte(c.schema)).Validate(c.definition, "text")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Validate by %s = %v, want an error with %q", c.schema, err, c.want)
		}
	}
}

func ExampleDocument_Validate() {
	schema := New([]byte(`{"type": "object", "required": ["queue"], "additionalProperties": {"type": "string"}}`))
	faults, err := schema.Validate("", map[string]any{"arch": true})
	fmt.Println(faults, err)
	// Output: [/: required queue /arch: type ] <nil>
}
