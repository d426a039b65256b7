// Package gate decides whether a job may run on a slot, before anything of the job
// has been executed. Any creator of builds controls a job's variables, plugins and
// commands. So the gate admits only what is on a list; jobs that kbgen writes pass.
// It refuses the rest with one line that says what it found and what it wants.
//
// The gate starts nothing. Package step runs the job, the proxy and the slot's slice
// limit it.
//
// Source: buildkite-agent v3.138.0, tried: the file that BUILDKITE_ENV_JSON_FILE
// names holds the variables that Buildkite sent. Output of the hook pre-bootstrap goes
// to the agent's own log, output of the bootstrap to the job's.
package gate

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

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

// A Job is a job that a slot may run, after every part of it was checked.
type Job struct {
	ID        string
	Command   string
	Artifacts []string          // files directly in the job's directory, uploaded when it has ended
	Variables map[string]string // all of the job's file
	Container *Container        // nil on a slot without containers
}

// Decide returns the job with these variables if it may run on the slot. The error
// says why not, in one line without any secret.
func Decide(c *node.Config, slot string, env map[string]string) (*Job, error) {
	s, err := c.Slot(slot)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if err := variable(name, env[name], strings.HasPrefix(c.Agent.Version, "4.")); err != nil {
			return nil, err
		}
	}
	j := &Job{ID: env["BUILDKITE_JOB_ID"], Command: env["BUILDKITE_COMMAND"], Variables: env}
	if j.Artifacts, err = artifacts(env["BUILDKITE_ARTIFACT_PATHS"]); err != nil {
		return nil, err
	}
	switch s.Platform {
	case platformDocker:
		if j.Container, err = container(s, env["BUILDKITE_PLUGINS"]); err == nil && j.Command == "" {
			err = fmt.Errorf("command: got none: slot %s runs containers, and each runs a command", s.Name)
		}
	case platformHost:
		err = command(s, env)
	default:
		err = fmt.Errorf("slot %s: platform: got %q, want %s or %s", s.Name, s.Platform, platformDocker, platformHost)
	}
	if err != nil {
		return nil, err
	}
	return j, nil
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

// known lists names, or prefixes with "*", of variables that Buildkite sends for a
// job. The gate also admits those of [proxy.Passes] and agent4.
//
// Source: buildkite.com/docs/pipelines/configure/environment-variables;
// buildkite-agent v3.138.0.
var known = []string{
	"BUILDKITE", "CI",
	"BUILDKITE_AGENT_ID", "BUILDKITE_AGENT_META_DATA_*", "BUILDKITE_AGENT_NAME", "BUILDKITE_ARTIFACT_PATHS", "BUILDKITE_BRANCH",
	"BUILDKITE_BUILD_AUTHOR", "BUILDKITE_BUILD_AUTHOR_*", "BUILDKITE_BUILD_CREATOR", "BUILDKITE_BUILD_CREATOR_*",
	"BUILDKITE_BUILD_ID", "BUILDKITE_BUILD_NUMBER", "BUILDKITE_BUILD_URL", "BUILDKITE_CLEAN_CHECKOUT", "BUILDKITE_CLUSTER_*",
	"BUILDKITE_COMMAND", "BUILDKITE_COMMIT", "BUILDKITE_COMMIT_RESOLVED", "BUILDKITE_COMPUTE_TYPE", "BUILDKITE_GITHUB_*",
	"BUILDKITE_GIT_LFS_*", "BUILDKITE_GIT_SUBMODULES", "BUILDKITE_GROUP_*", "BUILDKITE_IMAGE", "BUILDKITE_JOB_ID", "BUILDKITE_LABEL",
	"BUILDKITE_MERGE_QUEUE_*", "BUILDKITE_MESSAGE", "BUILDKITE_ORGANIZATION_*", "BUILDKITE_PARALLEL_JOB", "BUILDKITE_PARALLEL_JOB_COUNT",
	"BUILDKITE_PIPELINE_*", "BUILDKITE_PLUGINS", "BUILDKITE_PLUGIN_VALIDATION", "BUILDKITE_PROJECT_*", "BUILDKITE_PULL_REQUEST",
	"BUILDKITE_PULL_REQUEST_*", "BUILDKITE_REBUILT_FROM_*", "BUILDKITE_REFSPEC", "BUILDKITE_REPO", "BUILDKITE_RETRY_COUNT",
	"BUILDKITE_RETRY_TYPE", "BUILDKITE_SCRIPT_PATH", "BUILDKITE_SKIP_CHECKOUT", "BUILDKITE_SOURCE", "BUILDKITE_STEP_*", "BUILDKITE_TAG",
	"BUILDKITE_TIMEOUT", "BUILDKITE_TRIGGERED_FROM_*", "BUILDKITE_UNBLOCKER", "BUILDKITE_UNBLOCKER_*",
}

// agent4 lists variables that agents of version 4 write into the job's file with
// values of their own. kbnode does not read them.
var agent4 = []string{
	"BUILDKITE_PLUGINS_*", "BUILDKITE_HOOKS_*", "BUILDKITE_ADDITIONAL_HOOKS_*", "BUILDKITE_AGENT_ENDPOINT", "BUILDKITE_AGENT_EXPERIMENT",
	"BUILDKITE_AGENT_DEBUG*", "BUILDKITE_AGENT_CACHE_*", "BUILDKITE_SHELL", "BUILDKITE_BIN_PATH", "BUILDKITE_BUILD_PATH", "BUILDKITE_SOCKETS_PATH",
	"BUILDKITE_CONFIG_PATH", "BUILDKITE_GIT_*", "BUILDKITE_ENV_FILE", "BUILDKITE_ENV_JSON_FILE", "BUILDKITE_LOCAL_HOOKS_*", "BUILDKITE_COMMAND_EVAL",
	"BUILDKITE_STRICT_*", "BUILDKITE_SSH_KEYSCAN", "BUILDKITE_REDACTED_VARS", "BUILDKITE_JOB_CONTEXT_*", "BUILDKITE_CHECKOUT_OVERRIDE_*",
	"BUILDKITE_CANCEL_*", "BUILDKITE_SIGNAL_*", "BUILDKITE_TRACING_*", "BUILDKITE_REQUEST_HEADER_*",
}

// lines lists variables that may have several lines: texts that people write,
// plugins as JSON, and payloads.
var lines = []string{
	"BUILDKITE_MESSAGE", "BUILDKITE_COMMAND", "BUILDKITE_PLUGINS",
	schema.EnvPayload + "*", schema.EnvSecretPrefix + "PAYLOAD*", schema.EnvOldPayload,
}

// parts are variables that paths are made of.
var parts = []string{"BUILDKITE_AGENT_NAME", "BUILDKITE_ORGANIZATION_SLUG", "BUILDKITE_PIPELINE_SLUG", "BUILDKITE_JOB_ID"}

var part = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// variable checks one variable of a job's.
func variable(name, value string, version4 bool) error {
	switch {
	case name == "BUILDKITE_GIT_REMOTE_MIRROR_URL" && value == "":
		return nil // the agent blanks it
	case !(matches(known, name) || version4 && matches(agent4, name) || proxy.Passes(name)) || !shell(name):
		return fmt.Errorf("variable %s: a job may not set it on this node", text.Quote(name))
	case strings.ContainsFunc(value, func(r rune) bool {
		return unicode.IsControl(r) && !(matches(lines, name) && strings.ContainsRune("\n\r\t", r))
	}):
		return fmt.Errorf("variable %s: got a control character, want one line of text", name)
	case name == "BUILDKITE_SKIP_CHECKOUT" && value != "true":
		return fmt.Errorf("variable %s: got %s, want true or none", name, text.Quote(value))
	case name == "BUILDKITE_REPO" && (strings.HasPrefix(value, "-") || strings.Contains(value, "::")):
		return fmt.Errorf("variable %s: got %s, want a repository's address", name, text.Quote(value))
	case slices.Contains(parts, name) && !part.MatchString(value):
		return fmt.Errorf("variable %s: got %s, want letters, digits, -, _ and dots between", name, text.Quote(value))
	}
	return nil
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

// artifacts returns the names of the files to upload when the job has ended.
func artifacts(paths string) ([]string, error) {
	if paths == "" {
		return nil, nil
	}
	names := strings.Split(paths, ";")
	for _, name := range names {
		if !plain.MatchString(name) {
			return nil, fmt.Errorf("artifact_paths: got %s, want plain names of files", text.Quote(name))
		}
	}
	return names, nil
}

// inherited lists names, or prefixes with "*", of variables that programs on the
// machine get from the agent or its unit, the same for every job.
var inherited = []string{
	"LANG", "LC_ALL", "TZ", "USER", "LOGNAME", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
	"BUILDKITE_AGENT_ACCESS_TOKEN", "BUILDKITE_AGENT_ENDPOINT", "BUILDKITE_JOB_ID", "BUILDKITE_NO_HTTP2", "BUILDKITE_REQUEST_HEADER_*",
	"BUILDKITE_BUILD_PATH", "BUILDKITE_CONFIG_PATH", "BUILDKITE_HOOKS_PATH", "BUILDKITE_SOCKETS_PATH",
}

// Environ is the environment of a program that runs on the machine for a job: the
// agent, or the command of a slot without containers, which gets the job's variables
// too. HOME does not exist, so that no user can put a program's configuration there. The
// unit's variables come from the config, not from environ, which the agent gave this process.
// The slot's paths lie below root, which is "/" except in tests.
func Environ(c *node.Config, s *node.Slot, root string, environ []string, job map[string]string) []string {
	below := func(name string) string { return path.Join(root, name) }
	out := []string{"PATH=" + strings.Join(searchPath(c), ":"), "HOME=/nonexistent", "TMPDIR=" + below(s.TempDir()), SlotVariable + "=" + s.Name}
	for _, entry := range environ {
		if name, _, _ := strings.Cut(entry, "="); matches(inherited, name) {
			out = append(out, entry)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(job)) {
		if !matches(agent4, name) {
			out = append(out, name+"="+job[name])
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

// searchPath is the machine's, and the agent's directory.
func searchPath(c *node.Config) []string {
	dirs := filepath.SplitList(system.SearchPath)
	if dir := path.Dir(c.Agent.Path); !slices.Contains(dirs, dir) {
		dirs = append(dirs, dir)
	}
	return dirs
}
