package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/secrets/legacy"
)

// Prefixes of variables that carry the old formats.
const (
	juliaPrefix   = "SECRET_"
	crypticPrefix = "CRYPTIC_ADHOC_SECRET_"
)

// A sealedText is one encrypted value of a file.
type sealedText struct {
	file   string
	line   int
	name   string         // of the secret, without what the format puts around it
	text   string         // sealed
	format string         // "kbsec1", or one of the old ones as far as it shows
	entry  *secrets.Entry // of a store
}

// scan finds the encrypted values of a store or of a pipeline.
func scan(env *cli.Env, file string) ([]sealedText, error) {
	if isStore(file) {
		store, err := readStore(env, file, false)
		if err != nil {
			return nil, err
		}
		var all []sealedText
		for _, e := range store.Entries {
			all = append(all, sealedText{file: file, line: e.Line, name: e.Name, text: e.Envelope, format: "kbsec1", entry: &e})
		}
		return all, nil
	}
	content, err := readFile(env, file)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	var all []sealedText
	d := yaml.NewDecoder(bytes.NewReader(content))
	for {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, cli.Usagef("%s: not YAML: %s", file, text.Line(err.Error(), 200))
		}
		walk(&doc, func(name string, at *yaml.Node, value string) {
			if s, ok := recognize(name, value); ok {
				s.file, s.line = file, at.Line
				all = append(all, s)
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

// recognize tells an encrypted value from others. An old format counts where
// its variable's name says so, or where the container's mark begins it.
func recognize(name, value string) (sealedText, bool) {
	if secrets.IsEnvelope(value) {
		return sealedText{name: strings.TrimSuffix(name, secrets.Suffix), text: value, format: "kbsec1"}, true
	}
	format, err := legacy.Detect(value)
	if err != nil {
		return sealedText{}, false
	}
	if short, ok := strings.CutPrefix(name, crypticPrefix); ok {
		return sealedText{name: short, text: value, format: string(legacy.AdHoc)}, true
	}
	short, ok := strings.CutPrefix(name, juliaPrefix)
	return sealedText{name: short, text: value, format: string(format)}, ok || format == legacy.Variable
}

func (s sealedText) String() string { return fmt.Sprintf("%s:%d: %s", s.file, s.line, s.name) }
