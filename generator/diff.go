package generator

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	printable "github.com/gpu-mode/kbgen/schema/text" // text is a node here
)

// A Change is one value that differs between two pipelines.
type Change struct {
	Step string `json:"-"` // key; or "steps[3]" without one; empty above the steps
	Path string `json:"path" jsonschema:"within the step, plugins.docker.memory; empty for a whole step"`
	Old  string `json:"old" jsonschema:"as JSON writes it; empty when it was not there"`
	New  string `json:"new" jsonschema:"as JSON writes it; empty when it is gone"`
}

func (c Change) kind() string {
	switch {
	case c.Old == "":
		return "added"
	case c.New == "":
		return "removed"
	}
	return "changed"
}

// Where is the place of the change in one printable line: steps and keys are
// named by whoever wrote the pipeline.
func (c Change) Where() string {
	return printable.Line(strings.Trim(c.Step+"."+c.Path, "."), 300)
}

func (c Change) String() string {
	at := c.Where()
	switch {
	case c.Path == "" && c.Step != "" && c.Old == "":
		return "+ step " + at
	case c.Path == "" && c.Step != "" && c.New == "":
		return "- step " + at
	case c.Old == "":
		return fmt.Sprintf("+ %s: %s", at, c.New)
	case c.New == "":
		return fmt.Sprintf("- %s: %s", at, c.Old)
	}
	if strings.Contains(c.Old+c.New, `\n`) {
		return "  " + at + ":" + changedLines(c.Old, c.New)
	}
	return fmt.Sprintf("  %s: %s → %s", at, c.Old, c.New)
}

// changedLines shows the lines of two quoted texts between those that they
// begin and end with alike.
func changedLines(older, newer string) string {
	a, err := strconv.Unquote(older)
	b, err2 := strconv.Unquote(newer)
	if err != nil || err2 != nil {
		return fmt.Sprintf(" %s → %s", older, newer)
	}
	from, to := strings.Split(a, "\n"), strings.Split(b, "\n")
	for len(from) > 0 && len(to) > 0 && from[0] == to[0] {
		from, to = from[1:], to[1:]
	}
	for len(from) > 0 && len(to) > 0 && from[len(from)-1] == to[len(to)-1] {
		from, to = from[:len(from)-1], to[:len(to)-1]
	}
	var out strings.Builder
	for _, line := range from {
		out.WriteString("\n    - " + printable.Lines(line))
	}
	for _, line := range to {
		out.WriteString("\n    + " + printable.Lines(line))
	}
	return out.String()
}

// Diff compares what two pipelines mean: documents of YAML or JSON, their steps
// matched by key, whatever their order, comments and quotes. Changes come in
// the order of the new one, removed steps last.
func Diff(older, newer []byte) ([]Change, error) {
	a, err := flatten(older)
	if err != nil {
		return nil, fmt.Errorf("the older pipeline: %w", err)
	}
	b, err := flatten(newer)
	if err != nil {
		return nil, fmt.Errorf("the newer pipeline: %w", err)
	}
	var changes []Change
	for _, step := range b.order {
		old, known := a.steps[step]
		if !known {
			changes = append(changes, Change{Step: step, New: "step"})
			continue
		}
		changes = append(changes, compare(step, old, b.steps[step])...)
	}
	for _, step := range a.order {
		if _, kept := b.steps[step]; !kept {
			changes = append(changes, Change{Step: step, Old: "step"})
		}
	}
	return changes, nil
}

func compare(step string, a, b values) []Change {
	var changes []Change
	for _, path := range b.order {
		if a.text[path] != b.text[path] {
			changes = append(changes, Change{step, path, a.text[path], b.text[path]})
		}
	}
	for _, path := range a.order {
		if _, kept := b.text[path]; !kept {
			changes = append(changes, Change{step, path, a.text[path], ""})
		}
	}
	return changes
}

// flat is a pipeline as values by step and path.
type flat struct {
	order []string // steps; "" stands for what is above them
	steps map[string]values
}

type values struct {
	order []string
	text  map[string]string
}

func flatten(doc []byte) (flat, error) {
	f := flat{steps: map[string]values{}}
	dec := yaml.NewDecoder(bytes.NewReader(doc))
	for {
		var tree yaml.Node
		err := dec.Decode(&tree)
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return f, err
		}
		root := tree.Content[0]
		steps := root
		if root.Kind == yaml.MappingNode {
			steps = nil
			for i := 0; i < len(root.Content); i += 2 {
				if root.Content[i].Value == "steps" {
					steps = root.Content[i+1]
					continue
				}
				f.add("", root.Content[i].Value, root.Content[i+1])
			}
		}
		if steps == nil || steps.Kind != yaml.SequenceNode {
			return f, errors.New("no list of steps")
		}
		f.addSteps(steps, "")
	}
}

func (f *flat) addSteps(list *yaml.Node, within string) {
	for i, step := range list.Content {
		name := fmt.Sprintf("%ssteps[%d]", within, i)
		for j := 0; step.Kind == yaml.MappingNode && j < len(step.Content); j += 2 {
			if step.Content[j].Value == "key" {
				name = step.Content[j+1].Value
			}
		}
		f.touch(name)
		if step.Kind != yaml.MappingNode {
			f.add(name, "", step)
			continue
		}
		for j := 0; j < len(step.Content); j += 2 {
			if key := step.Content[j].Value; key == "steps" && step.Content[j+1].Kind == yaml.SequenceNode {
				f.addSteps(step.Content[j+1], name+".")
			} else {
				f.add(name, key, step.Content[j+1])
			}
		}
	}
}

func (f *flat) touch(step string) {
	if _, known := f.steps[step]; !known {
		f.order = append(f.order, step)
		f.steps[step] = values{text: map[string]string{}}
	}
}

func (f *flat) add(step, path string, n *yaml.Node) {
	f.touch(step)
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			f.add(step, strings.TrimPrefix(path+"."+n.Content[i].Value, "."), n.Content[i+1])
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			at := fmt.Sprintf("%s[%d]", path, i)
			if path == "plugins" {
				at = path
			}
			f.add(step, at, item)
		}
	case yaml.AliasNode:
		f.add(step, path, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "*" + n.Value})
	default:
		v := f.steps[step]
		if _, known := v.text[path]; !known {
			v.order = append(v.order, path)
		}
		v.text[path] = fmt.Sprintf("%q", n.Value)
		if n.ShortTag() != "!!str" && printable.Line(n.Value, 100) == n.Value {
			v.text[path] = n.Value
		}
		f.steps[step] = v
	}
}
