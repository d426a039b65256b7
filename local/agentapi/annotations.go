package agentapi

import "github.com/gpu-mode/kbgen/local/engine"

func (a *API) annotate(c *call, body struct {
	Body     string `json:"body"`
	Context  string `json:"context"`
	Style    string `json:"style"`
	Append   bool   `json:"append"`
	Priority int    `json:"priority"`
	Scope    string `json:"scope"`
}) (any, error) {
	if err := buildScope(body.Scope); err != nil {
		return nil, err
	}
	_, err := a.engine.Annotate(c.job.BuildID, engine.Annotation{
		Context: body.Context, Style: body.Style, Body: body.Body, Priority: body.Priority, JobID: c.job.ID,
	}, body.Append || body.Body == "") // without a body only the style changes
	return nil, err
}

func (a *API) removeAnnotation(c *call) (any, error) {
	if err := buildScope(c.URL.Query().Get("scope")); err != nil {
		return nil, err
	}
	return nil, a.engine.RemoveAnnotation(c.job.BuildID, c.PathValue("context"))
}

func buildScope(scope string) error {
	if scope != "" && scope != "build" {
		return unusable("kblocal does not implement annotations of scope %q, want build", scope)
	}
	return nil
}
