package gate

import (
	"path"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/proxy"
)

// systemPath is where a job's hooks and the agent find programs.
var systemPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// inherited are names, or with "*" beginnings of names, that a bootstrap needs of the
// environment the agent gives it. BASH_ENV, ENV, LD_PRELOAD, functions of shells
// and everything else is gone.
var inherited = []string{"BUILDKITE", "BUILDKITE_*", "CI", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}

// Environ is the environment of a slot's bootstrap, made from the one that the agent
// gave it. A job's variables lie on top of the unit's there, so that what is the
// unit's is taken from the config, and not from environ. The slot's paths lie below
// root, which is "/" but in tests.
func Environ(c *node.Config, s *node.Slot, root string, environ []string) []string {
	below := func(name string) string { return path.Join(root, name) }
	out := []string{
		"PATH=" + strings.Join(searchPath(c), ":"),
		"HOME=" + below(s.Dir()), "TMPDIR=" + below(s.TempDir()), SlotVariable + "=" + s.Name,
		// The plugin's clone is root's, and git asks.
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=" + below(node.PluginDir),
		"GIT_TERMINAL_PROMPT=0", "BUILDKITE_PLUGINS_PATH=" + below(s.PluginsPath()),
	}
	if s.Platform == platformDocker {
		out = append(out, "DOCKER_HOST=unix://"+below(s.ProxySocket()), "DOCKER_CONFIG="+below(s.Dir())+"/.docker")
	}
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		plugin := strings.HasPrefix(name, "BUILDKITE_PLUGIN_") && name != "BUILDKITE_PLUGIN_VALIDATION"
		if !plugin && name != "BUILDKITE_PLUGINS_PATH" && shell(name) && (matches(inherited, name) || proxy.Passes(name)) {
			out = append(out, entry)
		}
	}
	return out
}

// shell reports whether a name is one that a shell could have: "BASH_FUNC_x%%" is
// none, whatever stands in front.
func shell(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
}

// searchPath begins with docker's directory: where there are several, it is the one
// that the config names.
func searchPath(c *node.Config) []string {
	var dirs []string
	add := func(dir string) {
		if path.IsAbs(dir) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	add(path.Dir(c.Docker.CLI))
	for _, dir := range systemPath {
		add(dir)
	}
	add(path.Dir(c.Agent.Path))
	return dirs
}
