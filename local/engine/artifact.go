package engine

import "time"

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

	Path         string // relative to the job's working directory, "/"-separated
	AbsolutePath string
	ContentType  string
	Size         int64 // as announced by the agent, bytes
	SHA1         string
	SHA256       string
	Destination  string // upload_destination
	State        ArtifactState
	CreatedAt    time.Time
}

// A NewArtifact announces one file of a batch.
type NewArtifact struct {
	Path         string
	AbsolutePath string
	ContentType  string
	Size         int64
	SHA1         string
	SHA256       string
}

// An ArtifactQuery is what `buildkite-agent artifact search` asks.
type ArtifactQuery struct {
	Glob           string // over paths, as the agent's globs
	Scope          string // step key, label or job id; empty: the whole build
	State          ArtifactState
	IncludeRetried bool
	Duplicates     bool // all artifacts of a path, not only the newest
}

// An Annotation is a note on a build.
type Annotation struct {
	ID        string
	Context   string // one annotation per context
	Style     string // "info", "success", "warning", "error"; empty is allowed
	Body      string // Markdown and HTML, untrusted, at most 1 MiB
	Priority  int    // 1-10, default 3
	JobID     string // who wrote it last; empty: REST
	CreatedAt time.Time
	UpdatedAt time.Time
}
