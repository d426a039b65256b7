package generator

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gpu-mode/kbgen/pipelines"
)

// A Value is one value of a step and where it comes from.
type Value struct {
	Path   string // "plugins.docker.image", "retry.automatic[0].limit"
	Text   string
	Origin pipelines.Origin
}

// Explain lists the values of the step with the key in the order in which they are
// printed, as they were before escaping. Without values, keys are those that the
// pipeline has. A selection that finds nothing in the pipeline is no error.
func Explain(p pipelines.Pipeline, r pipelines.Request, key string) (values []Value, keys []string, err error) {
	steps, nodes, err := build(p, r)
	if errors.As(err, new(*pipelines.UnknownError)) { // a selection of another pipeline's
		return nil, nil, nil
	}
	for i, s := range steps {
		if s.Key == key {
			e := explainer{origins: append(origins(s), s.Origins...)}
			e.walk(&nodes[i], "")
			return e.values, nil, nil
		}
		keys = append(keys, s.Key)
	}
	return nil, keys, err
}

// origins says what this package decides by itself.
func origins(s pipelines.CommandStep) []pipelines.Origin {
	const settings = "plugins.docker."
	row := func(field string) string { return s.On.Name + "." + field }
	return []pipelines.Origin{
		{Path: "checkout", Layer: pipelines.Product, Why: "jobs need nothing from the repository"},
		{Path: "plugins", Layer: pipelines.Product, Why: "how every container is started; the plugin's version is pinned"},
		{Path: settings + "environment", Layer: pipelines.ByKind, Why: s.Kind},
		{Path: settings + "shm-size", Layer: pipelines.ByRow, Why: row("ShmGiB") + ", or the default"},
		{Path: settings + "gpus", Layer: pipelines.ByVendor, Why: string(s.On.Vendor)},
		{Path: settings + "devices", Layer: pipelines.ByVendor, Why: string(s.On.Vendor)},
		{Path: settings + "additional-groups", Layer: pipelines.ByRow, Why: row("DeviceGroups")},
		{Path: settings + "cpus", Layer: pipelines.ByRow, Why: row("CPUs")},
		{Path: settings + "memory", Layer: pipelines.ByRow, Why: row("MemoryGiB")},
		{Path: settings + "memory-swap", Layer: pipelines.ByRow, Why: row("MemoryGiB")},
		{Path: "plugins.kubernetes", Layer: pipelines.ByRow, Why: s.On.Name},
		{Path: "env.TPU_SKIP_MDS_QUERY", Layer: pipelines.ByVendor, Why: string(s.On.Vendor)},
	}
}

type explainer struct {
	origins []pipelines.Origin
	values  []Value
}

func (e *explainer) walk(n *node, path string) {
	switch n.kind {
	case mapping:
		for i := range n.items {
			e.walk(&n.items[i], strings.TrimPrefix(path+"."+pluginName(path, n.names[i]), "."))
		}
	case list:
		for i := range n.items {
			at := path
			if path != "plugins" { // one item each: the name says which
				at = fmt.Sprintf("%s[%d]", path, i)
			}
			e.walk(&n.items[i], at)
		}
	default:
		e.values = append(e.values, Value{path, n.text, e.origin(path)})
	}
}

// pluginName leaves the version out.
func pluginName(path, name string) string {
	if path == "plugins" {
		name, _, _ = strings.Cut(name, "#")
	}
	return name
}

// origin is that of the longest path that holds this one, the last of several.
func (e *explainer) origin(path string) pipelines.Origin {
	var found pipelines.Origin
	for _, o := range e.origins {
		if holds(o.Path, path) && len(o.Path) >= len(found.Path) {
			found = o
		}
	}
	return found
}

func holds(outer, path string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (outer == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}
