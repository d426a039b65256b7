// Package inventory finds the sealed values of stores and pipelines, says what
// is wrong with them, and seals them anew: in the current format, or for other
// recipients. It reads and writes no files.
package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/secrets/legacy"
)

// LegacyPrefix begins the variables that carry values in the oldest format.
const LegacyPrefix = "SECRET_"

const (
	crypticPrefix = "CRYPTIC_ADHOC_SECRET_"
	envelope      = "kbsec1" // the current format
)

// A Value is one sealed value of a file.
type Value struct {
	File   string
	Line   int
	Name   string         // of the secret, without what the format puts around it
	Text   string         // sealed
	Format string         // "kbsec1", or an old format as far as it shows
	Entry  *secrets.Entry // of a store
}

func (v Value) String() string { return fmt.Sprintf("%s:%d: %s", v.File, v.Line, v.Name) }

// IsStore reports whether a file is a store, by its name.
func IsStore(file string) bool {
	name := filepath.Base(file)
	return strings.HasSuffix(name, ".kb.yaml") || strings.HasSuffix(name, ".kb.yml")
}

// Scan finds the sealed values of a store or of a pipeline.
func Scan(file string, content []byte) ([]Value, error) {
	var all []Value
	if IsStore(file) {
		store, err := secrets.ParseStore(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, e := range store.Entries {
			all = append(all, Value{File: file, Line: e.Line, Name: e.Name, Text: e.Envelope, Format: envelope, Entry: &e})
		}
		return all, nil
	}
	d := yaml.NewDecoder(bytes.NewReader(content))
	for {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: not YAML: %s", file, text.Line(err.Error(), 200))
		}
		walk(&doc, func(name string, at *yaml.Node, value string) {
			if v, ok := recognize(name, value); ok {
				v.File, v.Line = file, at.Line
				all = append(all, v)
			}
		})
	}
}

// walk calls found for each variable of a document: members of mappings, and
// NAME=value in lists, as plugins have them.
func walk(n *yaml.Node, found func(name string, at *yaml.Node, value string)) {
	for i, inner := range n.Content {
		switch {
		case n.Kind == yaml.MappingNode && i%2 == 1 && inner.Kind == yaml.ScalarNode:
			found(n.Content[i-1].Value, inner, inner.Value)
		case n.Kind == yaml.SequenceNode && inner.Kind == yaml.ScalarNode:
			if name, value, ok := strings.Cut(inner.Value, "="); ok {
				found(name, inner, strings.Trim(value, `"`))
			}
		}
		walk(inner, found)
	}
}

// recognize tells a sealed value from others. An old format counts if its
// variable's name says so, or if the container's mark begins it.
func recognize(name, value string) (Value, bool) {
	if secrets.IsEnvelope(value) {
		return Value{Name: strings.TrimSuffix(name, secrets.Suffix), Text: value, Format: envelope}, true
	}
	format, err := legacy.Detect(value)
	if err != nil {
		return Value{}, false
	}
	if short, ok := strings.CutPrefix(name, crypticPrefix); ok {
		return Value{Name: short, Text: value, Format: string(legacy.AdHoc)}, true
	}
	short, ok := strings.CutPrefix(name, LegacyPrefix)
	return Value{Name: short, Text: value, Format: string(format)}, ok || format == legacy.Variable
}
