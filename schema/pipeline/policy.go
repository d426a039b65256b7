package pipeline

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema/text"
)

// policy checks what every good command step has, whatever it runs.
func (c *checker) policy(d *document, s *step) {
	if !c.queued(d, s) {
		c.report("KB201", s.node, s.path, "no queue, want agents with queue")
	}
	if child(s.node, "timeout_in_minutes") == nil && child(s.node, "timeout") == nil {
		c.report("KB202", s.node, s.path, "no timeout_in_minutes")
	}
	if image := inherited(d, s, "image"); image != nil {
		c.image(image, s.path+".image")
	}
	entries(child(s.node, "env"), func(key, _ *yaml.Node) { c.agentVariable(key, s.path+".env") })
}

// queued reports whether a step names its queue, in any form of agents.
func (c *checker) queued(d *document, s *step) bool {
	agents := inherited(d, s, "agents")
	if agents == nil {
		agents = child(s.node, "agent_query_rules")
	}
	if agents == nil {
		return false
	}
	if agents.Kind == yaml.MappingNode {
		return child(agents, "queue") != nil
	}
	return slices.ContainsFunc(items(agents), func(rule *yaml.Node) bool {
		return strings.Contains(rule.Value, "queue") || isVariable(rule.Value)
	})
}

// agentVariable reports variables that change what the agent does.
func (c *checker) agentVariable(key *yaml.Node, path string) {
	name := key.Value
	switch {
	case strings.HasPrefix(name, "BUILDKITE_"), strings.HasPrefix(name, "LD_"),
		name == "BASH_ENV", name == "ENV", name == "PATH":
		c.report("KB212", key, path, "sets %s for the job, which changes what the agent does", name)
	}
}

// image checks that an image is named by digest or by a tag that stays.
func (c *checker) image(n *yaml.Node, path string) {
	image := scalarText(n)
	if image == "" || isVariable(image) || strings.Contains(image, "@sha256:") {
		return
	}
	switch tag := imageTag().FindStringSubmatch(image); {
	case tag == nil:
		c.report("KB204", n, path, "got %s without a tag, want a digest or a tag", quote(image))
	case tag[1] == "latest":
		c.report("KB204", n, path, "got %s, want a digest or a tag other than latest", quote(image))
	}
}

// imageTag finds the tag of an image reference.
var imageTag = text.Pattern(`:([A-Za-z0-9_][A-Za-z0-9_.-]*)$`)
