// Package gate decides whether a job may run on a slot, before anything of the job
// has been executed, and makes the environment that its bootstrap starts with. A
// job comes from whoever may create builds: its variables, plugins and commands are
// theirs. What kbgen writes passes; the rest is refused with one line that says
// what was found and what is wanted.
//
// It starts nothing, and keeps no job from anything once it runs: that is the
// proxy's and the slice's.
//
// Source: buildkite-agent v3.138.0, tried: the file that BUILDKITE_ENV_JSON_FILE
// names holds the variables that Buildkite sent. What the hook pre-bootstrap says goes
// to the agent's own log, what the bootstrap says to the job's.
package gate

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/proxy"
	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Platforms of a row, as [node.Slot] has them.
const (
	platformDocker = "docker"
	platformHost   = "host"
)

// Decide says whether the job with these variables may run on the slot: nil, or
// why not, in one line without a value of ours.
func Decide(c *node.Config, slot string, env map[string]string) error {
	s, err := c.Slot(slot)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if err := variable(name, env[name], strings.HasPrefix(c.Agent.Version, "4.")); err != nil {
			return err
		}
	}
	if err := artifacts(env["BUILDKITE_ARTIFACT_PATHS"]); err != nil {
		return err
	}
	switch s.Platform {
	case platformDocker:
		return plugins(s, env["BUILDKITE_PLUGINS"])
	case platformHost:
		return command(s, env)
	}
	return fmt.Errorf("slot %s: platform: got %q, want %s or %s", s.Name, s.Platform, platformDocker, platformHost)
}

// hosts are variables by which a node tells kbrun where things lie on it. A
// container has nothing there; without one a job would reach the machine's own.
var hosts = []string{schema.EnvSandboxRead, schema.EnvRetain, schema.EnvBroker}

// command checks a job that the agent starts itself.
func command(s *node.Slot, env map[string]string) error {
	for _, name := range hosts {
		if _, set := env[name]; set {
			return fmt.Errorf("variable %s: a job may not set it on this node", text.Quote(name))
		}
	}
	if env[schema.EnvSandbox] == schema.SandboxNone {
		return fmt.Errorf("variable %q: got %s, want a sandbox: slot %s runs without containers", schema.EnvSandbox, schema.SandboxNone, s.Name)
	}
	if all := strings.TrimSpace(env["BUILDKITE_PLUGINS"]); all != "" && all != "[]" && all != "null" {
		return fmt.Errorf("plugins: got some, want none: slot %s runs without containers", s.Name)
	}
	if got := env["BUILDKITE_COMMAND"]; !slices.Contains(s.Commands, got) {
		return fmt.Errorf("command: got %s, want one of %q", text.Quote(got), s.Commands)
	}
	return nil
}

// standard are variables that Buildkite sends besides those that begin with BUILDKITE_.
var standard = []string{"BUILDKITE", "CI"}

// reserved are names, or with "*" beginnings of names, of variables that change what
// the agent, a hook or the docker plugin does to the machine. A name that Buildkite
// itself sends is not among them.
//
// Source: buildkite-agent v3.138.0, internal/job/config.go and
// clicommand/bootstrap.go; the docker plugin v5.13.0.
var reserved = []string{
	"BUILDKITE_PLUGIN_*", "BUILDKITE_AGENT_JOB_API_*", "BUILDKITE_AGENT_BINARY_PATH", "BUILDKITE_AGENT_ACCESS_TOKEN", "BUILDKITE_AGENT_TOKEN",
	"BUILDKITE_AGENT_NO_*", "BUILDKITE_BUILD_CHECKOUT_PATH", "BUILDKITE_REPO_MIRROR", "BUILDKITE_OIDC_TMPDIR", "BUILDKITE_NO_*", "BUILDKITE_BOOTSTRAP_*",
	"BUILDKITE_CONTAINER_*", "BUILDKITE_KUBERNETES_*", "BUILDKITE_AGENT_PROFILE",
	// The cluster's secrets would be fetched into the job's environment.
	"BUILDKITE_SECRETS_CONFIG",
	"BUILDKITE_AGENT_ARTIFACT_*", "BUILDKITE_ARTIFACT_CONTENT_TYPE", "BUILDKITE_AGENT_TRACE_HTTP",
	"BUILDKITE_ARTIFACT_UPLOAD_DESTINATION", "BUILDKITE_S3_*", "BUILDKITE_GS_*", "BUILDKITE_ARTIFACTORY_*", "BUILDKITE_AZURE_*",
}

// overridden are those that the agent sets anew, over a job's. Agents of version 4
// write their own values into the job's file, so that they mean nothing there.
var overridden = []string{
	"BUILDKITE_PLUGINS_*", "BUILDKITE_HOOKS_*", "BUILDKITE_ADDITIONAL_HOOKS_*", "BUILDKITE_AGENT_ENDPOINT", "BUILDKITE_AGENT_EXPERIMENT",
	"BUILDKITE_AGENT_DEBUG*", "BUILDKITE_AGENT_CACHE_*", "BUILDKITE_SHELL", "BUILDKITE_BIN_PATH", "BUILDKITE_BUILD_PATH", "BUILDKITE_SOCKETS_PATH",
	"BUILDKITE_CONFIG_PATH", "BUILDKITE_GIT_*", "BUILDKITE_ENV_FILE", "BUILDKITE_ENV_JSON_FILE", "BUILDKITE_LOCAL_HOOKS_*", "BUILDKITE_COMMAND_EVAL",
	"BUILDKITE_STRICT_*", "BUILDKITE_SSH_KEYSCAN", "BUILDKITE_REDACTED_VARS", "BUILDKITE_JOB_CONTEXT_*", "BUILDKITE_CHECKOUT_OVERRIDE_*",
	"BUILDKITE_CANCEL_*", "BUILDKITE_SIGNAL_*", "BUILDKITE_TRACING_*", "BUILDKITE_REQUEST_HEADER_*",
}

// parts are what the agent makes paths of: where it finds the plugin's hooks, and
// what a clean checkout removes.
var parts = []string{"BUILDKITE_AGENT_NAME", "BUILDKITE_ORGANIZATION_SLUG", "BUILDKITE_PIPELINE_SLUG", "BUILDKITE_JOB_ID"}

var part = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// variable checks one variable of a job's. Agents older than version 4 set what is
// overridden only after this.
func variable(name, value string, agent4 bool) error {
	refused := fmt.Errorf("variable %s: a job may not set it on this node", text.Quote(name))
	switch {
	case name == "BUILDKITE_PLUGIN_VALIDATION": // stricter, or as it is
		return nil
	case name == "BUILDKITE_GIT_SUBMODULES" || strings.HasPrefix(name, "BUILDKITE_GIT_LFS_"):
		return nil // Buildkite sends them, and nothing is checked out
	case name == "BUILDKITE_GIT_REMOTE_MIRROR_URL" && value == "":
		return nil // the agent blanks it
	case name == "BUILDKITE_SKIP_CHECKOUT" && value != "true":
		return fmt.Errorf("variable %s: got %s, want true or none", name, text.Quote(value))
	case name == "BUILDKITE_REPO" && (strings.HasPrefix(value, "-") || strings.Contains(value, "::")):
		return fmt.Errorf("variable %s: got %s, want a repository's address", name, text.Quote(value))
	case slices.Contains(parts, name) && !part.MatchString(value):
		return fmt.Errorf("variable %s: got %s, want letters, digits, -, _ and dots between", name, text.Quote(value))
	case matches(reserved, name), matches(overridden, name) && !agent4:
		return refused
	case strings.HasPrefix(name, "BUILDKITE_") || slices.Contains(standard, name) || proxy.Passes(name):
		return nil
	}
	return refused
}

// matches reports whether a name is one of patterns, or begins as one with "*" does.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		begin, open := strings.CutSuffix(p, "*")
		return p == name || open && strings.HasPrefix(name, begin)
	})
}

// plain is a file directly in the job's directory.
var plain = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$`)

// artifacts checks what is to be uploaded when the job has ended.
func artifacts(paths string) error {
	if paths == "" {
		return nil
	}
	for path := range strings.SplitSeq(paths, ";") {
		if !plain.MatchString(path) {
			return fmt.Errorf("artifact_paths: got %s, want plain names of files", text.Quote(path))
		}
	}
	return nil
}

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
	for _, dir := range filepath.SplitList(system.SearchPath) {
		add(dir)
	}
	add(path.Dir(c.Agent.Path))
	return dirs
}
