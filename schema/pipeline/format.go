package pipeline

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema/validation"
)

//go:embed format.json
var format []byte

// Schema returns the JSON Schema of the format: one definition per type of
// step, and "document" for what encloses them.
func Schema() []byte { return slices.Clone(format) }

// compiled is the format, of which only the definitions that steps need are
// compiled.
var compiled = validation.New(format)

// A shape is what messages need of one part of the format.
type shape struct {
	Ref        string            `json:"$ref"`
	Properties map[string]*shape `json:"properties"`
	Items      json.RawMessage   `json:"items"`
	Additional json.RawMessage   `json:"additionalProperties"` // a shape or a boolean
}

var shapes = sync.OnceValue(func() map[string]*shape {
	var all struct {
		Definitions map[string]*shape `json:"definitions"`
	}
	if err := json.Unmarshal(format, &all); err != nil {
		panic(fmt.Sprintf("format.json: %v", err)) // a fault of ours; every test meets it
	}
	return all.Definitions
})

// properties lists the keys that a definition has at a path, sorted.
func properties(definition string, path []string) []string {
	at := shapes()[definition]
	for {
		switch {
		case at == nil:
			return nil
		case at.Ref != "":
			at = shapes()[strings.TrimPrefix(at.Ref, "#/definitions/")]
			continue
		case len(path) == 0:
			return slices.Sorted(maps.Keys(at.Properties))
		}
		next, ok := at.Properties[path[0]]
		if !ok {
			raw := at.Additional
			if _, err := strconv.Atoi(path[0]); err == nil {
				raw = at.Items
			}
			next = nil
			_ = json.Unmarshal(raw, &next) // a boolean has no properties
		}
		at, path = next, path[1:]
	}
}

// schema checks n by one definition of the format. One definition per type of
// step gives one finding per mistake, where a choice of definitions would
// report all of them.
func (c *checker) schema(definition string, n *yaml.Node, path string) {
	errors, err := compiled.Validate(definition, value(n))
	if err != nil {
		c.report("KB012", n, path, "%v", err)
		return
	}
	said := map[string]bool{} // paths with a finding about their value
	for _, e := range errors {
		at, name := locate(n, e.Path, path)
		rule, text := describe(definition, e, at)
		switch e.Keyword {
		case "additionalProperties":
			at = keyNode(at, e.Property)
		case "required", "dependencies":
		default:
			place := strings.Join(e.Path, "\x00")
			if said[place] {
				continue
			}
			said[place] = true
		}
		c.report(rule, at, name, "%s", text)
	}
}

// locate finds the node that a schema error is about, and names it.
func locate(n *yaml.Node, segments []string, path string) (*yaml.Node, string) {
	for _, segment := range segments {
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
func describe(definition string, e validation.Error, at *yaml.Node) (rule, text string) {
	segments := e.Path
	name := lastName(segments)
	switch e.Keyword {
	case "additionalProperties":
		return "KB011", unknownKey(e.Property, properties(definition, segments))
	case "required":
		return "KB013", fmt.Sprintf("missing key %q", e.Property)
	case "dependencies":
		return "KB019", fmt.Sprintf("got %s, want %s beside it", concurrencyKeys(at), e.Property)
	case "propertyNames":
		return "KB012", fmt.Sprintf("got the name %q, want %s", e.Property, nameForms[name])
	}
	got := kindName(at)
	switch {
	case e.Keyword == "minItems" || e.Keyword == "minProperties":
		return "KB012", fmt.Sprintf("got %s without members, want at least one", got)
	case name == "limit" && (e.Keyword == "minimum" || e.Keyword == "maximum"):
		return "KB307", fmt.Sprintf("got %s, want 0 to 10", got)
	case name == "skip" && e.Keyword == "pattern":
		return "KB305", fmt.Sprintf("got %d characters, want at most 70", len([]rune(at.Value)))
	case name == "concurrency_group" && e.Keyword == "pattern":
		return "KB306", fmt.Sprintf("got %d characters, want 1 to 200", len([]rune(at.Value)))
	case slices.Contains([]string{"key", "id", "identifier"}, name) && !slices.Contains(segments, "fields"):
		if e.Keyword == "not" {
			return "KB018", fmt.Sprintf("got %s, want a key unlike a UUID", got)
		}
		return "KB018", fmt.Sprintf("got %s, want letters, digits, _ - . : and comma", got)
	}
	return "KB012", fmt.Sprintf("got %s, want %s", got, wanted(definition, segments, name))
}

// lastName returns the last key on the way to a value, without indexes.
func lastName(segments []string) string {
	for i := len(segments) - 1; i >= 0; i-- {
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
	"exit_status":              "a number from -1 to 255 (on Kubernetes also -7 and -10), a list of them, or \"*\"",
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
		if i := slices.Index(segments, parent); i >= 0 && i < len(segments)-1 && name != "queue" {
			return "text, a number or a boolean"
		}
	}
	if name != "" && segments[len(segments)-1] != name { // a member of a list
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
