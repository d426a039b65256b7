package restapi

import (
	"slices"

	"github.com/gpu-mode/kbgen/local/engine"
)

// listAgents lists connected and stopping agents only, as the service does.
func (c *call) listAgents() error {
	q := c.r.URL.Query()
	differs := func(name, got string) bool { return q.Has(name) && q.Get(name) != got }
	agents := slices.DeleteFunc(c.engine.Agents(), func(a engine.Agent) bool {
		return a.State != engine.AgentConnected && a.State != engine.AgentStopping ||
			differs("name", a.Name) || differs("hostname", a.Hostname) || differs("version", a.Version) ||
			differs("cluster_queue_id", c.view.QueueID(a.Queue))
	})
	return listing(c, agents, c.view.Agent)
}

func (c *call) getAgent() error {
	return ok(c, c.view.Agent)(c.engine.Agent(c.r.PathValue("agent")))
}

// stopAgent cancels the agent's job unless told otherwise, as the service
// does.
func (c *call) stopAgent() error {
	f := c.form()
	force, given := take[bool](f, "force")
	if err := c.check(f); err != nil {
		return err
	}
	return c.noContent(c.engine.StopAgent(c.r.PathValue("agent"), force || !given))
}

// pauseAgent refuses a timeout: the engine ends no pause.
func (c *call) pauseAgent() error {
	f := c.form()
	note, _ := take[string](f, "note")
	if _, given := take[int](f, "timeout_in_minutes"); given {
		return &engine.Error{
			Kind: engine.Invalid, Message: "kblocal does not end pauses by itself: leave timeout_in_minutes out",
			Fields: []engine.FieldError{{Field: "timeout_in_minutes", Code: "not_implemented"}},
		}
	}
	if err := c.check(f); err != nil {
		return err
	}
	return c.noContent(c.engine.SetAgentPaused(c.r.PathValue("agent"), true, note))
}

func (c *call) resumeAgent() error {
	return c.noContent(c.engine.SetAgentPaused(c.r.PathValue("agent"), false, ""))
}
