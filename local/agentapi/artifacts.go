package agentapi

import (
	"net/url"
	"os"
	"time"

	"github.com/gpu-mode/kbgen/local/blob"
	"github.com/gpu-mode/kbgen/local/engine"
)

// maxBatch is how many files an agent announces at once, maxFile the size it
// uploads at most, bytes.
const (
	maxBatch = 30
	maxFile  = 5 << 30
)

type artifactReply struct {
	ID           string                  `json:"id"`
	ArtifactIDs  []string                `json:"artifact_ids"` // in the order of the request
	Instructions map[string]instructions `json:"per_artifact_instructions"`
}

// instructions tell the agent how to upload: Action is a form whose last field is
// the file.
type instructions struct {
	Data   map[string]string `json:"data"`
	Action action            `json:"action"`
}

type action struct {
	URL       string `json:"url"`
	Path      string `json:"path"` // replaces that of URL
	Method    string `json:"method"`
	FileInput string `json:"file_input"`
}

// createArtifacts announces a batch. A batch repeated with its id is answered
// as the first time.
func (a *API) createArtifacts(c *call, body struct {
	ID                string               `json:"id"`
	UploadDestination string               `json:"upload_destination"`
	Artifacts         []engine.NewArtifact `json:"artifacts"`
}) (any, error) {
	if n := len(body.Artifacts); n < 1 || n > maxBatch {
		return nil, unusable("artifacts: got %d, want 1 to %d in a batch", n, maxBatch)
	}
	if body.UploadDestination != "" {
		return nil, unusable("kblocal does not implement upload destinations, it stores artifacts itself")
	}
	for i, f := range body.Artifacts {
		if f.Path == "" || f.Size < 0 || f.Size > maxFile {
			return nil, unusable("artifacts[%d]: got path %q and %d bytes, want a path and 0 to %d bytes", i, f.Path, f.Size, int64(maxFile))
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	batch := c.job.ID + "/" + body.ID
	if before, ok := a.batches[batch]; ok && body.ID != "" {
		return before, nil
	}
	created, err := a.engine.AddArtifacts(c.job.ID, body.Artifacts)
	if err != nil {
		return nil, err
	}
	reply := artifactReply{ID: body.ID, Instructions: map[string]instructions{}}
	for _, artifact := range created {
		reply.ArtifactIDs = append(reply.ArtifactIDs, artifact.ID)
		target, err := url.Parse(a.opts.Links(c.Host).UploadForm(artifact.ID))
		if err != nil {
			return nil, err
		}
		reply.Instructions[artifact.ID] = instructions{
			Data:   map[string]string{"artifact": artifact.ID},
			Action: action{URL: target.Scheme + "://" + target.Host, Path: target.Path, Method: "POST", FileInput: blob.FileField},
		}
	}
	a.batches[batch] = reply
	return reply, nil
}

// updateArtifacts takes an agent's report on its uploads. It refuses that a file
// has been uploaded whose bytes never came.
func (a *API) updateArtifacts(c *call, body struct {
	Artifacts []struct {
		ID    string `json:"id"`
		State string `json:"state"`
	} `json:"artifacts"`
}) (any, error) {
	for _, artifact := range body.Artifacts {
		state := engine.ArtifactState(artifact.State)
		if state == engine.ArtifactFinished {
			if _, err := os.Stat(a.engine.ArtifactFile(artifact.ID)); err != nil {
				return nil, unusable("artifact %s: its bytes have not been uploaded", artifact.ID)
			}
		}
		if err := a.engine.SetArtifactState(c.job.ID, artifact.ID, state); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

type foundArtifact struct {
	ID          string    `json:"id"`
	Path        string    `json:"path"`
	FileSize    int64     `json:"file_size"`
	SHA1        string    `json:"sha1sum"`
	SHA256      string    `json:"sha256sum"`
	JobID       string    `json:"job_id"`
	CreatedAt   time.Time `json:"created_at"`
	URL         string    `json:"url"`
	Destination string    `json:"upload_destination"` // always empty
}

func (a *API) searchArtifacts(c *call) (any, error) {
	query := c.URL.Query()
	found, err := a.engine.SearchArtifacts(c.job.BuildID, engine.ArtifactQuery{
		Glob: query.Get("query"), Scope: query.Get("scope"), State: engine.ArtifactState(query.Get("state")),
		IncludeRetried: query.Get("include_retried_jobs") == "true",
		Duplicates:     query.Get("include_duplicates") == "true",
	})
	if err != nil {
		return nil, err
	}
	out, links := make([]foundArtifact, len(found)), a.opts.Links(c.Host)
	for i, f := range found {
		out[i] = foundArtifact{
			ID: f.ID, Path: f.Path, FileSize: f.Size, SHA1: f.SHA1, SHA256: f.SHA256, JobID: f.JobID,
			CreatedAt: f.CreatedAt, URL: links.DownloadURL(f.ID),
		}
	}
	return out, nil
}
