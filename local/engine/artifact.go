package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/bmatcuk/doublestar/v4"
)

// An ArtifactState is an artifact's state as REST v2 spells it.
type ArtifactState string

const (
	ArtifactNew      ArtifactState = "new"
	ArtifactFinished ArtifactState = "finished"
	ArtifactError    ArtifactState = "error"
	ArtifactDeleted  ArtifactState = "deleted"
)

// An Artifact is one uploaded file. Its bytes lie in a file of
// [Engine.ArtifactFile].
type Artifact struct {
	ID       string // UUID
	JobID    string
	BuildID  string
	Pipeline string
	Number   int // the build's

	NewArtifact
	State     ArtifactState
	CreatedAt time.Time
}

// A NewArtifact announces one file of a batch, as agents do.
type NewArtifact struct {
	Path         string `json:"path"` // relative to the job's working directory, "/"-separated
	AbsolutePath string `json:"absolute_path"`
	ContentType  string `json:"content_type"`
	Size         int64  `json:"file_size"` // bytes
	SHA1         string `json:"sha1sum"`
	SHA256       string `json:"sha256sum"`
}

// An ArtifactQuery is what `buildkite-agent artifact search` asks.
type ArtifactQuery struct {
	Glob           string // over paths, as the agent's globs
	Scope          string // step key, label or job id; empty: the whole build
	State          ArtifactState
	IncludeRetried bool
	Duplicates     bool // all artifacts of a path, not only the newest
}

// AddArtifacts announces files a job is about to upload, in order.
func (e *Engine) AddArtifacts(jobID string, files []NewArtifact) ([]Artifact, error) {
	return query(e, e.findJob, jobID, func(j *job) ([]Artifact, error) {
		out := make([]Artifact, 0, len(files))
		for _, f := range files {
			f.Path = filepath.ToSlash(f.Path)
			a := &Artifact{
				ID: newID(), JobID: j.ID, BuildID: j.BuildID, Pipeline: j.Pipeline, Number: j.Number,
				NewArtifact: f, State: ArtifactNew, CreatedAt: e.now(),
			}
			e.artifacts[a.ID] = a
			e.order = append(e.order, a)
			out = append(out, *a)
		}
		return out, nil
	})
}

// SetArtifactState notes what the agent reports of an upload.
func (e *Engine) SetArtifactState(jobID, id string, state ArtifactState) error {
	return change(e, e.findArtifact, id, func(a *Artifact) error {
		if a.JobID != jobID {
			return Refuse(NotFound, "No artifact found")
		}
		if state != ArtifactFinished && state != ArtifactError {
			return Refuse(Invalid, "Artifact state %q is not known", string(state))
		}
		if a.State != ArtifactNew && a.State != state {
			return Refuse(Invalid, "Artifact is %s already", a.State)
		}
		a.State = state
		if j, ok := e.jobs[jobID]; ok { // an upload with --replace may have dropped it
			e.publish(EventBuildArtifact, j.build, j, nil)
		}
		return nil
	})
}

// DeleteArtifact removes an artifact's bytes; its entry stays, as deleted.
func (e *Engine) DeleteArtifact(id string) error {
	return change(e, e.findArtifact, id, func(a *Artifact) error {
		a.State = ArtifactDeleted
		if err := os.Remove(e.ArtifactFile(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	})
}

// Artifact returns one artifact.
func (e *Engine) Artifact(id string) (Artifact, error) {
	return query(e, e.findArtifact, id, func(a *Artifact) (Artifact, error) {
		return *a, nil
	})
}

func (e *Engine) findArtifact(id string) (*Artifact, error) {
	return lookUp(e.artifacts, id, "No artifact found")
}

// ArtifactFile is the path of the file that holds an artifact's bytes.
func (e *Engine) ArtifactFile(id string) string {
	return filepath.Join(e.opts.Dir, "artifacts", filepath.Base(id))
}

// BuildArtifacts returns a build's artifacts, oldest first; those of
// superseded attempts only on request.
func (e *Engine) BuildArtifacts(buildID string, includeRetried bool) ([]Artifact, error) {
	return query(e, e.findBuildByID, buildID, func(_ *build) ([]Artifact, error) {
		return e.selectArtifacts(func(a *Artifact) bool {
			return a.BuildID == buildID && (includeRetried || !e.superseded(a))
		}), nil
	})
}

// JobArtifacts returns a job's artifacts, oldest first.
func (e *Engine) JobArtifacts(jobID string) ([]Artifact, error) {
	return query(e, e.findJob, jobID, func(_ *job) ([]Artifact, error) {
		return e.selectArtifacts(func(a *Artifact) bool { return a.JobID == jobID }), nil
	})
}

// SearchArtifacts answers the agent's search, newest last.
func (e *Engine) SearchArtifacts(buildID string, q ArtifactQuery) ([]Artifact, error) {
	return query(e, e.findBuildByID, buildID, func(_ *build) ([]Artifact, error) {
		if !doublestar.ValidatePattern(q.Glob) {
			return nil, Refuse(Invalid, "query %q is not a glob", q.Glob)
		}
		found := e.selectArtifacts(func(a *Artifact) bool {
			ok, _ := doublestar.Match(q.Glob, a.Path)
			return a.BuildID == buildID && ok &&
				(q.State == "" || q.State == a.State) &&
				(q.IncludeRetried || !e.superseded(a)) &&
				(q.Scope == "" || e.inScope(a, q.Scope))
		})
		if q.Duplicates {
			return found, nil
		}
		newest := map[string]string{}
		for _, a := range found {
			newest[a.Path] = a.ID
		}
		return slices.DeleteFunc(found, func(a Artifact) bool { return newest[a.Path] != a.ID }), nil
	})
}

func (e *Engine) selectArtifacts(keep func(*Artifact) bool) []Artifact {
	out := []Artifact{}
	for _, a := range e.order {
		if keep(a) {
			out = append(out, *a)
		}
	}
	return out
}

func (e *Engine) superseded(a *Artifact) bool {
	j, ok := e.jobs[a.JobID]
	return ok && j.RetriedIn != ""
}

func (e *Engine) inScope(a *Artifact, scope string) bool {
	j, ok := e.jobs[a.JobID]
	return ok && (j.ID == scope || j.StepKey == scope || j.node.label == scope)
}
