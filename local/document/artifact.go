package document

import (
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
