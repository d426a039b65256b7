package agentapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/gpu-mode/kbgen/local/engine"
)

// uploadPipeline adds a document's steps. It is done when it answers 200; any
// 202 would cost the agent a second.
func (a *API) uploadPipeline(c *call) (any, error) {
	data, err := c.read()
	if err != nil {
		return nil, err
	}
	var body struct {
		UUID     string          `json:"uuid"`
		Pipeline json.RawMessage `json:"pipeline"`
		Replace  bool            `json:"replace"`
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil {
		return nil, unusable("pipeline upload: %v", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, unusable("pipeline upload: got more than one JSON value")
	}
	switch {
	case body.UUID == "":
		return nil, unusable("pipeline upload: uuid is missing")
	case len(body.Pipeline) == 0 || string(body.Pipeline) == "null":
		return nil, unusable("pipeline upload: pipeline is missing")
	}
	err = a.engine.Upload(c.job.ID, body.UUID, body.Pipeline, body.Replace)
	a.mu.Lock()
	a.uploads[c.job.ID+"/"+body.UUID] = err
	a.mu.Unlock()
	return nil, err
}

// uploadStatus is for agents that were told to come back.
func (a *API) uploadStatus(c *call) (any, error) {
	a.mu.Lock()
	err, known := a.uploads[c.job.ID+"/"+c.PathValue("uuid")]
	a.mu.Unlock()
	refused, ok := errors.AsType[*engine.Error](err)
	switch {
	case !known: // after a 404 the agent would ask again for minutes
		return nil, unusable("this job has had no upload %q", c.PathValue("uuid"))
	case err == nil:
		return map[string]string{"state": "applied"}, nil
	case ok:
		return map[string]string{"state": "rejected", "message": refused.Message}, nil
	}
	return map[string]string{"state": "failed", "message": "kblocal could not apply the upload"}, nil
}
