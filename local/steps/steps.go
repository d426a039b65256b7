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
	"time"
)

// A Kind is a kind of step.
type Kind string

const (
	Command Kind = "command"
	Wait    Kind = "wait"
	Group   Kind = "group"
)

// A Document is one uploaded pipeline.
type Document struct {
	Env    map[string]string // acts as if written on each step
	Agents []string          // default query rules, "queue=gpu"
	Steps  []*Step
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
	Skip          *string       // the reason, maybe empty; nil: not skipped
	SoftFail      SoftFail
	Retry         Retry
	Concurrency   *Concurrency
	Checkout      Checkout

	CancelOnBuildFailing bool

	// JSON is the step as it came, for the agent to check its signature.
	JSON json.RawMessage
}

// A Dependency names a step or group by key.
type Dependency struct {
	Key          string
	AllowFailure bool
}

// Concurrency limits how many jobs of a group run at once, over all builds.
type Concurrency struct {
	Group string
	Limit int
	Eager bool // false: strictly in the order of creation
}

// Checkout holds the checkout settings that reach a job's environment.
type Checkout struct {
	Skip       *bool
	Submodules *bool
	LFS        *bool
}

// SoftFail says which exit statuses do not fail a build.
type SoftFail struct {
	All      bool
	Statuses []int
}

// Allows reports whether a job that ended with status fails softly.
func (s SoftFail) Allows(status int) bool {
	if s.All {
		return status != 0
	}
	for _, want := range s.Statuses {
		if want == status {
			return true
		}
	}
	return false
}

// Retry says who may retry a job of the step.
type Retry struct {
	Automatic []RetryRule // the first that matches decides

	ManualDenied   bool
	ManualReason   string
	PermitOnPassed bool
}

// A RetryRule matches ended jobs. Empty lists match everything but success.
type RetryRule struct {
	AnyStatus     bool // exit_status "*": 1 to 255, not -1
	Statuses      []int
	Signals       []string // without "SIG", upper case; "*" is any
	SignalReasons []string // "none" is no reason, "*" any
	Limit         int      // 0 to 10
}

// Matches reports whether the rule covers a job that ended like this. signal
// may carry "SIG" or not.
func (r RetryRule) Matches(status int, signal, signalReason string) bool {
	switch {
	case r.AnyStatus:
		if status < 1 || status > 255 {
			return false
		}
	case len(r.Statuses) > 0:
		found := false
		for _, s := range r.Statuses {
			found = found || s == status
		}
		if !found {
			return false
		}
	}
	return status != 0 &&
		matchWord(r.Signals, trimSignal(signal), "NONE") &&
		matchWord(r.SignalReasons, signalReason, "none")
}

// matchWord reports whether got is among want, of which none is stated when it
// is empty. "*" stands for any word, absent for there being none.
func matchWord(want []string, got, absent string) bool {
	if len(want) == 0 {
		return true
	}
	for _, w := range want {
		if got != "" && (w == got || w == "*") || got == "" && w == absent {
			return true
		}
	}
	return false
}

// Walk calls fn for every step, those in groups behind their group.
func (d *Document) Walk(fn func(s *Step)) {
	for _, s := range d.Steps {
		fn(s)
		for _, inner := range s.Steps {
			fn(inner)
		}
	}
}

// Jobs counts the jobs of the document as the upload limit does.
func (d *Document) Jobs() int {
	n := 0
	d.Walk(func(s *Step) { n += max(1, s.Parallelism) })
	return n
}
