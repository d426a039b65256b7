package pipeline

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A plugin is one use of a plugin in a step.
type plugin struct {
	source, name, version string // "docker#v5.13.0", "docker", "v5.13.0"
	at                    *yaml.Node
	settings              *yaml.Node // nil when it has none
	path                  string
}

// plugins checks the plugins of a step and their settings.
func (c *checker) plugins(s *step) {
	containers := 0
	for _, p := range pluginsOf(s) {
		c.pluginWord(p)
		c.pinned(p)
		table, ok := pluginTables[p.name]
		switch {
		case ok && p.settings != nil && p.settings.Kind == yaml.MappingNode:
			c.settings(p, table)
		case !ok && !isVariable(p.source):
			c.report("KB601", p.at, p.path, "no table for the plugin %s: its settings are not checked", quote(p.source))
		}
		switch p.name {
		case "docker-compose":
			c.compose(p)
		case "kubernetes":
			c.pod(p.settings, p.path)
			c.kubernetes(p)
		case "docker":
			c.docker(p)
			if containers++; containers > 1 {
				c.report("KB604", p.at, p.path, "a second docker plugin in one step: the command runs in two containers")
			}
		}
	}
}

// pluginsOf lists a step's plugins in every form that the agent takes.
func pluginsOf(s *step) []plugin {
	var list []plugin
	path := s.path + ".plugins"
	add := func(path string) func(key, value *yaml.Node) {
		return func(key, value *yaml.Node) {
			if isNull(value) {
				value = nil
			}
			p := plugin{source: key.Value, at: key, settings: value, path: path + "." + key.Value}
			p.name, p.version = pluginName(key.Value)
			list = append(list, p)
		}
	}
	n := child(s.node, "plugins")
	entries(n, add(path))
	if n == nil || n.Kind != yaml.SequenceNode {
		return list
	}
	for i, item := range n.Content {
		if scalarText(item) != "" {
			add(index(path, i))(item, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"})
		}
		entries(item, add(index(path, i)))
	}
	return list
}

var officialPlugin = text.Pattern(`^(?:.*[/:])?(?:buildkite-plugins/)([A-Za-z0-9_-]+?)(?:-buildkite-plugin)?(?:\.git)?$`)

// pluginName returns the short name of a plugin and its version. Plugins that
// are not Buildkite's own keep their whole source.
func pluginName(source string) (name, version string) {
	name, version, _ = strings.Cut(source, "#")
	if strings.Contains(name, "buildkite-plugins/") {
		if m := officialPlugin().FindStringSubmatch(name); m != nil {
			name = m[1]
		}
	}
	return name, version
}

// pluginWord refuses a source that no repository has: the job ends before its
// command.
func (c *checker) pluginWord(p plugin) {
	if strings.ContainsAny(p.source, " \t\r\n") && !isVariable(p.source) {
		c.report("KB607", p.at, p.path, "got %s, want a plugin's name without blanks", quote(p.source))
	}
}

// movingVersions are names of branches, and of what is new today.
var movingVersions = []string{"main", "master", "develop", "dev", "trunk", "latest", "HEAD"}

// pinned checks that a plugin stays the same from run to run.
func (c *checker) pinned(p plugin) {
	switch {
	case p.name == "kubernetes" || strings.HasPrefix(p.source, ".") || strings.HasPrefix(p.source, "/"):
		if p.name == "kubernetes" && p.source != "kubernetes" {
			c.report("KB604", p.at, p.path, "got %s, want kubernetes without version: the cluster takes any other spelling for an ordinary plugin", quote(p.source))
		}
	case p.version == "" && !isVariable(p.source):
		c.report("KB203", p.at, p.path, "got %s, want a version: %s#v…", quote(p.source), p.source)
	case slices.Contains(movingVersions, p.version):
		c.report("KB203", p.at, p.path, "got %s, want a version or a commit, not a branch", quote(p.source))
	}
}

// settingType compares a value with the types of a setting: t text, b boolean,
// i whole number, l list, m mapping, * anything.
func (c *checker) settingType(n *yaml.Node, path, types string) {
	if strings.Contains(types, "*") || strings.Contains(n.Value, "$") {
		return
	}
	var have string
	switch {
	case n.Kind == yaml.MappingNode:
		have = "m"
	case n.Kind == yaml.SequenceNode:
		have = "l"
	case n.ShortTag() == "!!bool":
		have = "b"
	case n.ShortTag() == "!!int":
		have = "i"
	case n.ShortTag() == "!!str":
		have = "t"
	}
	if have != "" && strings.Contains(types, have) {
		return
	}
	var want []string
	for _, t := range types {
		want = append(want, map[rune]string{'t': "text", 'b': "true or false", 'i': "a whole number", 'l': "a list", 'm': "a mapping"}[t])
	}
	c.report("KB603", n, path, "got %s, want %s", kindName(n), strings.Join(want, " or "))
}

// docker checks what the docker plugin makes of its settings.
func (c *checker) docker(p plugin) {
	c.dockerVersion(p)
	entries(p.settings, func(key, value *yaml.Node) {
		name := strings.ToLower(strings.ReplaceAll(key.Value, "_", "-"))
		path := p.path + "." + key.Value
		if rule, text := dockerPolicy(name, value); rule != "" {
			c.report(rule, value, path, "%s", text)
		}
		if text := dockerTrap(name, value); text != "" {
			c.report("KB604", value, path, "%s", text)
		}
		switch name {
		case "image":
			c.image(value, path)
		case "volumes":
			c.volumes(value, path)
		case "environment":
			c.dockerEnvironment(value, path)
		}
	})
}

func (c *checker) dockerVersion(p plugin) {
	var major, minor int
	if n, _ := fmt.Sscanf(p.version, "v%d.%d", &major, &minor); n != 2 {
		return
	}
	if major < 5 || major == 5 && minor < 12 {
		c.report("KB211", p.at, p.path, "got %s, want v5.12.0 or newer", p.version)
	}
}

// dockerPolicy returns the rule that a setting breaks, and how.
func dockerPolicy(name string, value *yaml.Node) (rule, message string) {
	on := isTrue(value)
	switch name {
	case "privileged":
		rule, message = "KB205", "a privileged container is root on the machine"
	case "propagate-environment":
		rule, message = "KB206", "the container gets every variable of the job"
	case "gpus":
		n, err := strconv.Atoi(scalarText(value))
		switch {
		case scalarText(value) == "all":
			return "KB207", "the container gets every GPU of the machine"
		case err == nil:
			return "KB207", fmt.Sprintf("%d is a number of GPUs, not an index: the container always gets the first", n)
		}
		return "", ""
	case "mount-buildkite-agent":
		rule, message = "KB208", "the container gets the agent and the job's access token"
	case "mount-ssh-agent", "propagate-aws-auth-tokens", "propagate-gcp-auth-tokens":
		rule, message = "KB208", "the container gets the machine's credentials"
		on = on || name == "mount-ssh-agent" && scalarText(value) != "" && scalarText(value) != "false"
	case "expand-volume-vars", "expand-image-vars":
		rule, message = "KB210", "a shell on the host evaluates the settings"
	case "chown":
		rule, message = "KB210", "a second container runs as root at the end of every job"
	}
	if !on {
		return "", ""
	}
	return rule, message
}

// dockerTrap says what a setting does that it does not say, "" if nothing.
func dockerTrap(name string, value *yaml.Node) string {
	list := value.Kind == yaml.SequenceNode
	switch name {
	case "gpus":
		if value.Kind == yaml.ScalarNode && value.Value == "" && !isNull(value) {
			return "an empty text gives the container no GPU, and stops the machine from giving it one"
		}
		if strings.HasPrefix(scalarText(value), "device=") && strings.Contains(scalarText(value), ",") {
			return "got " + quote(value.Value) + ": without quotes within the quotes docker reads the first device and a count, want '\"device=0,1\"'"
		}
	case "propagate-uid-gid":
		if scalarText(value) == "false" {
			return "false does the same as true: leave the setting out"
		}
	case "environment":
		if !list && !isNull(value) {
			return "got " + kindName(value) + ", which sets no variable at all: want a list"
		}
	case "volumes", "devices", "tmpfs", "ulimits", "shell":
		if !list && value.Kind == yaml.MappingNode || name != "shell" && !list && scalarText(value) != "" && !isVariable(value.Value) {
			return "got " + kindName(value) + ", with which the job fails: want a list"
		}
	}
	return ""
}

// compose checks the settings that the docker-compose plugin shares with the
// docker plugin.
func (c *checker) compose(p plugin) {
	entries(p.settings, func(key, value *yaml.Node) {
		path := p.path + "." + key.Value
		if rule, text := dockerPolicy(key.Value, value); rule != "" {
			c.report(rule, value, path, "%s", text)
		}
		if key.Value == "volumes" {
			c.volumes(value, path)
		}
	})
}

// pod looks for privileges and host directories anywhere in a pod.
func (c *checker) pod(n *yaml.Node, path string) {
	if n == nil {
		return
	}
	if n.Kind == yaml.SequenceNode {
		for i, item := range n.Content {
			c.pod(item, index(path, i))
		}
	}
	entries(n, func(key, value *yaml.Node) {
		path := join(path, key.Value)
		switch {
		case key.Value == "privileged" && isTrue(value):
			c.report("KB205", value, path, "a privileged container is root on the machine")
		case key.Value == "hostPath":
			c.report("KB209", value, path, "mounts %s of the host", quote(scalarText(child(value, "path"))))
		case (key.Value == "hostPID" || key.Value == "hostIPC" || key.Value == "hostNetwork") && isTrue(value):
			c.report("KB205", value, path, "the container shares %s with the machine", strings.TrimPrefix(key.Value, "host"))
		case key.Value == "image":
			c.image(value, path)
		}
		c.pod(value, path)
	})
}

// volumes looks for directories of the host.
func (c *checker) volumes(n *yaml.Node, path string) {
	for i, v := range items(n) {
		host, _, mounts := strings.Cut(scalarText(v), ":")
		if mounts && strings.HasPrefix(host, "/") || strings.HasPrefix(host, "~") || strings.HasPrefix(host, "..") {
			c.report("KB209", v, index(path, i), "mounts %s of the host", quote(host))
		}
	}
}

// dockerEnvironment looks for secrets in NAME=value.
func (c *checker) dockerEnvironment(n *yaml.Node, path string) {
	for i, v := range items(n) {
		if name, secret, ok := strings.Cut(scalarText(v), "="); ok && schema.RedactedName(name) && secretValue(secret) {
			c.report("KB701", v, index(path, i), "the value of %s is in the text, want its name alone", name)
		}
	}
}
