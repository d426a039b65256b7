// Package pipeline checks Buildkite pipeline documents: their format, and what
// only shows once they run.
//
// [Check] applies every rule to any pipeline and reports what it finds with
// line and column. [Parse] holds documents against the strict subset that
// kbgen writes: numbers as numbers, plugins as a list of one-key mappings with
// a pinned version, nothing null, no anchors, nothing that the upload would
// still replace.
//
// The format is format.json, one definition per type of step. What a schema
// cannot say, such as cycles, limits that multiply, or variables that are
// replaced too early, is code. The package knows no GPU types and no queues,
// and it reads no files.
//
// Sources: buildkite.com/docs/pipelines/configure; the parser and the
// interpolation of buildkite-agent v3.138.0; plugin.yml of the plugins.
package pipeline

import (
	"cmp"
	"errors"
	"slices"

	agentparser "github.com/buildkite/go-pipeline"
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
)

// Options say how [Check] looks at a stream of documents.
type Options struct {
	// Strict holds the stream against the subset that kbgen writes, with the
	// severities that the rules have there.
	Strict bool
	// NoInterpolation leaves out the rules about variables: the stream is
	// uploaded with --no-interpolation.
	NoInterpolation bool
	// Complete says that nothing else is uploaded in the build, before or after.
	// First says that nothing is before; it is complete unless a step of it, or
	// a plugin that is not known, uploads.
	Complete, First bool
	// Ignore names rules to leave out, "KB205".
	Ignore []string
}

// Check applies every rule to a stream of YAML or JSON documents, as an upload
// takes it. Each finding is reported once, in the order of the text.
//
// A comment in the text can allow a finding, see rule KB008.
func Check(stream []byte, opts Options) []schema.Finding {
	findings, _ := check(stream, opts)
	return findings
}

func check(stream []byte, opts Options) ([]schema.Finding, []*document) {
	c := &checker{opts: opts, keys: map[string]*step{}, severities: severities(opts)}
	c.stream(stream)
	c.allow(stream)
	slices.SortStableFunc(c.findings, func(a, b schema.Finding) int {
		return cmp.Or(
			cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(c.findings), c.documents
}

// A Document is one document of a valid stream.
type Document struct {
	Root     *yaml.Node            // a mapping
	Pipeline *agentparser.Pipeline // parsed by the agent's own parser, not interpolated
}

// Parse checks a stream of documents against the strict subset that kbgen
// writes.
//
// Errors: each [schema.Finding] of severity [Error], joined, in the order of the text.
func Parse(stream []byte) ([]Document, error) {
	findings, checked := check(stream, Options{Strict: true})
	var faults []error
	for _, f := range findings {
		if f.Severity == Error {
			faults = append(faults, &f)
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	documents := make([]Document, len(checked))
	for i, d := range checked {
		documents[i] = Document{Root: d.root, Pipeline: d.parsed}
	}
	return documents, nil
}

// severities says what each rule's findings count.
func severities(opts Options) map[string]schema.Severity {
	all := make(map[string]schema.Severity, len(rules))
	for _, r := range rules {
		switch {
		case slices.Contains(opts.Ignore, r.ID):
			all[r.ID] = Off
		case opts.Strict:
			all[r.ID] = r.Strict
		default:
			all[r.ID] = r.Severity
		}
	}
	return all
}
