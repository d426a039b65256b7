package pipeline

import (
	"slices"

	"gopkg.in/yaml.v3"
)

// The agent's own parser, buildkite/go-pipeline, is not linked into kbgen: with
// it every start would cost half as much again. What it makes of a document
// that has passed the format is known instead: this file holds the few forms
// that Buildkite documents and the parser does not take. The test
// TestAgreesWithAgentParser holds both against each other, in both directions.
//
// Above the steps the parser refuses such a form, and the upload fails (KB801).
// Within a step it warns and takes the step for one of an unknown type, which
// fails an upload with --reject-parse-warnings (KB802).

// agent reports what the agent's parser would stumble over in a document. What
// the format has said already is not said again.
func (c *checker) agent(d *document) {
	p := agentParser{c: c, rule: "KB801", says: "refuses it"}
	p.tagged(d.root, d.path)
	p.secrets(d.root, d.path)
	p.checkout(d.root, d.path)
	p.times(child(d.root, "env"), join(d.path, "env"))
	p.rule, p.says = "KB802", "warns"
	for _, s := range d.steps {
		switch s.kind {
		case "command":
			p.command(s)
		case "group":
			p.firstTimes(s, "key", "id", "identifier")
			p.firstTimes(s, "group", "label", "name")
		}
	}
}

// formatFaults reports whether the format has found something that the agent's
// parser would stumble over as well.
func (c *checker) formatFaults() bool {
	for _, f := range c.findings {
		if f.Rule[:3] == "KB0" && f.Severity >= Warning {
			return true
		}
	}
	return false
}

// An agentParser reports by one rule what the agent's parser does not take.
type agentParser struct {
	c          *checker
	rule, says string
}

func (p *agentParser) report(n *yaml.Node, path, got, want string) {
	p.c.report(p.rule, n, path, "got %s, want %s: the agent's parser %s", got, want, p.says)
}

// command looks at what the parser gives a type in a command step.
func (p *agentParser) command(s *step) {
	p.secrets(s.node, s.path)
	p.checkout(s.node, s.path)
	if plugins := child(s.node, "plugins"); plugins != nil && plugins.Kind == yaml.ScalarNode && !isNull(plugins) {
		p.report(plugins, join(s.path, "plugins"), "text", "a list or a mapping")
	}
	p.firstTimes(s, "key", "id", "identifier")
	p.firstTimes(s, "label", "name")
	p.firstTimes(s, "commands", "command")
	p.firstTimes(s, "env")
	p.firstTimes(s, "cache")
	if cache := child(s.node, "cache"); cache != nil && cache.Kind == yaml.ScalarNode && (cache.ShortTag() == "!!float" || cache.ShortTag() == "!!int") {
		p.report(cache, join(s.path, "cache"), kindName(cache), "a path, a list, a mapping or false")
	}
	matrix := child(s.node, "matrix")
	if matrix == nil || matrix.Kind != yaml.MappingNode {
		p.times(matrix, join(s.path, "matrix"))
		return
	}
	p.times(child(matrix, "setup"), join(join(s.path, "matrix"), "setup"))
	adjustments := child(matrix, "adjustments")
	if adjustments == nil || adjustments.Kind != yaml.SequenceNode {
		return
	}
	for i, a := range adjustments.Content {
		path := join(index(join(join(s.path, "matrix"), "adjustments"), i), "with")
		with := child(a, "with")
		switch {
		case with == nil || isNull(with):
		case with.Kind == yaml.MappingNode:
			entries(with, func(key, value *yaml.Node) { p.element(value, join(path, key.Value)) })
		default:
			p.element(with, path)
		}
	}
}

// element wants what the parser takes for one value of a matrix.
func (p *agentParser) element(n *yaml.Node, path string) {
	if n.Kind != yaml.ScalarNode || !slices.Contains([]string{"!!str", "!!binary", "!!bool", "!!int"}, n.ShortTag()) {
		p.report(n, path, kindName(n), "text, a whole number, true or false")
	}
}

// tagged finds values that are not what their tag says.
func (p *agentParser) tagged(n *yaml.Node, path string) {
	switch n.Kind {
	case yaml.ScalarNode:
		var v any
		if n.Style&yaml.TaggedStyle != 0 && n.Decode(&v) != nil {
			p.report(n, path, "what "+n.Tag+" cannot be", "it without the tag")
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			p.tagged(item, index(path, i))
		}
	case yaml.MappingNode:
		entries(n, func(key, value *yaml.Node) {
			if key.Kind != yaml.ScalarNode || isNull(key) {
				p.report(key, path, "the key "+kindName(key), "text")
				return
			}
			p.tagged(key, path)
			p.tagged(value, join(path, key.Value))
		})
	}
}

// firstTimes looks for dates in the first of several keys that a step has: the
// parser gives the others no type.
func (p *agentParser) firstTimes(s *step, keys ...string) {
	for _, key := range keys {
		if n := child(s.node, key); n != nil {
			p.times(n, join(s.path, key))
			return
		}
	}
}

// times finds dates: text to Buildkite, and no text to the parser.
func (p *agentParser) times(n *yaml.Node, path string) {
	switch {
	case n == nil:
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!timestamp":
		p.report(n, path, "a date", "it in quotes, as text")
	case n.Kind == yaml.SequenceNode:
		for i, item := range n.Content {
			p.times(item, index(path, i))
		}
	case n.Kind == yaml.MappingNode:
		entries(n, func(key, value *yaml.Node) { p.times(value, join(path, key.Value)) })
	}
}

// secrets looks at what is called secrets in n.
func (p *agentParser) secrets(n *yaml.Node, path string) {
	n, path = child(n, "secrets"), join(path, "secrets")
	switch {
	case n == nil:
	case isNull(n):
		p.report(n, path, "nothing", "a list, a mapping, or no key")
	case n.Kind == yaml.MappingNode:
		entries(n, func(key, value *yaml.Node) {
			if !isWord(value) {
				p.report(value, join(path, key.Value), kindName(value), "the name of a secret as text")
			}
		})
	case n.Kind == yaml.SequenceNode:
		for i, item := range n.Content {
			if item.Kind != yaml.MappingNode {
				continue
			}
			if key := child(item, "key"); key == nil || !isWord(key) {
				p.report(item, join(index(path, i), "key"), "none", "the name of a secret as text")
			}
			if v := child(item, "environment_variable"); v != nil && !isNull(v) && v.ShortTag() != "!!str" && v.ShortTag() != "!!binary" {
				p.report(v, join(index(path, i), "environment_variable"), kindName(v), "the name of a variable as text")
			}
		}
	}
}

// checkout finds what may be a variable to Buildkite, and no text to the
// parser.
func (p *agentParser) checkout(n *yaml.Node, path string) {
	n, path = child(n, "checkout"), join(path, "checkout")
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	typed := func(key, tag, want string) {
		if v := child(n, key); v != nil && !isNull(v) && v.ShortTag() != tag {
			p.report(v, join(path, key), kindName(v), want)
		}
	}
	typed("skip", "!!bool", "true or false")
	typed("submodules", "!!bool", "true or false")
	typed("lfs", "!!bool", "true or false")
	typed("depth", "!!int", "a whole number")
	for _, key := range []string{"ssh_secret", "commit_verification", "sparse"} {
		p.times(child(n, key), join(path, key))
	}
	if flags := child(n, "flags"); flags != nil && flags.Kind == yaml.MappingNode {
		entries(flags, func(key, value *yaml.Node) {
			if tag := value.ShortTag(); !isNull(value) && tag != "!!str" && tag != "!!binary" {
				p.report(value, join(join(path, "flags"), key.Value), kindName(value), "text")
			}
		})
	}
}

// isWord reports whether n is a text of at least one byte.
func isWord(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Value != "" && (n.ShortTag() == "!!str" || n.ShortTag() == "!!binary")
}
