package pipeline

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

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
	name, want := lastName(segments), compiled.Shape(definition, segments)
	switch e.Keyword {
	case "additionalProperties":
		return "KB011", unknownKey(e.Property, slices.Sorted(maps.Keys(want.Properties)))
	case "required":
		return "KB013", fmt.Sprintf("missing key %q", e.Property)
	case "dependencies":
		return "KB019", fmt.Sprintf("got %s, want %s beside it", concurrencyKeys(at), e.Property)
	case "propertyNames":
		return "KB012", fmt.Sprintf("got the name %q, want %s", e.Property, want.Names.Description)
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
	return "KB012", fmt.Sprintf("got %s, want %s", got, cmp.Or(want.Description, "text"))
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
