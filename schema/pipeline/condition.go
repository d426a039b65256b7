package pipeline

import (
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/condition"
)

// condition checks a step's condition and those of its notifications.
func (c *checker) condition(s *step) {
	c.expression(child(s.node, "if"), s.path+".if", false)
	for i, n := range items(child(s.node, "notify")) {
		c.expression(child(n, "if"), index(s.path+".notify", i)+".if", true)
	}
}

func (c *checker) expression(n *yaml.Node, path string, notification bool) {
	if n == nil || n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		return
	}
	fault := condition.Check(n.Value, notification)
	switch {
	case fault == nil:
	case fault.Name == "":
		c.report("KB020", n, path, "%s in %s", fault, quote(n.Value))
	default:
		f := schema.Finding{Path: path}
		f.Line, f.Column = c.position(n, fault.Offset, fault.Name)
		c.add("KB025", f, "%s", fault.Reason)
	}
}
