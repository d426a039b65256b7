package pipeline

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/xeipuuv/gojsonschema"
	"gopkg.in/yaml.v3"
)

//go:embed format.json
var format []byte

// Schema returns the JSON Schema of the format: one definition per type of
// step, and "document" for what encloses them.
func Schema() []byte { return slices.Clone(format) }

// maxCompiled bounds what a process that checks many documents keeps.
const maxCompiled = 64

// definitions holds the compiled definitions of the format. Compiling all of
// them would take longer than everything else that kbgen does for one step, so
// each is compiled when it is first asked for, and of its properties only
// those that some step has.
var definitions compiler

// A compiler compiles definitions of the format and keeps them. It needs no
// network: every reference is within the one file.
type compiler struct {
	mu       sync.Mutex
	source   map[string]json.RawMessage // definitions by name
	compiled map[string]*gojsonschema.Schema
}

// validate checks v by the definition called name; used names at least the
// properties that v has. The error is a fault of the format itself; what is
// wrong with v stands in the result.
func (c *compiler) validate(name string, used []string, v any) (*gojsonschema.Result, error) {
	schema, err := c.definition(name, used)
	if err != nil {
		return nil, fmt.Errorf("compiling the pipeline format: %s: %w", name, err)
	}
	return schema.Validate(gojsonschema.NewRawLoader(v))
}

func (c *compiler) definition(name string, used []string) (*gojsonschema.Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := name + " " + strings.Join(used, " ")
	if schema, ok := c.compiled[id]; ok {
		return schema, nil
	}
	if c.source == nil {
		var all struct {
			Definitions map[string]json.RawMessage `json:"definitions"`
		}
		if err := json.Unmarshal(format, &all); err != nil {
			return nil, err
		}
		c.source, c.compiled = all.Definitions, map[string]*gojsonschema.Schema{}
	}
	text, err := c.excerpt(name, used)
	if err != nil {
		return nil, err
	}
	loader := gojsonschema.NewSchemaLoader()
	loader.AutoDetect = false
	loader.Draft = gojsonschema.Draft7
	schema, err := loader.Compile(gojsonschema.NewBytesLoader(text))
	if err != nil {
		return nil, err
	}
	if len(c.compiled) >= maxCompiled {
		clear(c.compiled)
	}
	c.compiled[id] = schema
	return schema, nil
}

// excerpt writes one definition as a schema of its own, with the definitions
// that it refers to. Of its properties those that nobody uses keep their names
// only.
func (c *compiler) excerpt(name string, used []string) ([]byte, error) {
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(c.source[name], &parts); err != nil {
		return nil, err
	}
	var properties map[string]json.RawMessage
	if err := json.Unmarshal(parts["properties"], &properties); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	needed := []string{} // definitions, in the order in which they are met
	member := func(separator, key string, value []byte) {
		fmt.Fprintf(&out, "%s%q:", separator, key)
		out.Write(value)
		needed = appendReferences(needed, value)
	}
	out.WriteString(`{"properties":{`)
	separator := ""
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		value := json.RawMessage("{}")
		if slices.Contains(used, key) {
			value = properties[key]
		}
		member(separator, key, value)
		separator = ","
	}
	out.WriteByte('}')
	for _, key := range slices.Sorted(maps.Keys(parts)) {
		if key != "properties" {
			member(",", key, parts[key])
		}
	}
	out.WriteString(`,"definitions":{`)
	separator = ""
	for i := 0; i < len(needed); i++ { // grows as definitions refer to others
		member(separator, needed[i], c.source[needed[i]])
		separator = ","
	}
	out.WriteString("}}")
	return out.Bytes(), nil
}

// appendReferences adds the definitions that a piece of the format refers to.
func appendReferences(names []string, piece []byte) []string {
	mark := []byte(`"#/definitions/`)
	for {
		i := bytes.Index(piece, mark)
		if i < 0 {
			return names
		}
		piece = piece[i+len(mark):]
		name := string(piece[:bytes.IndexByte(piece, '"')])
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
}

// usedKeys lists the keys of all steps of a kind, sorted.
func usedKeys(steps []*step, kind string) []string {
	set := map[string]bool{}
	for _, s := range steps {
		if s.kind == kind {
			entries(s.node, func(key, _ *yaml.Node) { set[key.Value] = true })
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// schema checks n by one definition of the format. One definition per type of
// step gives one finding per mistake, where a choice of definitions would
// report all of them.
func (c *checker) schema(definition string, used []string, n *yaml.Node, path string) {
	result, err := definitions.validate(definition, used, value(n))
	if err != nil {
		c.report("KB012", n, path, "%v", err)
		return
	}
	said := map[string]bool{} // paths with a finding about their value
	for _, e := range result.Errors() {
		context := e.Context().String("\x00")
		at, name := locate(n, context, path)
		rule, text := describe(definition, e, at)
		switch e.Type() {
		case "additional_property_not_allowed":
			at = keyNode(at, fmt.Sprint(e.Details()["property"]))
		case "required", "missing_dependency", "condition_else", "condition_then":
		default:
			if said[context] {
				continue
			}
			said[context] = true
		}
		c.report(rule, at, name, "%s", text)
	}
}

// locate finds the node that a schema error is about, and names it.
func locate(n *yaml.Node, context, path string) (*yaml.Node, string) {
	for _, segment := range strings.Split(context, "\x00")[1:] { // the first is "(root)"
		var next *yaml.Node
		if n.Kind == yaml.SequenceNode {
			if i, err := strconv.Atoi(segment); err == nil && i < len(n.Content) {
				next = n.Content[i]
			}
			path += "[" + segment + "]"
		} else {
			next = child(n, segment)
			path = join(path, segment)
		}
		if next == nil {
			break
		}
		n = next
	}
	return n, path
}

// describe says which rule a schema error breaks, what was there and what is
// wanted.
func describe(definition string, e gojsonschema.ResultError, at *yaml.Node) (rule, text string) {
	segments := strings.Split(e.Context().String("\x00"), "\x00")
	name := lastName(segments)
	switch e.Type() {
	case "additional_property_not_allowed":
		return "KB011", unknownKey(fmt.Sprint(e.Details()["property"]), knownKeys(definition, segments))
	case "required":
		return "KB013", fmt.Sprintf("missing key %q", e.Details()["property"])
	case "missing_dependency":
		return "KB019", fmt.Sprintf("got %s, want %s beside it", concurrencyKeys(at), e.Details()["dependency"])
	case "invalid_property_name":
		return "KB012", fmt.Sprintf("got the name %q, want %s", e.Details()["property"], nameForms[name])
	}
	got := kindName(at)
	switch {
	case e.Type() == "array_min_items" || e.Type() == "array_min_properties":
		return "KB012", fmt.Sprintf("got %s without members, want at least one", got)
	case name == "limit" && strings.HasPrefix(e.Type(), "number_"):
		return "KB307", fmt.Sprintf("got %s, want 0 to 10", got)
	case name == "skip" && e.Type() == "pattern":
		return "KB305", fmt.Sprintf("got %d characters, want at most 70", len([]rune(at.Value)))
	case name == "concurrency_group" && e.Type() == "pattern":
		return "KB306", fmt.Sprintf("got %d characters, want 1 to 200", len([]rune(at.Value)))
	case slices.Contains([]string{"key", "id", "identifier"}, name) && !slices.Contains(segments, "fields"):
		if e.Type() == "number_not" {
			return "KB018", fmt.Sprintf("got %s, want a key unlike a UUID", got)
		}
		return "KB018", fmt.Sprintf("got %s, want letters, digits, _ - . : and comma", got)
	}
	return "KB012", fmt.Sprintf("got %s, want %s", got, wanted(definition, segments, name))
}

// lastName returns the last key on the way to a value, without indexes.
func lastName(segments []string) string {
	for i := len(segments) - 1; i > 0; i-- {
		if _, err := strconv.Atoi(segments[i]); err != nil {
			return segments[i]
		}
	}
	return ""
}

// concurrencyKeys names what a step has of a concurrency limit.
func concurrencyKeys(n *yaml.Node) string {
	var have []string
	for _, key := range []string{"concurrency", "concurrency_group", "concurrency_method"} {
		if child(n, key) != nil {
			have = append(have, key)
		}
	}
	return strings.Join(have, " and ")
}

func unknownKey(key string, known []string) string {
	if near := nearest(key, known); near != "" {
		return fmt.Sprintf("unknown key %q, nearest is %q", key, near)
	}
	return fmt.Sprintf("unknown key %q", key)
}

// nameForms says what keys of mappings must look like.
var nameForms = map[string]string{
	"env":    "the name of a variable: letters, digits and _",
	"agents": "the name of a tag",
}

// forms says what values must look like, by the last key on the way to them.
var forms = map[string]string{
	"steps":                    "a list of steps",
	"env":                      "a mapping of names to text, numbers or booleans",
	"agents":                   "a mapping of tags to text",
	"queue":                    "the name of a queue",
	"command":                  "text or a list of texts",
	"timeout_in_minutes":       "a whole number of minutes, at least 1",
	"timeout":                  "a whole number of minutes, at least 1",
	"parallelism":              "a whole number, at least 1",
	"concurrency":              "a whole number, at least 1",
	"depth":                    "a whole number, at least 1",
	"priority":                 "a whole number",
	"concurrency_method":       "ordered or eager",
	"plugins":                  "a list of mappings, each with a plugin and its settings",
	"matrix":                   "a list of values, or a mapping with setup",
	"setup":                    "a list of values, or a mapping of dimensions to lists",
	"retry":                    "a mapping with automatic or manual",
	"automatic":                "true, false, or a list of rules",
	"manual":                   "true, false, or a mapping with allowed, permit_on_passed or reason",
	"exit_status":              "a number from -1 to 255, a list of them, or \"*\"",
	"signal_reason":            "*, none, agent_incompatible, agent_refused, agent_stop, cancel, process_run_error, signature_rejected or stack_error",
	"limit":                    "a whole number from 0 to 10",
	"soft_fail":                "true, false, or a list of {exit_status: …}",
	"skip":                     "true, false, or a reason",
	"depends_on":               "a key, or a list of keys or {step: …, allow_failure: …}",
	"key":                      "a name",
	"blocked_state":            "passed, failed or running",
	"trigger":                  "the slug of a pipeline",
	"checkout":                 "a mapping with skip, submodules, depth and so on",
	"commit_verification":      "strict or warn",
	"size":                     "a size like 20g",
	"notify":                   "a list of services, each as a mapping",
	"if":                       "a condition as text",
	"secrets":                  "a list of names, or a mapping of variables to names",
	"allow_dependency_failure": "true or false",
	"allow_failure":            "true or false",
	"continue_on_failure":      "true or false",
	"cancel_on_build_failing":  "true or false",
	"async":                    "true or false",
	"allowed":                  "true or false",
	"permit_on_passed":         "true or false",
	"required":                 "true or false",
	"multiple":                 "true or false",
	"submodules":               "true or false",
	"lfs":                      "true or false",
	"fields":                   "a list of fields, at least one",
	"options":                  "a list of {label: …, value: …}, at least one",
}

// wanted says what the value should look like. Where the schema gives a form
// for the members of a mapping, it is the mapping's name that says it.
func wanted(definition string, segments []string, name string) string {
	for _, parent := range []string{"env", "agents", "meta_data", "with", "setup"} {
		if i := slices.Index(segments, parent); i > 0 && i < len(segments)-1 && name != "queue" {
			return "text, a number or a boolean"
		}
	}
	if segments[len(segments)-1] != name && name != "" { // a member of a list
		switch name {
		case "plugins":
			return "a mapping with a plugin and its settings"
		case "automatic":
			return "a rule with exit_status, signal, signal_reason or limit"
		case "soft_fail":
			return "{exit_status: …}"
		case "notify":
			return "a mapping with a service, github_check or github_commit_status"
		case "agents":
			return "tag=value"
		}
	}
	if name == "skip" && slices.Contains(segments, "checkout") {
		return "true or false"
	}
	if form, ok := forms[name]; ok {
		return form
	}
	if definition == "document" && name == "" {
		return "a mapping with steps"
	}
	return "text"
}

// knownKeys lists the keys that a definition knows at a place within it.
func knownKeys(definition string, segments []string) []string {
	type schema struct {
		Ref                  string                     `json:"$ref"`
		Properties           map[string]json.RawMessage `json:"properties"`
		Items                json.RawMessage            `json:"items"`
		AdditionalProperties json.RawMessage            `json:"additionalProperties"`
	}
	var all struct {
		Definitions map[string]json.RawMessage `json:"definitions"`
	}
	if json.Unmarshal(format, &all) != nil {
		return nil
	}
	resolve := func(raw json.RawMessage) (s schema) {
		for range 5 {
			s = schema{}
			if json.Unmarshal(raw, &s) != nil || s.Ref == "" {
				break
			}
			raw = all.Definitions[strings.TrimPrefix(s.Ref, "#/definitions/")]
		}
		return s
	}
	s := resolve(all.Definitions[definition])
	for _, segment := range segments[1:] {
		if raw, ok := s.Properties[segment]; ok {
			s = resolve(raw)
		} else if _, err := strconv.Atoi(segment); err == nil {
			s = resolve(s.Items)
		} else {
			s = resolve(s.AdditionalProperties)
		}
	}
	known := make([]string, 0, len(s.Properties))
	for key := range s.Properties {
		known = append(known, key)
	}
	slices.Sort(known)
	return known
}

// topLevel reports misspelt keys beside steps. Others are common and harmless:
// people keep anchors there.
func (c *checker) topLevel(d *document) {
	known := knownDocumentKeys
	entries(d.root, func(key, _ *yaml.Node) {
		if slices.Contains(known, key.Value) {
			return
		}
		near := nearest(key.Value, append([]string{"step"}, known...))
		if near == "step" {
			near = "steps"
		}
		switch {
		case near != "":
			c.report("KB011", key, d.path+key.Value, "unknown key %q, nearest is %q", key.Value, near)
		case c.opts.Strict:
			c.report("KB011", key, d.path+key.Value, "unknown key %q", key.Value)
		}
	})
}

var knownDocumentKeys = []string{"steps", "env", "agents", "notify", "secrets", "checkout", "cache", "image", "priority"}
