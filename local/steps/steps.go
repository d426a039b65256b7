// Package steps reads pipelines as buildkite-agent uploads them: JSON after
// interpolation and normalization. It is strict where Buildkite's backend is
// (an unknown property, a value of the wrong type, a key used twice) and
// refuses, with the reason, what the stand-in does not implement. It knows
// nothing of builds.
//
// Source: Buildkite's step reference (buildkite/docs, pages/pipelines/configure)
// and the normal form of buildkite/go-pipeline.
package steps

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Kind is a kind of step.
type Kind string

const (
	Command Kind = "command"
	Wait    Kind = "wait"
	Group   Kind = "group"
	Block   Kind = "block"
	Input   Kind = "input"

	TriggerStep Kind = "trigger"
)

// A Document is one uploaded pipeline.
type Document struct {
	Env    map[string]string // acts as if written on each step
	Agents []string          // default query rules, "queue=gpu"
	Steps  []*Step
	Notify []json.RawMessage // recorded, never sent
}

// A Step is one step in its normal form. Fields of other kinds are zero.
type Step struct {
	Kind  Kind
	Key   string
	Label string
	If    string   // condition; empty: none
	On    []string // branches patterns; empty: all

	// DependsOn is nil when the step has no depends_on, and empty when it has
	// one that names nothing (start at once).
	DependsOn              []Dependency
	AllowDependencyFailure bool

	// Wait steps.
	ContinueOnFailure bool

	// Group steps. No group lies in a group.
	Steps []*Step

	// Command steps.
	Command       string
	Env           map[string]string
	Agents        []string // own query rules; nil: the document's
	Plugins       []json.RawMessage
	ArtifactPaths []string
	Parallelism   int // 0: one plain job; n: n jobs with an index
	Priority      int
	Timeout       time.Duration // 0: none
	Skip          Skip
	SoftFail      SoftFail
	Retry         Retry
	Concurrency   Concurrency // no Group: none
	Checkout      Checkout
	secrets       secrets

	CancelOnBuildFailing bool

	// Variants are the jobs of a matrix; nil: the step has none.
	Variants []Variant
	matrix   *matrix

	// Block and input steps.
	Prompt       string
	Submit       string // of the button
	Fields       []Field
	BlockedState string // of the build: "passed" when empty, "failed", "running"

	Trigger Trigger // of trigger steps

	Notify []json.RawMessage // recorded, never sent

	// JSON is the step as it came, for the agent to check its signature.
	JSON json.RawMessage
}

// Concurrency limits how many jobs of a group run at once, over all builds.
type Concurrency struct {
	Group string
	Limit int
	Eager bool // false: strictly in the order of creation
}

// All lists every step, those in groups behind their group.
func (d *Document) All() []*Step {
	var out []*Step
	for _, s := range d.Steps {
		out = append(append(out, s), s.Steps...)
	}
	return out
}

// Jobs counts the jobs of the document as the upload limit does.
func (d *Document) Jobs() int {
	n := 0
	for _, s := range d.All() {
		n += max(1, s.Parallelism, len(s.Variants))
	}
	return n
}

// Rules returns a step's query rules: its own, or the document's, with the
// default queue when they name none.
func Rules(own, document []string) []string {
	rules := own
	if rules == nil {
		rules = document
	}
	rules = slices.Clone(rules)
	if !slices.ContainsFunc(rules, func(r string) bool { return strings.HasPrefix(r, "queue=") }) {
		rules = append(rules, "queue=default")
	}
	return rules
}

// QueueOf returns the queue that rules or an agent's tags name.
func QueueOf(rules []string) string {
	for _, r := range rules {
		if name, ok := strings.CutPrefix(r, "queue="); ok {
			return name
		}
	}
	return "default"
}

// named adds the step's own name to an error's path.
func (s *Step) named() string {
	switch {
	case s.Key != "":
		return fmt.Sprintf(" (key %q)", s.Key)
	case s.Label != "":
		return fmt.Sprintf(" (%q)", s.Label)
	}
	return ""
}
