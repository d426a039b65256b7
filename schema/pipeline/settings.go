package pipeline

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema/text"
)

// settings checks the names and types of a plugin's settings.
func (c *checker) settings(p plugin, table pluginTable) {
	exact := c.version(p, table)
	seen := map[string]bool{}
	entries(p.settings, func(key, value *yaml.Node) {
		name := table.name(key.Value)
		path := p.path + "." + key.Value
		seen[name] = true
		listed, known := table.settings[name]
		types, since, _ := strings.Cut(listed, " ")
		if exact && older(p.version, since) {
			known = false
		}
		switch {
		case !known && isVariable(key.Value):
		case !known:
			c.unknownSetting(p, key, name, since, table, exact)
		case name != key.Value:
			c.report("KB606", key, p.path, "got %q, want %q", key.Value, name)
			c.settingType(value, path, types)
		case p.name == "docker" && dockerTrap(name, value) != "":
			// said by docker, with what comes of it
		default:
			c.settingType(value, path, types)
		}
		if inner, ok := table.nested[name]; ok && known {
			c.nested(p, key, value, inner)
		}
	})
	for _, name := range table.required {
		if !seen[name] {
			c.report("KB605", p.at, p.path, "missing setting %q", name)
		}
	}
}

// name is a setting as the table has it, whatever form the plugin takes it in.
func (t *pluginTable) name(key string) string {
	if !t.caseSensitive {
		return strings.ToLower(strings.ReplaceAll(key, "_", "-"))
	}
	return fold(key, t.settings)
}

// fold is the name that differs from key in capitals at most, else key.
func fold(key string, names map[string]string) string {
	if _, ok := names[key]; ok {
		return key
	}
	for name := range names { // no two of them differ in capitals alone
		if strings.EqualFold(name, key) {
			return name
		}
	}
	return key
}

var versionLike = text.Pattern(`^v?[0-9]+(\.[0-9]+)*$`)

// version reports whether the table is that of the plugin's version, and names
// one of which it knows nothing.
func (c *checker) version(p plugin, table pluginTable) bool {
	if slices.Contains(table.versions, p.version) || len(table.versions) == 0 {
		return true
	}
	if table.released && versionLike().MatchString(p.version) {
		c.report("KB608", p.at, p.path, "%s: the table of the plugin's versions ends with %s and has no %s: what settings it has is not known",
			p.source, table.versions[len(table.versions)-1], p.version)
	}
	return false
}

// older reports whether a version comes before another; "" comes before all.
func older(version, than string) bool {
	return than != "" && slices.Compare(numbersOf(version), numbersOf(than)) < 0
}

// numbersOf are those of a version, v5.13.0.
func numbersOf(version string) []int {
	var list []int
	for part := range strings.SplitSeq(strings.TrimPrefix(version, "v"), ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil // a commit, older than everything
		}
		list = append(list, n)
	}
	return list
}

// unknownSetting reports a setting that this version of a plugin does not
// have. Of other versions only what looks misspelt is likely to be wrong.
func (c *checker) unknownSetting(p plugin, key *yaml.Node, name, since string, table pluginTable, exact bool) {
	near := nearest(key.Value, slices.Sorted(maps.Keys(table.settings)))
	why := table.absent[key.Value]
	switch {
	case why != "":
		c.report("KB602", key, p.path, "%s has no setting %q: %s", p.name, key.Value, why)
	case since != "" && exact:
		c.report("KB602", key, p.path, "%s has no setting %q, it came with %s%s", p.source, key.Value, since, without[name])
	case near != "" && exact:
		c.report("KB602", key, p.path, "%s has no setting %q, nearest is %q", p.name, key.Value, near)
	case exact:
		c.report("KB602", key, p.path, "%s has no setting %q", p.source, key.Value)
	case near != "":
		c.report("KB608", key, p.path, "%s: setting %q is not in the table, which is of another version, nearest is %q", p.source, key.Value, near)
	default:
		c.report("KB601", key, p.path, "%s: setting %q is not in the table, which is of another version", p.source, key.Value)
	}
}

// without says what a job does when a version of the docker plugin ignores a
// setting.
var without = map[string]string{
	"gpus":   ": the job would run on the CPU",
	"memory": ": the job would run without a limit",
	"cpus":   ": the job would run without a limit",
}

// nested checks the names and types within a setting.
func (c *checker) nested(p plugin, outer, settings *yaml.Node, table map[string]string) {
	entries(settings, func(key, value *yaml.Node) {
		path := p.path + "." + outer.Value
		name := fold(key.Value, table)
		types, known := table[name]
		if !known {
			if isVariable(key.Value) {
				return
			}
			hint := ""
			if near := nearest(key.Value, slices.Sorted(maps.Keys(table))); near != "" {
				hint = ", nearest is " + strconv.Quote(near)
			}
			c.report("KB602", key, path, "%s has no setting %q in %s%s: it is dropped without a word", p.name, key.Value, outer.Value, hint)
			return
		}
		if name != key.Value {
			c.report("KB606", key, path, "got %q, want %q", key.Value, name)
		}
		c.settingType(value, path+"."+key.Value, types)
	})
}

// interposers are what puts a command container's command together.
var interposers = []string{"buildkite", "vector", "legacy"}

// kubernetes checks what the controller makes of the plugin's settings.
func (c *checker) kubernetes(p plugin) {
	params := child(p.settings, "commandParams")
	if n := child(params, "interposer"); n != nil && scalarText(n) != "" && !isVariable(n.Value) && !slices.Contains(interposers, n.Value) {
		c.report("KB603", n, p.path+".commandParams.interposer", "got %s, want buildkite, vector or legacy", quote(n.Value))
	}
	patch := child(p.settings, "podSpecPatch")
	if patch == nil || child(p.settings, "podSpec") != nil || child(p.settings, "podTemplate") != nil {
		return // there the containers have names of their own
	}
	for i, container := range items(child(patch, "containers")) {
		name := child(container, "name")
		path := index(p.path+".podSpecPatch.containers", i)
		switch {
		case container.Kind != yaml.MappingNode:
		case scalarText(name) == "":
			c.report("KB604", container, path, "a container without a name, want container-0, which runs the command")
		case !slices.Contains(controllerContainers, name.Value) && !isVariable(name.Value):
			c.report("KB604", name, path+".name", "got %s, which adds a container beside the command's, want container-0", quote(name.Value))
		}
	}
}

// controllerContainers are those that a pod has without a podSpec.
var controllerContainers = []string{"container-0", "agent", "checkout"}
