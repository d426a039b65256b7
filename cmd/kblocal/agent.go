package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/local/session"
)

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
	own, err := session.ReadAgentConfig(filepath.Join(c.Dir, session.AgentConfigName))
	if errors.Is(err, fs.ErrNotExist) {
		return cli.WithHint(fmt.Errorf("no kblocal is serving from %s", c.Dir), "kblocal up --dir %s", c.Dir)
	}
	if err != nil {
		return err
	}
	endpoint, err := url.Parse(own["endpoint"])
	if err != nil || endpoint.Host == "" {
		return fmt.Errorf("%s: it names no endpoint", filepath.Join(c.Dir, session.AgentConfigName))
	}
	if c.Host != "" {
		if strings.ContainsAny(c.Host, "/@ ") {
			return cli.Usagef("--host %q: want a host name or an IP address", c.Host)
		}
		endpoint.Host = net.JoinHostPort(strings.Trim(c.Host, "[]"), endpoint.Port())
	}
	_, err = fmt.Fprint(env.Stdout, session.AgentSettings{
		Token: own["token"], Endpoint: endpoint.String(), Name: c.Name, Spawn: c.Spawn, Dir: c.Base,
		Tags: strings.Join(append([]string{"queue=" + c.Queue}, c.Tag...), ","),
	})
	return err
}
