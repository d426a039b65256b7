package agentapi

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// stepAttributes are what `buildkite-agent step get` can ask for.
var stepAttributes = []string{"agents", "command", "id", "key", "label", "outcome", "priority", "state", "type"}

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
	output, err := a.stepText(c, body.Attribute, body.Format)
	if err != nil {
		return nil, err
	}
	return map[string]string{"output": output}, nil
}

func (a *API) stepText(c *call, attribute, format string) (string, error) {
	if format == "" {
		return a.engine.StepAttribute(c.job.BuildID, c.PathValue("step"), attribute)
	}
	names := stepAttributes
	if attribute != "" {
		names = []string{attribute}
	}
	all := map[string]any{}
	for _, name := range names {
		text, err := a.engine.StepAttribute(c.job.BuildID, c.PathValue("step"), name)
		if err != nil {
			return "", err
		}
		all[name] = stepValue(name, text)
	}
	var out any = all
	if attribute != "" {
		out = all[attribute]
	}
	data, err := json.Marshal(out)
	return string(data), err
}

// stepValue gives an attribute its JSON type.
func stepValue(name, text string) any {
	switch name {
	case "agents":
		return slices.DeleteFunc(strings.Split(text, "\n"), func(s string) bool { return s == "" })
	case "priority":
		if n, err := strconv.Atoi(text); err == nil {
			return n
		}
	case "key", "label":
		if text == "" {
			return nil
		}
	}
	return text
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
		return forbidden("the token belongs to a job of another build")
	}
	return nil
}
