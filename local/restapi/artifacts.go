package restapi

import (
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/glob"
)

// An Artifact is an artifact's JSON shape.
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

// Artifact is the shape of an artifact.
func (s *Shapes) Artifact(a engine.Artifact) Artifact {
	url := s.buildURL(a.Pipeline, a.Number) + "/jobs/" + a.JobID + "/artifacts/" + a.ID
	return Artifact{
		ID: a.ID, JobID: a.JobID, URL: url, DownloadURL: url + "/download", State: string(a.State),
		Path: a.Path, Dirname: path.Dir(a.Path), Filename: path.Base(a.Path),
		MimeType: a.ContentType, FileSize: a.Size, SHA1: a.SHA1,
	}
}

// buildArtifacts lists those of superseded attempts too: whether the service
// does is not documented, and clients must cope.
func (c *call) buildArtifacts() error {
	b, err := c.build()
	if err != nil {
		return err
	}
	all, err := c.engine.BuildArtifacts(b.ID, true)
	if err != nil {
		return err
	}
	return c.listArtifacts(all)
}

func (c *call) jobArtifacts() error {
	j, err := c.job()
	if err != nil {
		return err
	}
	all, err := c.engine.JobArtifacts(j.ID)
	if err != nil {
		return err
	}
	return c.listArtifacts(all)
}

var artifactStates = []string{"new", "error", "finished", "deleted", "expired"}

// listArtifacts applies the filters: state, and path, where "*" stands for any
// run of characters.
func (c *call) listArtifacts(all []engine.Artifact) error {
	q := c.r.URL.Query()
	state, pattern := q.Get("state"), q.Get("path")
	if state != "" && !slices.Contains(artifactStates, state) {
		return invalid("state " + strconv.Quote(state) + " is not known, want " + strings.Join(artifactStates, ", "))
	}
	all = slices.DeleteFunc(all, func(a engine.Artifact) bool {
		return state != "" && state != string(a.State) || pattern != "" && !glob.Match(pattern, a.Path)
	})
	shown, err := page(c, all)
	if err != nil {
		return err
	}
	return c.ok(render(shown, c.shapes.Artifact))
}

// artifact returns the artifact that the path names, which must be the job's.
func (c *call) artifact() (engine.Artifact, error) {
	j, err := c.job()
	if err != nil {
		return engine.Artifact{}, err
	}
	a, err := c.engine.Artifact(c.r.PathValue("artifact"))
	if err != nil {
		return engine.Artifact{}, err
	}
	if a.JobID != j.ID {
		return engine.Artifact{}, notFound("No artifact found")
	}
	return a, nil
}

func (c *call) getArtifact() error {
	a, err := c.artifact()
	if err != nil {
		return err
	}
	return c.ok(c.shapes.Artifact(a))
}

// downloadArtifact sends the client on to where the bytes are. The link there
// must be fetched without the token.
func (c *call) downloadArtifact() error {
	a, err := c.artifact()
	switch {
	case err != nil:
		return err
	case a.State != engine.ArtifactFinished:
		return notFound("The artifact is " + string(a.State) + " and has no content")
	case c.opts.Blob == nil:
		return invalid("this kblocal serves no artifact contents")
	}
	url := c.opts.Blob.DownloadURL(a.ID)
	c.w.Header().Set("Location", url)
	c.answer(http.StatusFound, map[string]string{"url": url})
	return nil
}

func (c *call) deleteArtifact() error {
	a, err := c.artifact()
	if err != nil {
		return err
	}
	if err := c.engine.DeleteArtifact(a.ID); err != nil {
		return err
	}
	return c.noContent()
}
