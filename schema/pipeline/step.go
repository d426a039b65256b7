package pipeline

import (
	"cmp"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema/near"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A step is one entry of a list of steps.
type step struct {
	node     *yaml.Node // the mapping; of a scalar step, the scalar
	source   *yaml.Node // as the document has it
	path     string     // "steps[0] (key)"
	kind     string     // definition of the format; "" when it has none
	key      string
	keyNode  *yaml.Node
	parent   *step // the group it is in
	children []*step
	document *document
}

// nullKeys say what a step is, also without a value.
var nullKeys = map[string]bool{"wait": true, "waiter": true, "block": true, "input": true, "manual": true, "group": true}

// kindsByKey infers a step's type as the agent does: the first rule wins.
var kindsByKey = []struct{ key, kind string }{
	{"command", "command"}, {"commands", "command"}, {"plugins", "command"},
	{"wait", "wait"}, {"waiter", "wait"},
	{"block", "block"}, {"input", "block"}, {"manual", "block"},
	{"trigger", "trigger"}, {"group", "group"},
}

// kindsByType holds what the key type may say.
var kindsByType = map[string]string{
	"command": "command", "commands": "command", "script": "command", "wait": "wait", "waiter": "wait",
	"block": "block", "input": "block", "manual": "block", "trigger": "trigger", "group": "group",
}

// kindOf returns the definition for a step, "" when it has no type.
func kindOf(n *yaml.Node) string {
	if t := child(n, "type"); t != nil {
		return kindsByType[t.Value]
	}
	for _, k := range kindsByKey {
		if child(n, k.key) != nil {
			return k.kind
		}
	}
	return ""
}

// collect finds the steps of a list and of the groups in it, their types and
// keys, and reports those that have none.
func (c *checker) collect(d *document, list *yaml.Node, path string, parent *step) {
	if list == nil || list.Kind != yaml.SequenceNode {
		return // the enclosing definition has said so
	}
	for i, n := range list.Content {
		s := &step{node: n, source: n, path: index(path, i), parent: parent, document: d}
		outer := c.unnest(s)
		d.steps = append(d.steps, s)
		if parent != nil {
			parent.children = append(parent.children, s)
		}
		if s.node.Kind != yaml.MappingNode {
			c.scalarStep(s)
			continue
		}
		c.stepKey(s)
		if s.kind = cmp.Or(outer, kindOf(s.node)); s.kind == "" {
			c.untyped(s)
			continue
		}
		if s.kind == "group" {
			if parent != nil {
				c.report("KB012", s.node, s.path, "got a group in a group, want one level")
			}
			c.collect(d, child(s.node, "steps"), s.path+".steps", s)
		}
	}
}

// scalarStep checks a step that is a single word.
func (c *checker) scalarStep(s *step) {
	switch s.node.Value {
	case "wait", "waiter":
		s.kind = "wait"
	case "block", "input", "manual":
		s.kind = "block"
	default:
		c.report("KB010", s.node, s.path, "got %s, want a mapping, or wait, block or input", kindName(s.node))
		return
	}
	if s.node.Kind != yaml.ScalarNode {
		s.kind = ""
		return
	}
	if c.opts.Strict && (s.node.Value == "waiter" || s.node.Value == "manual") {
		c.report("KB016", s.node, s.path, "got %q, want %s", s.node.Value, s.kind)
	}
	s.node = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: s.node.Line, Column: s.node.Column}
}

// unnest replaces {command: {…}} by what is within, and returns its kind.
func (c *checker) unnest(s *step) (kind string) {
	if s.node.Kind != yaml.MappingNode || len(s.node.Content) != 2 || s.node.Content[1].Kind != yaml.MappingNode {
		return ""
	}
	key, inner := s.node.Content[0], s.node.Content[1]
	if kind = kindsByType[key.Value]; kind == "" || kind == "group" {
		return ""
	}
	c.report("KB015", key, s.path, "%s with a mapping of its own, want its keys in the step itself", key.Value)
	s.node = inner
	s.path += "." + key.Value
	return kind
}

// untyped reports a step without a type, with what it may have been.
func (c *checker) untyped(s *step) {
	if t := child(s.node, "type"); t != nil {
		c.report("KB010", t, s.path+".type", "got %s, want command, wait, block, input, trigger or group", kindName(t))
		return
	}
	var known []string
	for _, k := range kindsByKey {
		known = append(known, k.key)
	}
	var hint string
	entries(s.node, func(key, _ *yaml.Node) {
		if near := nearest(key.Value, known); near != "" && hint == "" {
			hint = "; nearest to " + quote(key.Value) + " is " + quote(near)
		}
	})
	c.report("KB010", s.node, s.path, "a step without a type, want command, plugins, wait, block, input, trigger or group%s", hint)
}

// stepKey reads a step's key and checks that it is the only one of its kind.
func (c *checker) stepKey(s *step) {
	for _, name := range []string{"key", "id", "identifier"} {
		if n := child(s.node, name); scalarText(n) != "" {
			s.key, s.keyNode = n.Value, n
			break
		}
	}
	if s.key == "" {
		return
	}
	s.path += " (" + text.Shorten(s.key, 40) + ")"
	if n := len([]rune(s.key)); n > 100 && !isVariable(s.key) {
		c.report("KB304", s.keyNode, s.path+".key", "got %d characters, want at most 100", n)
	}
	if isVariable(s.key) {
		c.variable = true
		return
	}
	if other, taken := c.keys[s.key]; taken {
		c.report("KB101", s.keyNode, s.path+".key", "got %q, which is the key of %s (line %d) too, want a unique key", s.key, other.path, other.node.Line)
		return
	}
	c.keys[s.key] = s
}

// shape checks what two keys of one step make of each other.
func (c *checker) shape(s *step) {
	pairs := [][2]string{{"key", "id"}, {"key", "identifier"}, {"id", "identifier"}, {"command", "commands"},
		{"artifact_paths", "artifacts"}, {"timeout_in_minutes", "timeout"}, {"agents", "agent_query_rules"}}
	for _, p := range pairs {
		if a, b := child(s.node, p[0]), child(s.node, p[1]); a != nil && b != nil {
			c.report("KB014", b, s.path, "got %s and %s, want one of them", p[0], p[1])
		}
	}
	var types []string
	for _, k := range kindsByKey {
		if child(s.node, k.key) != nil && k.kind != s.kind {
			types = append(types, k.key)
		}
	}
	if len(types) > 0 {
		c.report("KB014", keyNode(s.node, types[0]), s.path, "a %s step with %s, want one type", s.kind, types[0])
	}
	if b := child(s.node, "branches"); b != nil && child(s.node, "if") != nil {
		c.report("KB022", keyNode(s.node, "branches"), s.path, "got if and branches, want one of them")
	}
}

// agents looks for a misspelt queue: also beside a queue no agent has the tag.
func (c *checker) agents(agents *yaml.Node, path string) {
	if agents == nil {
		return
	}
	if agents.Kind != yaml.MappingNode {
		for i, rule := range items(agents) {
			if name, _, ok := strings.Cut(scalarText(rule), "="); ok && nearQueue(strings.TrimSpace(name)) {
				c.report("KB021", rule, index(path, i), "tag %q, nearest is \"queue\"", strings.TrimSpace(name))
			}
		}
		return
	}
	entries(agents, func(key, _ *yaml.Node) {
		if nearQueue(key.Value) {
			c.report("KB021", key, path, "tag %q, nearest is \"queue\"", key.Value)
		}
	})
}

// nearQueue reports whether a tag was meant to be queue.
func nearQueue(tag string) bool {
	return tag != "queue" && len(tag) > 2 && near.Distance(strings.ToLower(tag), "queue") <= 2
}

// commandless finds steps whose only sign of a command is its key.
func (c *checker) commandless(s *step) {
	var null *yaml.Node
	name := ""
	for _, key := range []string{"command", "commands"} {
		switch n := child(s.node, key); {
		case n == nil:
		case !isNull(n):
			return
		case null == nil:
			null, name = n, key
		}
	}
	if null != nil && len(pluginsOf(s)) == 0 {
		c.report("KB024", null, s.path+"."+name, "got null, want a command: the job has nothing to run")
	}
}

// inherited returns the value of a step's key, else that of the document.
func inherited(d *document, s *step, key string) *yaml.Node {
	if n := child(s.node, key); n != nil {
		return n
	}
	return child(d.root, key)
}

// subset checks what the strict subset asks for beyond the format.
func (c *checker) subset(s *step) {
	entries(s.node, func(key, value *yaml.Node) {
		path := s.path + "." + key.Value
		if want, second := secondNames[key.Value]; second {
			c.report("KB016", key, s.path, "got %s, want %s", key.Value, want)
		}
		switch key.Value {
		case "timeout_in_minutes", "parallelism", "priority", "concurrency":
			c.wantTag(value, path, "!!int", "a whole number")
		case "allow_dependency_failure", "cancel_on_build_failing", "async", "continue_on_failure":
			c.wantTag(value, path, "!!bool", "true or false")
		case "label":
			if value.Kind == yaml.ScalarNode && value.ShortTag() != "!!str" {
				c.report("KB017", value, path, "got %s, want text", kindName(value))
			}
		case "key":
			if isVariable(value.Value) {
				c.report("KB018", value, path, "got %s, want letters, digits, _ - . : and comma", kindName(value))
			}
		case "command":
			for _, line := range items(value) {
				if line.Value == "" {
					c.report("KB012", line, path, "got no text, want a command")
				} else if line.Kind == yaml.ScalarNode && line.ShortTag() != "!!str" {
					c.report("KB017", line, path, "got %s, want text", kindName(line))
				}
			}
		case "agents":
			c.subsetAgents(value, path)
		case "plugins":
			c.subsetPlugins(value, path)
		case "soft_fail":
			c.subsetExitStatus(value, path)
		case "retry":
			c.subsetExitStatus(child(value, "automatic"), path+".automatic")
		}
	})
}

var secondNames = map[string]string{
	"commands": "command", "name": "label", "id": "key", "identifier": "key", "artifacts": "artifact_paths",
	"timeout": "timeout_in_minutes", "agent_query_rules": "agents", "type": "the key that makes the type",
	"waiter": "wait", "manual": "block",
}

// wantTag reports a scalar of another type; what is no scalar the format has
// reported.
func (c *checker) wantTag(n *yaml.Node, path, tag, want string) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() != tag && n.ShortTag() == "!!str" {
		c.report("KB017", n, path, "got %s, want %s", kindName(n), want)
	}
}

func (c *checker) subsetAgents(n *yaml.Node, path string) {
	if n.Kind != yaml.MappingNode {
		c.report("KB017", n, path, "got %s, want a mapping", kindName(n))
		return
	}
	if queue := child(n, "queue"); queue != nil && !queueName().MatchString(queue.Value) {
		c.report("KB012", queue, path+".queue", "got %s, want the name of a queue: letters, digits, - and _", kindName(queue))
	}
}

var queueName = text.Pattern(`^[A-Za-z0-9_-]{1,100}$`)

func (c *checker) subsetPlugins(n *yaml.Node, path string) {
	if n.Kind != yaml.SequenceNode {
		c.report("KB017", n, path, "got %s, want a list of one-key mappings", kindName(n))
		return
	}
	for i, item := range n.Content {
		if item.Kind != yaml.MappingNode || len(item.Content) != 2 {
			c.report("KB017", item, index(path, i), "got %s, want a mapping with one key, the plugin", kindName(item))
		}
	}
}

// subsetExitStatus looks for statuses in quotes, in lists of rules.
func (c *checker) subsetExitStatus(n *yaml.Node, path string) {
	if n == nil || n.Kind != yaml.SequenceNode {
		return
	}
	for i, rule := range n.Content {
		for _, status := range items(child(rule, "exit_status")) {
			if status.Value != "*" {
				c.wantTag(status, index(path, i)+".exit_status", "!!int", "a number")
			}
		}
		if limit := child(rule, "limit"); limit != nil {
			c.wantTag(limit, index(path, i)+".limit", "!!int", "a number")
		}
	}
}
