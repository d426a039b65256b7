package pipeline

import (
	"encoding/json"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Limits of Buildkite, as of 2026, that nothing but the checks knows; the
// others stand in package schema.
const (
	maxMatrixJobs      = 50
	maxDimensions      = 6
	maxElements        = 25
	maxElementBytes    = 128
	maxAdjustments     = 12
	maxVariable        = 131_072   // Linux: NAME=value and the final NUL, 32 pages
	maxVariables       = 1_000_000 // half of what Linux takes with a stack limit of 8 MiB
	maxMatrixSetupJobs = 1_000_000 // where counting stops
)

// limits checks what counts over one document.
func (c *checker) limits(d *document) {
	jobs := d.jobs()
	c.jobs += jobs
	if jobs > schema.MaxJobsPerUpload {
		c.report("KB301", child(d.root, "steps"), d.path+"steps", "got %d jobs, want at most %d in one upload", jobs, schema.MaxJobsPerUpload)
	}
	c.environment(d)
}

// total checks what counts over the whole stream.
func (c *checker) total() {
	if n := len(c.documents); n > schema.MaxUploadsPerBuild {
		c.add("KB302", schema.Finding{}, "got %d documents, want at most %d uploads in one build", n, schema.MaxUploadsPerBuild)
	}
	if c.jobs > schema.MaxJobsPerBuild {
		c.add("KB302", schema.Finding{}, "got %d jobs, want at most %d in one build", c.jobs, schema.MaxJobsPerBuild)
	}
}

func (d *document) jobs() int {
	jobs := 0
	for _, s := range d.steps {
		jobs = min(jobs+jobsOf(s), maxMatrixSetupJobs)
	}
	return jobs
}

func jobsOf(s *step) int {
	if s.kind == "" {
		return 0
	}
	if n, ok := intValue(child(s.node, "parallelism")); ok && n > 1 {
		return min(n, maxMatrixSetupJobs)
	}
	if m := child(s.node, "matrix"); m != nil && s.kind == "command" {
		return max(1, matrixJobs(m))
	}
	return 1
}

// dimensions returns the lists that a matrix multiplies; the one without a
// name has the name "".
func dimensions(m *yaml.Node) (names []string, lists []*yaml.Node) {
	setup := m
	if m.Kind == yaml.MappingNode {
		setup = child(m, "setup")
	}
	if setup != nil && setup.Kind == yaml.SequenceNode {
		return []string{""}, []*yaml.Node{setup}
	}
	entries(setup, func(key, value *yaml.Node) {
		names, lists = append(names, key.Value), append(lists, value)
	})
	return names, lists
}

// matrix checks the size of a step's matrix, and the tokens that use it.
func (c *checker) matrix(s *step) {
	m := child(s.node, "matrix")
	if m == nil || isNull(m) {
		c.tokens(s, nil)
		return
	}
	path := s.path + ".matrix"
	names, lists := dimensions(m)
	if len(names) > maxDimensions {
		c.report("KB303", m, path, "got %d dimensions, want at most %d", len(names), maxDimensions)
	}
	for i, l := range lists {
		if n := len(items(l)); n > maxElements {
			c.report("KB303", l, dimensionPath(path, names[i]), "got %d elements, want at most %d", n, maxElements)
		}
		for _, e := range items(l) {
			if len(e.Value) > maxElementBytes {
				c.report("KB303", e, dimensionPath(path, names[i]), "got an element of %d bytes, want at most %d", len(e.Value), maxElementBytes)
			}
		}
	}
	if n := len(items(child(m, "adjustments"))); n > maxAdjustments {
		c.report("KB310", child(m, "adjustments"), path+".adjustments", "got %d adjustments, want at most %d", n, maxAdjustments)
	}
	if n := matrixJobs(m); n > maxMatrixJobs {
		c.report("KB303", m, path, "got %d jobs, want at most %d", n, maxMatrixJobs)
	}
	if p := child(s.node, "parallelism"); p != nil {
		c.report("KB303", p, s.path+".parallelism", "got parallelism beside a matrix, want one of them")
	}
	c.tokens(s, names)
}

func dimensionPath(path, name string) string {
	if name == "" {
		return path
	}
	return path + ".setup." + name
}

var matrixToken = text.Pattern(`\{\{\s*matrix(?:\.([A-Za-z0-9_]+))?\s*\}\}`)

// tokens looks for {{matrix}} and {{matrix.name}} that nothing fills.
func (c *checker) tokens(s *step, names []string) {
	for _, key := range []string{"command", "commands", "label", "name", "env", "plugins", "agents", "artifact_paths"} {
		n := child(s.node, key)
		scalars(n, s.path+"."+key, func(n *yaml.Node, path string) {
			if !strings.Contains(n.Value, "{{") {
				return
			}
			for _, m := range matrixToken().FindAllStringSubmatch(n.Value, -1) {
				switch {
				case names == nil:
					c.report("KB023", n, path, "got %s in a step without a matrix", m[0])
				case !slices.Contains(names, m[1]):
					c.report("KB023", n, path, "got %s, have %s", m[0], dimensionList(names))
				}
			}
		})
	}
}

func dimensionList(names []string) string {
	if names[0] == "" {
		return "{{matrix}}"
	}
	return "{{matrix." + strings.Join(names, "}}, {{matrix.") + "}}"
}

// scalars calls f for every scalar below n, and its path.
func scalars(n *yaml.Node, path string, f func(n *yaml.Node, path string)) {
	switch {
	case n == nil:
	case n.Kind == yaml.ScalarNode:
		f(n, path)
	case n.Kind == yaml.SequenceNode:
		for i, item := range n.Content {
			scalars(item, index(path, i), f)
		}
	case n.Kind == yaml.MappingNode:
		entries(n, func(key, value *yaml.Node) {
			f(key, path)
			scalars(value, join(path, key.Value), f)
		})
	}
}

// environment checks the variables that each job of a document starts with.
func (c *checker) environment(d *document) {
	size := func(env *yaml.Node, path string) (sum int) {
		entries(env, func(key, value *yaml.Node) {
			n := len(key.Value) + len("=") + len(value.Value) + len("\x00")
			sum += n
			if n > maxVariable {
				c.report("KB308", value, join(path, key.Value), "got a variable of %d bytes with its name, want at most %d", n, maxVariable)
			}
		})
		return sum
	}
	shared := size(child(d.root, "env"), d.path+"env")
	for _, s := range d.steps {
		if s.kind != "command" {
			continue
		}
		sum := shared + size(child(s.node, "env"), s.path+".env")
		command := 0
		for _, line := range commands(s.node) {
			command += len(line.Value) + 1
		}
		if command+len("BUILDKITE_COMMAND=") > maxVariable {
			c.report("KB308", s.node, s.path+".command", "got a command of %d bytes, want less than %d: it travels as BUILDKITE_COMMAND", command, maxVariable)
		}
		sum += command + c.pluginSize(s)
		if sum > maxVariables {
			c.report("KB309", s.node, s.path, "got %d bytes of variables, command and plugins, want at most %d", sum, maxVariables)
		}
	}
}

// pluginSize returns the size of the variable that carries a step's plugins.
func (c *checker) pluginSize(s *step) int {
	plugins := child(s.node, "plugins")
	if plugins == nil || textSize(plugins) < maxVariable/2 {
		return 0 // far from the limit, whatever quotes and braces add
	}
	wire, err := json.Marshal(value(plugins))
	if err != nil {
		return 0
	}
	if len(wire)+len("BUILDKITE_PLUGINS=") > maxVariable {
		c.report("KB308", plugins, s.path+".plugins", "got plugins of %d bytes, want less than %d: they travel as BUILDKITE_PLUGINS", len(wire), maxVariable)
	}
	return len(wire)
}

func textSize(n *yaml.Node) int {
	sum := len(n.Value) + 4
	for _, c := range n.Content {
		sum += textSize(c)
	}
	return sum
}
