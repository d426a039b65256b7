package document

import (
	"html"
	"path"

	"github.com/gpu-mode/kbgen/local/engine"
)

// An Artifact is an artifact as JSON.
type Artifact struct {
	ID           string  `json:"id"`
	JobID        string  `json:"job_id"`
	URL          string  `json:"url"`
	DownloadURL  string  `json:"download_url"` // on the API's own host
	State        string  `json:"state"`
	Path         string  `json:"path"`
	Dirname      string  `json:"dirname"`
	Filename     string  `json:"filename"`
	MimeType     string  `json:"mime_type"`
	FileSize     int64   `json:"file_size"`
	GlobPath     *string `json:"glob_path"`     // always null
	OriginalPath *string `json:"original_path"` // always null
	SHA1         string  `json:"sha1sum"`
}

// Artifact shows an artifact.
func (v *View) Artifact(a engine.Artifact) Artifact {
	url := v.buildURL(a.Pipeline, a.Number) + "/jobs/" + a.JobID + "/artifacts/" + a.ID
	return Artifact{
		ID: a.ID, JobID: a.JobID, URL: url, DownloadURL: url + "/download", State: string(a.State),
		Path: a.Path, Dirname: path.Dir(a.Path), Filename: path.Base(a.Path),
		MimeType: a.ContentType, FileSize: a.Size, SHA1: a.SHA1,
	}
}

// An Annotation is an annotation as JSON.
type Annotation struct {
	ID        string    `json:"id"`
	Context   string    `json:"context"`
	Style     *string   `json:"style"`
	Scope     string    `json:"scope"` // "build" always
	Priority  int       `json:"priority"`
	BodyHTML  string    `json:"body_html"` // the body escaped: the stand-in renders no Markdown here
	CreatedAt Timestamp `json:"created_at"`
	UpdatedAt Timestamp `json:"updated_at"`
}

// Annotation shows an annotation.
func (v *View) Annotation(a engine.Annotation) Annotation {
	return Annotation{
		ID: a.ID, Context: a.Context, Style: orNull(a.Style), Scope: "build", Priority: a.Priority,
		BodyHTML:  "<p>" + html.EscapeString(a.Body) + "</p>\n",
		CreatedAt: v.Time(a.CreatedAt), UpdatedAt: v.Time(a.UpdatedAt),
	}
}
