package templates

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// An AgentConfig is what the agent of one slot is started with, its token apart.
type AgentConfig struct {
	Major      int    // of the agent, 3 or 4
	Name       string // "<node>-<slot>"
	Slot       string
	Tags       []string // "key=value"
	Endpoint   string   // empty: Buildkite's
	Program    string   // kbnode
	Docker     bool     // jobs run in containers; else the agent starts them itself
	Plugin     string   // the only one that jobs may name, "github.com/...#v5.13.0"
	JWKS       string   // a file of public keys for signed steps; empty: they are not signed
	HealthPort int
	CancelSecs int // from the signal to the end of a cancelled job
}

// agentKeys are the settings that kbnode writes, by the agent's majors that have
// them. An agent ignores a key that it does not know, without a word; so one that
// is not here cannot be written.
//
// Source: buildkite-agent start --help of v3.138.0; docs/agent/v3_v4_upgrade_guide.md.
var agentKeys = map[string][]int{
	"name": {3, 4}, "tags": {3, 4}, "spawn": {3, 4}, "endpoint": {3, 4},
	"build-path": {3, 4}, "hooks-path": {3, 4}, "sockets-path": {3, 4}, "job-context-dir": {3, 4},
	"bootstrap-script": {3, 4}, "disconnect-after-job": {3, 4},
	"no-command-eval": {3, 4}, "no-plugins": {3, 4}, "no-local-hooks": {3, 4}, "no-plugin-validation": {3, 4},
	"strict-single-hooks": {3, 4},
	"skip-checkout":       {3, 4}, "checkout-override-mode": {3, 4}, "no-git-submodules": {3, 4}, "no-ssh-keyscan": {3, 4},
	"allowed-plugins": {3, 4}, "allowed-repositories": {3, 4},
	"enable-environment-variable-allowlist": {3, 4}, "allowed-environment-variables": {3, 4},
	"redacted-vars":          {3, 4},
	"verification-jwks-file": {3, 4}, "verification-failure-behavior": {3, 4},
	"health-check-addr": {3, 4}, "log-format": {3, 4},
	"cancel-grace-period": {3}, "cancel-signal-timeout": {4}, "cancel-cleanup-timeout": {4},
}

// redacted are the patterns of variables whose values the agent takes out of logs:
// a list of one's own replaces the agent's, so it is whole.
var redacted = []string{
	"*_PASSWORD", "*_SECRET", "*_TOKEN", "*_PRIVATE_KEY", "*_SSH_KEY", "*_ACCESS_KEY", "*_SECRET_KEY", "*_CONNECTION_STRING", "*_API_KEY",
}

// allowedVariables are the patterns of the variables that a job may carry beside
// Buildkite's own: those of package schema.
func allowedVariables() []string {
	return []string{"^" + schema.EnvPrefix + "[A-Z0-9_]+$", "^" + schema.EnvOldPayload + "$", "^" + schema.EnvOldQueue + "$", "^TPU_SKIP_MDS_QUERY$"}
}

// A cfg is the lines of a config file.
type cfg struct {
	major int
	lines []string
	err   error
}

var cfgValue = form{text.Pattern(`^[^"'\\\x00-\x1f\x7f]*$`), "no quote, backslash or line end"}

func (c *cfg) set(key, got string) {
	switch {
	case c.err != nil:
	case !slices.Contains(agentKeys[key], c.major):
		c.err = fmt.Errorf("agent config: version %d of the agent has no setting %q", c.major, key)
	default:
		c.err = value{key, got, cfgValue}.fault("agent config")
		c.lines = append(c.lines, fmt.Sprintf("%s=%q", key, got))
	}
}

func (c *cfg) flag(key string, on bool) { c.set(key, fmt.Sprint(on)) }

// File returns the config file.
//
// Errors: *[PlaceholderError]; a major of the agent that is not known.
func (a *AgentConfig) File() (string, error) {
	c := &cfg{major: a.Major}
	dir := "/var/lib/kbnode/slots/" + a.Slot
	c.set("name", a.Name)
	c.set("tags", strings.Join(a.Tags, ","))
	c.set("spawn", "1")
	if a.Endpoint != "" {
		c.set("endpoint", a.Endpoint)
	}
	c.set("build-path", dir+"/builds")
	c.set("hooks-path", "/etc/kbnode/hooks")
	c.set("sockets-path", "/run/kbnode-agent-"+a.Slot)
	c.set("job-context-dir", dir+"/context")
	c.set("bootstrap-script", a.Program+" bootstrap")
	a.jobs(c)
	c.set("redacted-vars", strings.Join(redacted, ","))
	c.set("health-check-addr", fmt.Sprintf("127.0.0.1:%d", a.HealthPort))
	c.set("log-format", "text")
	if a.Major == 3 {
		c.set("cancel-grace-period", fmt.Sprint(a.CancelSecs))
	} else {
		c.set("cancel-signal-timeout", fmt.Sprintf("%ds", a.CancelSecs))
		c.set("cancel-cleanup-timeout", "5s")
	}
	if c.err != nil {
		return "", c.err
	}
	return strings.Join(c.lines, "\n") + "\n", nil
}

// jobs says what a job may be.
func (a *AgentConfig) jobs(c *cfg) {
	// A slot without docker runs commands, exactly those that the gate allows. Its agent
	// ends with each job, so that systemd kills whatever the job left in the unit.
	c.flag("disconnect-after-job", !a.Docker)
	c.flag("no-command-eval", a.Docker)
	c.flag("no-plugins", !a.Docker)
	c.flag("no-local-hooks", true)
	c.flag("no-plugin-validation", false)
	c.flag("strict-single-hooks", true)
	c.flag("skip-checkout", true)
	c.set("checkout-override-mode", "strict")
	c.flag("no-git-submodules", true)
	c.flag("no-ssh-keyscan", true)
	if a.Docker {
		c.set("allowed-plugins", anchored(a.Plugin))
	}
	c.flag("enable-environment-variable-allowlist", true)
	c.set("allowed-environment-variables", strings.Join(allowedVariables(), ","))
	if a.JWKS != "" {
		c.set("verification-jwks-file", a.JWKS)
		c.set("verification-failure-behavior", "block")
	}
}

// anchored is a pattern for exactly s. The file's reader treats some backslashes
// in a way of its own, so there is none.
func anchored(s string) string {
	var b strings.Builder
	b.WriteByte('^')
	for _, r := range s {
		if strings.ContainsRune(`.+*?()|{}$`, r) {
			b.WriteString("[" + string(r) + "]")
		} else {
			b.WriteRune(r)
		}
	}
	return b.String() + "$"
}
