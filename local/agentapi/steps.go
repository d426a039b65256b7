package agentapi

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/gpu-mode/kbgen/local/engine"
)

// exportStep answers `buildkite-agent step get`: one attribute, or the whole
// step. Format is "" for text or "json".
func (a *API) exportStep(c *call, body struct {
	Attribute string `json:"attribute"`
	Build     string `json:"build_id"`
	Format    string `json:"format"`
}) (any, error) {
	switch {
	case body.Format != "" && body.Format != "json":
		return nil, unusable("format: got %q, want json", body.Format)
	case body.Format == "" && (body.Attribute == "" || body.Attribute == "agents"):
		return nil, unusable("this is more than one value, want --format json")
	}
	if err := ownBuild(c, body.Build); err != nil {
		return nil, err
	}
	all, err := a.engine.StepAttributes(c.job.BuildID, c.PathValue("step"))
	if err != nil {
		return nil, err
	}
	value, known := all[body.Attribute]
	switch {
	case body.Attribute == "":
		value = all
	case !known:
		return nil, unusable("step attribute %q is not supported by kblocal, want agents, command, id, key, label, outcome, priority, state or type", body.Attribute)
	case body.Format == "" && value == nil:
		return map[string]string{"output": ""}, nil
	case body.Format == "":
		return map[string]string{"output": fmt.Sprint(value)}, nil
	}
	data, err := json.Marshal(value)
	return map[string]string{"output": string(data)}, err
}

// updateStep answers `buildkite-agent step update`; one repeated with its id
// is done once.
func (a *API) updateStep(c *call, body struct {
	IdempotencyUUID string `json:"idempotency_uuid"`
	Build           string `json:"build_id"`
	Attribute       string `json:"attribute"`
	Value           string `json:"value"`
	Append          bool   `json:"append"`
}) (any, error) {
	if err := ownBuild(c, body.Build); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, done := a.updates[body.IdempotencyUUID]; done {
		return nil, nil
	}
	if err := a.engine.UpdateStep(c.job.BuildID, c.PathValue("step"), body.Attribute, body.Value, body.Append); err != nil {
		return nil, err
	}
	if body.IdempotencyUUID != "" {
		a.updates[body.IdempotencyUUID] = struct{}{}
	}
	return nil, nil
}

func (a *API) cancelStep(c *call, body struct {
	Build string `json:"build_id"`
	Force bool   `json:"force"`
}) (any, error) {
	if body.Force {
		return nil, unusable("kblocal does not implement step cancel --force")
	}
	if err := ownBuild(c, body.Build); err != nil {
		return nil, err
	}
	id, err := a.engine.CancelStep(c.job.BuildID, c.PathValue("step"))
	return map[string]string{"uuid": id}, err
}

func (a *API) cancelBuild(c *call) (any, error) {
	b, err := a.engine.CancelBuild(c.job.BuildID)
	return map[string]string{"uuid": b.ID}, err
}

// ownBuild checks the build a body names; none is the job's own.
func ownBuild(c *call, build string) error {
	if build != "" && build != c.job.BuildID {
		return engine.Refuse(http.StatusForbidden, "the token belongs to a job of another build")
	}
	return nil
}
