package pipeline

import (
	"slices"
	"strings"

	agentparser "github.com/buildkite/go-pipeline"
	"github.com/buildkite/go-pipeline/ordered"
	"github.com/buildkite/go-pipeline/warning"
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
)

// agent parses a document with the agent's own parser and reports what the
// parser refuses (KB801) or warns about (KB802). The parser gets the steps one
// by one, because it loses their warnings if the document has other keys.
func (c *checker) agent(d *document) {
	d.parsed = &agentparser.Pipeline{Steps: agentparser.Steps{}}
	c.agentFault(ordered.Unmarshal(withoutKey(d.root, "steps"), d.parsed), d.root, d.path)
	groups := map[*step]*agentparser.GroupStep{}
	for _, s := range d.steps {
		list := &d.parsed.Steps
		if group := groups[s.parent]; group != nil {
			list = &group.Steps
		}
		source := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: []*yaml.Node{withoutKey(s.source, "steps")}}
		c.agentFault(ordered.Unmarshal(source, list), s.source, s.path)
		if s.kind != "group" || len(*list) == 0 {
			continue
		}
		if group, ok := (*list)[len(*list)-1].(*agentparser.GroupStep); ok {
			groups[s] = group
		}
	}
}

// agentFault reports an error or warning of the agent's parser about n.
func (c *checker) agentFault(err error, n *yaml.Node, path string) {
	if err == nil {
		return
	}
	w := warning.As(err)
	if w == nil {
		c.report("KB801", n, path, "the agent's parser refuses it: %s", oneLine(err))
		return
	}
	for _, cause := range w.Unwrap() { // without "while unmarshaling step 1 of 1"
		c.report("KB802", n, path, "the agent's parser warns: %s", oneLine(cause))
	}
}

// oneLine joins the lines of an error of the agent's parser.
func oneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return strings.ContainsRune("\n\r\u0085\u2028\u2029", r) })
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(strings.TrimSpace(line), "↳ ")
	}
	return strings.Join(lines, ": ")
}

// withoutKey returns a mapping without one of its keys, and other nodes as they are.
func withoutKey(n *yaml.Node, key string) *yaml.Node {
	if child(n, key) == nil {
		return n
	}
	rest := *n
	rest.Content = slices.Clone(n.Content)
	for i := len(rest.Content) - 2; i >= 0; i -= 2 {
		if rest.Content[i].Value == key {
			rest.Content = slices.Delete(rest.Content, i, i+2)
		}
	}
	return &rest
}

// formatFaults reports whether the format rules found a fault, which the
// agent's parser would report again.
func (c *checker) formatFaults() bool {
	return slices.ContainsFunc(c.findings, func(f schema.Finding) bool {
		return f.Rule[:3] == "KB0" && f.Severity >= Warning
	})
}
