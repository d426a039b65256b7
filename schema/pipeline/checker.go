package pipeline

import (
	"bytes"
	"fmt"
	"slices"

	agentparser "github.com/buildkite/go-pipeline"
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
)

// A checker walks one stream of documents and collects findings.
type checker struct {
	opts       Options
	severities map[string]schema.Severity // by rule
	findings   []schema.Finding
	text       []byte
	lines      []string // of text, once somebody asked
	counted    struct { // how far newlines has come
		node          *yaml.Node
		offset, lines int
	}
	searches int // for misspelt dependencies

	keys      map[string]*step // over all documents: keys are unique in a build
	variable  bool             // some key is only known after the upload
	documents []*document
	jobs      int
}

// A document is one upload.
type document struct {
	root  *yaml.Node // a mapping; a bare list of steps is wrapped into one
	path  string     // "" or "document 2: "
	steps []*step    // in order, those of groups behind their group

	parsed *agentparser.Pipeline // by the agent's parser; nil if the format has faults
}

// report adds a finding about a node, unless the rule is off.
func (c *checker) report(rule string, n *yaml.Node, path, format string, args ...any) {
	f := schema.Finding{Path: path}
	if n != nil {
		f.Line, f.Column = n.Line, n.Column
	}
	c.add(rule, f, format, args...)
}

// add adds a finding whose place is known, unless the rule is off.
func (c *checker) add(rule string, f schema.Finding, format string, args ...any) {
	severity, ok := c.severities[rule]
	if !ok {
		panic("no rule " + rule) // a mistake in this package; every test would meet it
	}
	if severity == Off {
		return
	}
	f.Rule, f.Severity, f.Text = rule, severity, fmt.Sprintf(format, args...)
	c.findings = append(c.findings, f)
}

// stream checks every document and then what holds for all of them.
func (c *checker) stream(text []byte) {
	c.text = text
	roots, ok := c.decode(text)
	for i, root := range roots {
		prefix := ""
		if len(roots) > 1 {
			prefix = fmt.Sprintf("document %d: ", i+1)
		}
		c.document(root, prefix)
	}
	c.graph()
	c.total()
	if ok && !c.formatFaults() {
		for _, d := range c.documents {
			c.agent(d)
		}
	}
}

// document checks what lies within one document.
func (c *checker) document(root *yaml.Node, prefix string) {
	d := &document{root: root, path: prefix}
	c.documents = append(c.documents, d)
	if root.Kind == yaml.SequenceNode {
		if c.opts.Strict {
			c.report("KB017", root, prefix, "got a list of steps, want a mapping with the key steps")
		}
		d.root = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: root.Line, Column: root.Column,
			Content: []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: "steps", Line: root.Line, Column: root.Column}, root}}
	}
	if d.root.Kind != yaml.MappingNode {
		c.report("KB012", root, prefix, "got %s, want a mapping with steps", kindName(root))
		return
	}
	c.schema("document", d.root, prefix)
	c.topLevel(d)
	c.collect(d, child(d.root, "steps"), prefix+"steps", nil)
	for _, s := range d.steps {
		if s.kind != "" {
			c.schema(s.kind, s.node, s.path)
			c.step(d, s)
		}
	}
	c.secretEnv(child(d.root, "env"), d.path+"env")
	c.limits(d)
	if !c.opts.NoInterpolation {
		c.variables(d)
	}
	c.secretText(d)
}

// step checks one step that has a type by itself.
func (c *checker) step(d *document, s *step) {
	c.shape(s)
	c.condition(s)
	c.agents(child(s.node, "agents"), s.path+".agents")
	if c.opts.Strict {
		c.subset(s)
	}
	if s.kind == "command" {
		c.commandless(s)
		c.policy(d, s)
		c.trust(d, s)
		c.matrix(s)
		c.retry(s)
		c.plugins(s)
	}
	c.softFail(s)
	c.secretEnv(child(s.node, "env"), s.path+".env")
	c.secretEnv(child(child(s.node, "build"), "env"), s.path+".build.env")
}

// allow drops the findings that comments allow. They are looked for in the
// text: to the parser a comment belongs to whatever is near.
func (c *checker) allow(text []byte) {
	if !bytes.Contains(text, []byte(allowMark)) {
		return
	}
	allowances := c.allowances(text)
	c.findings = slices.DeleteFunc(c.findings, func(f schema.Finding) bool { return allowed(allowances, f) })
}
