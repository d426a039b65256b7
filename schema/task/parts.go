package task

import (
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// files reads the list of {name, source} and the files themselves.
func (d *decoder) files(n *yaml.Node) []File {
	var files []File
	submissions := 0
	for _, item := range d.list(n, "files") {
		m := d.object(item, "files", fileKeys)
		if m == nil {
			continue
		}
		name, source := m.get("name"), m.get("source")
		if name == nil || source == nil {
			d.fault(item, "files: want both name and source")
			continue
		}
		f := File{Name: d.str(name, "files: name")}
		if slices.ContainsFunc(files, func(g File) bool { return g.Name == f.Name }) {
			d.fault(name, "files: the name %s occurs twice", text.Quote(f.Name))
		}
		from := d.str(source, "files: source")
		if from == SubmissionMark {
			f.Submission = true
			submissions++
		} else {
			f.Text = d.text(source, from, "files: source")
		}
		files = append(files, f)
	}
	if n != nil && submissions == 0 {
		d.fault(n, "files: no file has the source %q, so a submission has no place", SubmissionMark)
	}
	return files
}

func (d *decoder) text(n *yaml.Node, source, what string) string {
	if source == "" {
		return "" // a fault already, or no path at all
	}
	text, err := d.read(source)
	if err != nil {
		d.fault(n, "%s: %v", what, err)
	}
	return text
}

// config reads the keys of the task's language.
func (d *decoder) config(n *yaml.Node, t *Task) Config {
	var c Config
	if n == nil || !slices.Contains(schema.Languages(), t.Lang) {
		return c
	}
	named := func(name string) bool {
		return slices.ContainsFunc(t.Files, func(f File) bool { return f.Name == name })
	}
	if t.Lang == schema.LangPython {
		m := d.object(n, "config of a py task", pythonKeys)
		if main := m.get("main"); main == nil && t.Harness == schema.HarnessIsolated {
			return c
		} else if main == nil {
			d.fault(n, "config: no key %q, which every py task needs", "main")
		} else if c.Main = d.str(main, "config: main"); !named(c.Main) {
			d.fault(main, "config: main: got %s, which is not among the files", text.Quote(c.Main))
		}
		return c
	}
	m := d.object(n, "config of a cu task", cudaKeys)
	if m.get("sources") == nil {
		d.fault(n, "config: no key %q, which every cu task needs", "sources")
	}
	c.Sources = d.strs(m.get("sources"), "config: sources")
	for _, s := range c.Sources {
		if !named(s) {
			d.fault(m.get("sources"), "config: sources: got %s, which is not among the files", text.Quote(s))
		}
	}
	c.IncludeDirs = d.strs(m.get("include_dirs"), "config: include_dirs")
	c.CompileFlags = d.strs(m.get("compile_flags"), "config: compile_flags")
	c.Defines = d.defines(m.get("defines"))
	return c
}

func (d *decoder) defines(n *yaml.Node) []schema.Define {
	if n == nil {
		return nil
	}
	var defines []schema.Define
	for _, e := range d.object(n, "config: defines", nil) {
		v, ok := d.value(e.val, "config: defines")
		switch {
		case !ok:
		case v == schema.Value{}:
			defines = append(defines, schema.Define{Name: e.name})
		case isString(v):
			text := v.Text()
			defines = append(defines, schema.Define{Name: e.name, Value: &text})
		default:
			// Kernelbot sends a number or boolean as such; its evaluator, and
			// ours, want a string.
			d.fault(e.val, "config: defines: got %s for %s, want text or nothing; put it in quotes", v.Text(), text.Quote(e.name))
		}
	}
	return defines
}

func (d *decoder) templates(n *yaml.Node) []Template {
	if n == nil {
		return nil
	}
	m := d.object(n, "templates", templates)
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		d.fault(n, "templates: got none, which Kernelbot does not take; leave the key out")
	}
	var all []Template
	for _, e := range m {
		source := d.str(e.val, "templates")
		all = append(all, Template{e.name, d.text(e.val, source, "templates: "+e.name)})
	}
	return all
}

// cases reads a list of flat objects; values are scalars or lists of them.
func (d *decoder) cases(n *yaml.Node, what string, multiGPU bool) []schema.Case {
	var cases []schema.Case
	for _, item := range d.list(n, what) {
		m := d.object(item, what, nil)
		if m != nil && multiGPU && m.get("world_size") == nil {
			d.fault(item, "%s: no %q, which every case of a multi_gpu task needs", what, "world_size")
		}
		c := schema.Case{}
		for _, e := range m {
			if v, ok := d.param(e.val, what+": "+e.name, 0); ok {
				c = append(c, schema.Param{Name: e.name, Value: v})
			}
		}
		cases = append(cases, c)
	}
	return cases
}

// param reads a scalar or a list, of lists at most.
func (d *decoder) param(n *yaml.Node, what string, depth int) (schema.Value, bool) {
	target := n
	if n.Kind == yaml.AliasNode {
		target = n.Alias
	}
	if target.Kind != yaml.SequenceNode || depth == 4 {
		return d.value(n, what)
	}
	items := []schema.Value{}
	for _, item := range d.list(n, what) {
		v, ok := d.param(item, what, depth+1)
		if !ok {
			return v, false
		}
		items = append(items, v)
	}
	return schema.ListValue(items), true
}
