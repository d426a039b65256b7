package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/schema/glob"
)

// A BuildState is a build's state as REST v2 spells it.
type BuildState string

const (
	BuildScheduled BuildState = "scheduled" // nothing started yet
	BuildRunning   BuildState = "running"
	BuildFailing   BuildState = "failing" // a job failed, others still run
	BuildPassed    BuildState = "passed"
	BuildFailed    BuildState = "failed"
	BuildCanceling BuildState = "canceling"
	BuildCanceled  BuildState = "canceled"
	BuildNotRun    BuildState = "not_run" // every step was skipped or filtered out
)

// Terminal reports whether the build has ended. A retried job reopens it.
func (s BuildState) Terminal() bool {
	return slices.Contains([]BuildState{BuildPassed, BuildFailed, BuildCanceled, BuildNotRun}, s)
}

// A Person is an author or creator.
type Person struct {
	ID       string
	Name     string
	Email    string
	Username string
}

// A Build is one run of a pipeline. Builds handed out by [Engine] are copies;
// their maps must not be written to.
type Build struct {
	ID       string // UUID
	Number   int    // grows per pipeline, from 1
	Pipeline string // slug

	// NewBuild is what the build was created with. Commit, Branch and Source have
	// their defaults; MetaData grows.
	NewBuild

	State                BuildState
	RebuiltFrom          *BuildRef
	TriggeredFrom        *Trigger     // the build whose trigger step started this one; nil: none
	Blocked              bool         // waits for a person; State is what its block step makes of it
	Notify               []string     // what would be sent, and is only recorded
	Annotations          []Annotation // oldest first
	CreatedAt, StartedAt time.Time    // zero: not yet
	ScheduledAt          time.Time
	FailingAt            time.Time
	FinishedAt           time.Time

	// Jobs holds every job, waiters and superseded attempts too, in the order
	// of their steps.
	Jobs []Job
}

// A BuildRef points at another build.
type BuildRef struct {
	ID     string
	Number int
}

// NewBuild is what a build is created with.
type NewBuild struct {
	Message        string
	Commit, Branch string // "HEAD" and the pipeline's default branch when empty
	Source         string // "api" when empty
	Author         Person
	Creator        Person
	Env            map[string]string
	MetaData       map[string]string

	CleanCheckout       bool
	IgnoreBranchFilters bool // ignore_pipeline_branch_filters
	PullRequestID       int
	PullRequestBase     string
	PullRequestRepo     string
	PullRequestLabels   []string

	// Select names steps by key or label; of what is uploaded, all others are
	// skipped. Empty: all run.
	Select []string
	// OnHost runs steps that ask for the docker plugin without it.
	OnHost bool

	rebuiltFrom   *BuildRef
	triggeredFrom *job
}

// A BuildFilter narrows [Engine.Builds]; zero fields do not.
type BuildFilter struct {
	Pipeline     string // slug; empty: all
	States       []BuildState
	Blocked      bool     // builds that wait for a person, besides those of States
	Branches     []string // "*" matches any run of characters
	Commits      []string
	Creator      string // user id
	CreatedFrom  time.Time
	CreatedTo    time.Time // exclusive
	FinishedFrom time.Time
	MetaData     map[string]string // all of them, exactly
}

// build is a build under the engine's lock.
type build struct {
	Build // Jobs is empty here, see ordered

	pipeline *pipeline
	nodes    []*node          // steps in order, those of groups in their group
	keys     map[string]*node // every step key of the build
	jobs     []*job           // in creation order
	uploads  map[string]error // by job and uuid, so that a repeated upload is applied once

	cause     *job   // of the trigger step that waits for this build; nil: none does
	family    *int   // how many builds came of the first one, shared by all of them
	depth     int    // how many builds triggered each other before this one
	commit    string // resolved by the first checkout, from its meta-data
	canceling bool
	changed   chan struct{} // closed at the next change of state
}

// snapshot copies the build and its jobs.
func (b *build) snapshot() Build {
	out := b.Build
	out.MetaData = maps.Clone(b.MetaData)
	out.Annotations = slices.Clone(b.Annotations)
	jobs := b.ordered()
	out.Jobs = make([]Job, len(jobs))
	for i, j := range jobs {
		out.Jobs[i] = j.snapshot()
	}
	return out
}

// ordered returns the build's jobs in the order of their steps.
func (b *build) ordered() []*job {
	out := make([]*job, 0, len(b.jobs))
	for _, n := range withChildren(b.nodes) {
		out = append(out, n.jobs...)
	}
	return out
}

// Build returns one build by its number.
func (e *Engine) Build(slug string, number int) (Build, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range slices.Backward(e.builds) {
		if b.Pipeline == slug && b.Number == number {
			return b.snapshot(), nil
		}
	}
	return Build{}, Refuse(NotFound, "No build found")
}

// BuildByID returns one build by its UUID.
func (e *Engine) BuildByID(id string) (Build, error) {
	return query(e, e.findBuildByID, id, func(b *build) (Build, error) {
		return b.snapshot(), nil
	})
}

func (e *Engine) findBuildByID(id string) (*build, error) {
	return lookUp(e.byID, id, "No build found")
}

// Builds returns the builds that pass the filter, newest first.
func (e *Engine) Builds(f BuildFilter) []Build {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []Build
	for _, b := range slices.Backward(e.builds) {
		if f.matches(&b.Build) {
			out = append(out, b.snapshot())
		}
	}
	return out
}

func (f *BuildFilter) matches(b *Build) bool {
	if f.Pipeline != "" && f.Pipeline != b.Pipeline ||
		(len(f.States) > 0 || f.Blocked) && !slices.Contains(f.States, b.State) && !(f.Blocked && b.Blocked) ||
		len(f.Branches) > 0 && !slices.ContainsFunc(f.Branches, func(p string) bool { return glob.Match(p, b.Branch) }) ||
		len(f.Commits) > 0 && !slices.Contains(f.Commits, b.Commit) ||
		f.Creator != "" && f.Creator != b.Creator.ID ||
		!f.CreatedFrom.IsZero() && b.CreatedAt.Before(f.CreatedFrom) ||
		!f.CreatedTo.IsZero() && !b.CreatedAt.Before(f.CreatedTo) ||
		!f.FinishedFrom.IsZero() && (b.FinishedAt.IsZero() || b.FinishedAt.Before(f.FinishedFrom)) {
		return false
	}
	for key, value := range f.MetaData {
		if got, ok := b.MetaData[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// Over reports whether nothing will happen in the build by itself.
func (b *Build) Over() bool { return b.State.Terminal() && !b.Blocked }

// Wait waits until the build has ended or waits for a person; its only errors are an unknown id and
// ctx's.
func (e *Engine) Wait(ctx context.Context, buildID string) (Build, error) {
	for {
		e.mu.Lock()
		b, ok := e.byID[buildID]
		if !ok {
			e.mu.Unlock()
			return Build{}, Refuse(NotFound, "No build found")
		}
		if b.State.Terminal() || b.Blocked {
			defer e.mu.Unlock()
			return b.snapshot(), nil
		}
		changed := b.changed
		e.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return Build{}, ctx.Err()
		}
	}
}

// wake ends the wait of all who wait in [Engine.Wait] for a change of the build.
func (b *build) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}
