// Package generator turns definitions into checked pipelines: a
// [pipelines.Request] goes in, the bytes of a document come out. It knows how a
// step is written for a platform and a vendor; which steps a pipeline has is
// decided in package pipelines.
//
// It is pure: it reads no environment, file, clock or network, and the same
// request gives the same bytes. It never sees a payload, and it does not know
// who reads the bytes.
//
// # Dollar signs
//
// Every document is meant for `buildkite-agent pipeline upload`, which replaces
// variables. A dollar sign meant for the job is therefore written twice, for
// the pipe and for kbgen upload alike. An upload with --no-interpolation would
// leave it doubled.
//
// # Checks
//
// A function returns bytes that passed every check, or an error, never both:
//
//   - the document keeps the step format and every rule of package
//     schema/pipeline in its strict form, and the agent's own parser takes it
//     without a warning;
//   - keys are unique over all documents of a build;
//   - read back, the document holds exactly the steps that were built; and so
//     it does after the agent's own interpolation, which asks for no variable.
package generator

import (
	"fmt"
	"slices"

	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
)

// A CheckError is a document that did not pass the checks: a fault of kbgen's
// own, or of the table, since a request's faults are found before.
type CheckError struct{ Err error }

func (e *CheckError) Error() string { return "checking the pipeline: " + e.Err.Error() }
func (e *CheckError) Unwrap() error { return e.Err }

// Render returns a pipeline as one document.
//
// Errors: every fault of the request, joined; more than [schema.MaxJobsPerUpload] jobs; a
// [CheckError].
func Render(p pipelines.Pipeline, r pipelines.Request, f Format) ([]byte, error) {
	documents, err := RenderParts(p, r, f, schema.MaxJobsPerUpload)
	if err != nil {
		return nil, err
	}
	if len(documents) > 1 {
		return nil, fmt.Errorf("pipeline %s has %d jobs or more, Buildkite takes %d in one document", p.Name, (len(documents)-1)*schema.MaxJobsPerUpload+1, schema.MaxJobsPerUpload)
	}
	return documents[0], nil
}

// RenderParts returns a pipeline as documents of at most jobs jobs each, in the
// order in which they must be uploaded: a step never depends on a later one.
// Every document is checked by itself, and their keys against each other.
func RenderParts(p pipelines.Pipeline, r pipelines.Request, f Format, jobs int) ([][]byte, error) {
	if jobs < 1 || jobs > schema.MaxJobsPerUpload {
		return nil, fmt.Errorf("jobs of one document: got %d, want 1 to %d", jobs, schema.MaxJobsPerUpload)
	}
	steps, nodes, err := build(p, r)
	if err != nil {
		return nil, err
	}
	if err := uniqueKeys(steps); err != nil {
		return nil, err
	}
	var documents [][]byte
	var before []byte
	for len(nodes) > 0 {
		n := min(jobs, len(nodes))
		out, err := render(before, nodes[:n], p.Comment, f)
		if err != nil {
			return nil, err
		}
		documents, nodes = append(documents, out), nodes[n:]
		before = slices.Concat(before, out, []byte("---\n"))
	}
	return documents, nil
}

// build returns a pipeline's steps, as definitions and as trees.
func build(p pipelines.Pipeline, r pipelines.Request) ([]pipelines.CommandStep, []node, error) {
	steps, err := p.Steps(r)
	if err != nil {
		return nil, nil, err
	}
	nodes := make([]node, len(steps))
	for i, s := range steps {
		if nodes[i], err = command(s); err != nil {
			return nil, nil, fmt.Errorf("building step %s for %s: %w", s.Key, s.On.Name, err)
		}
	}
	return steps, nodes, nil
}

func uniqueKeys(steps []pipelines.CommandStep) error {
	seen := make(map[string]bool, len(steps))
	for _, s := range steps {
		if seen[s.Key] {
			return fmt.Errorf("two steps have the key %s", s.Key)
		}
		seen[s.Key] = true
	}
	return nil
}

// render writes steps down, escaped for one interpolation, and checks what it
// wrote. Before is the stream of documents that come first.
func render(before []byte, steps []node, comment []string, f Format) ([]byte, error) {
	doc := documentOf(steps)
	escaped := doc
	if doc.has('$') {
		var err error
		if escaped, err = doc.escaped("pipeline"); err != nil {
			return nil, fmt.Errorf("escaping the pipeline: %w", err)
		}
	}
	out, err := write(escaped, comment, f)
	if err != nil {
		return nil, err
	}
	if err := check(before, out, steps); err != nil {
		return nil, &CheckError{err}
	}
	return out, nil
}
