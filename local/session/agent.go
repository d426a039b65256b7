package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
)

// agentConfig is the file with which an agent of one's own is started. It holds
// the registration token, so that no command line and no log has to.
func (s *session) agentConfig() string { return filepath.Join(s.dir, agentConfigName) }

const agentConfigName = "buildkite-agent.cfg"

// agentExports lists the variables for agents of one's own.
func (s *session) agentExports() []string {
	return []string{
		"KBLOCAL_DIR=" + s.dir,
		"BUILDKITE_AGENT_ENDPOINT=" + s.URL() + "/v3",
		"BUILDKITE_AGENT_TOKEN=" + s.AgentToken(),
	}
}

func (s *session) writeAgentConfig() error {
	return writeSecret(s.agentConfig(), agentSettings{
		token: s.AgentToken(), endpoint: s.URL() + "/v3", dir: filepath.Join(s.dir, "own"),
	}.String())
}

// agentSettings are what an agent needs to work for a stand-in.
type agentSettings struct {
	token, endpoint string
	name, tags      string // empty: the agent's own defaults
	dir             string // for its checkouts, hooks and plugins
	spawn           int    // 0: one
}

// String is the agent's configuration file.
func (a agentSettings) String() string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s=%s\n", name, strconv.Quote(value))
		}
	}
	b.WriteString("# buildkite-agent start --config THIS_FILE, works for a kblocal while that runs\n")
	line("token", a.token)
	line("endpoint", a.endpoint)
	line("name", a.name)
	line("tags", a.tags)
	if a.spawn > 1 {
		line("spawn", strconv.Itoa(a.spawn))
	}
	line("build-path", filepath.Join(a.dir, "builds"))
	line("hooks-path", filepath.Join(a.dir, "hooks"))
	line("plugins-path", filepath.Join(a.dir, "plugins"))
	b.WriteString("no-ssh-keyscan=true\n")
	return b.String()
}

// agentCmd prints the configuration of an agent that works for a running
// kblocal up, maybe from a guest or a container that knows this machine by another
// name.
type agentCmd struct {
	Dir   string   `var:"KBLOCAL_DIR" placeholder:"DIR" help:"state directory of the running kblocal up"`
	Host  string   `placeholder:"HOST" help:"how the agent reaches this machine, as 10.0.2.2 from a QEMU guest; default 127.0.0.1"`
	Queue string   `default:"cpu" placeholder:"NAME" help:"queue of the agent"`
	Tag   []string `placeholder:"KEY=VALUE" help:"a further tag; may be repeated"`
	Name  string   `placeholder:"NAME" help:"name of the agent; default its host's name"`
	Spawn int      `default:"1" placeholder:"N" help:"how many agents the process runs"`
	Base  string   `default:"/var/lib/buildkite-agent" placeholder:"DIR" help:"where the agent keeps checkouts, hooks and plugins"`
}

func (c *agentCmd) Run(_ context.Context, env *cli.Env) error {
	switch {
	case c.Dir == "":
		return cli.WithHint(cli.Usagef("agent: --dir is missing"), "kblocal up prints an export of KBLOCAL_DIR")
	case c.Spawn < 1 || c.Spawn > 64:
		return cli.Usagef("--spawn %d: want 1 to 64", c.Spawn)
	case c.Queue == "" || strings.ContainsAny(c.Queue, ",= "):
		return cli.Usagef("--queue %q: want the name of a queue", c.Queue)
	}
	own, err := readAgentConfig(filepath.Join(c.Dir, agentConfigName))
	if errors.Is(err, fs.ErrNotExist) {
		return cli.WithHint(fmt.Errorf("no kblocal is serving from %s", c.Dir), "kblocal up --dir %s", c.Dir)
	}
	if err != nil {
		return err
	}
	endpoint, err := url.Parse(own["endpoint"])
	if err != nil || endpoint.Host == "" {
		return fmt.Errorf("%s: it names no endpoint", filepath.Join(c.Dir, agentConfigName))
	}
	if c.Host != "" {
		if strings.ContainsAny(c.Host, "/@ ") {
			return cli.Usagef("--host %q: want a host name or an IP address", c.Host)
		}
		endpoint.Host = net.JoinHostPort(strings.Trim(c.Host, "[]"), endpoint.Port())
	}
	_, err = fmt.Fprint(env.Stdout, agentSettings{
		token: own["token"], endpoint: endpoint.String(), name: c.Name, spawn: c.Spawn, dir: c.Base,
		tags: strings.Join(append([]string{"queue=" + c.Queue}, c.Tag...), ","),
	})
	return err
}

// readAgentConfig reads the file that a session has written.
func readAgentConfig(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, quoted, _ := strings.Cut(lines.Text(), "=")
		if value, err := strconv.Unquote(quoted); err == nil {
			out[name] = value
		}
	}
	return out, lines.Err()
}
