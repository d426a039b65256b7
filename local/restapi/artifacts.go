package restapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema/glob"
)

// buildArtifacts lists those of superseded attempts too: whether the service
// does is not documented, and clients must cope.
func (c *call) buildArtifacts(b engine.Build) error {
	return c.listArtifacts(c.engine.BuildArtifacts(b.ID, true))
}

func (c *call) jobArtifacts(j engine.Job) error {
	return c.listArtifacts(c.engine.JobArtifacts(j.ID))
}

var artifactStates = []string{"new", "error", "finished", "deleted", "expired"}

// listArtifacts applies the filters: state, and path, where "*" stands for any
// run of characters.
func (c *call) listArtifacts(all []engine.Artifact, err error) error {
	if err != nil {
		return err
	}
	q := c.r.URL.Query()
	state, pattern := q.Get("state"), q.Get("path")
	if state != "" && !slices.Contains(artifactStates, state) {
		return engine.Refuse(engine.Invalid, "state %q is not known, want %s", state, strings.Join(artifactStates, ", "))
	}
	all = slices.DeleteFunc(all, func(a engine.Artifact) bool {
		return state != "" && state != string(a.State) || pattern != "" && !glob.Match(pattern, a.Path)
	})
	return listing(c, all, c.view.Artifact)
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
		return engine.Artifact{}, engine.Refuse(engine.NotFound, "No artifact found")
	}
	return a, nil
}

func (c *call) getArtifact(a engine.Artifact) error {
	return c.ok(c.view.Artifact(a))
}

// downloadArtifact sends the client on to where the bytes are. The link there
// must be fetched without the token.
func (c *call) downloadArtifact() error {
	a, err := c.artifact()
	switch {
	case err != nil:
		return err
	case a.State != engine.ArtifactFinished:
		return engine.Refuse(engine.NotFound, "The artifact is %s and has no content", a.State)
	case c.opts.Blob == nil:
		return engine.Refuse(engine.Invalid, "this kblocal serves no artifact contents")
	}
	url := c.opts.Blob(c.r.Host).DownloadURL(a.ID)
	c.w.Header().Set("Location", url)
	c.answer(http.StatusFound, map[string]string{"url": url})
	return nil
}

func (c *call) deleteArtifact(a engine.Artifact) error {
	return c.noContent(c.engine.DeleteArtifact(a.ID))
}
