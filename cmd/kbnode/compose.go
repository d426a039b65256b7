package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node/facts"
	"github.com/gpu-mode/kbgen/node/plan"
	"github.com/gpu-mode/kbgen/node/setup"
	"github.com/gpu-mode/kbgen/templates"
)

// composeCmd prints what agents in containers are started from.
type composeCmd struct {
	QueueFile string `arg:"" optional:"" name:"file"`
	Node      string `arg:"" optional:"" name:"node"`

	Image       []string      `placeholder:"[SLOT=]IMAGE" sep:"none" help:"the image of all slots, or of one; see --dockerfile; may be repeated"`
	CDI         bool          `name:"cdi" help:"name devices by CDI, nvidia.com/gpu=UUID"`
	Token       string        `default:"/etc/kbnode/agent-token" placeholder:"FILE" help:"the file with the registration token; only root may read it (0600)"`
	Hooks       string        `default:"/etc/kbnode/hooks" placeholder:"DIR" help:"the directory of the agent's hooks, which root owns"`
	Broker      string        `placeholder:"SOCKET" help:"the socket of kbnode secretd; it turns on the agent's job API, which kbgen secret get needs"`
	BrokerGroup int           `placeholder:"GID" help:"the number of the group that may ask the broker"`
	Endpoint    string        `placeholder:"URL" help:"the URL of the agent API; default Buildkite's"`
	HostNetwork bool          `name:"host-network" help:"let jobs reach what listens on the node; for tests"`
	Drain       time.Duration `default:"1h" placeholder:"DURATION" help:"how long the last job may run after an agent is stopped"`
	Pids        int           `default:"4096" placeholder:"N" help:"the limit of processes and threads of a slot"`
	Unit        bool          `help:"print agent@.service for --file, with --drain"`
	File        string        `default:"/etc/kbnode/compose.yml" placeholder:"FILE" help:"the place of the compose file"`
	Dockerfile  bool          `help:"print a Dockerfile that adds the agent to any base image"`
	Root        string        `placeholder:"DIR" help:"find the GPUs of indexes below DIR; for tests"`
}

func (c *composeCmd) Run(ctx context.Context, env *cli.Env) error {
	var body []byte
	var err error
	switch {
	case c.Unit && c.Dockerfile, (c.Unit || c.Dockerfile) && c.QueueFile != "":
		return cli.Usagef("got more than one of --unit, --dockerfile and a queue file")
	case c.Unit:
		var unit string
		unit, err = templates.AgentUnit(c.File, c.Drain)
		body = []byte(unit)
	case c.Dockerfile:
		body, err = templates.AgentDockerfile()
	case c.Node == "":
		return cli.WithHint(cli.Usagef("want a queue file and one of its nodes"), "kbnode compose --help")
	default:
		body, err = c.compose(ctx, env)
	}
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	_, err = env.Stdout.Write(body)
	return err
}

// compose renders the compose file of one node.
func (c *composeCmd) compose(ctx context.Context, env *cli.Env) ([]byte, error) {
	file, _, err := setup.ReadQueueFile(c.QueueFile, false)
	if err != nil {
		return nil, err
	}
	rows, err := setup.Rows()
	if err != nil {
		return nil, err
	}
	images, err := c.images()
	if err != nil {
		return nil, err
	}
	machine, err := facts.Read(ctx, facts.Host(c.Root))
	if err != nil {
		return nil, err
	}
	containers := plan.Containers{File: file, Node: c.Node, Rows: rows, GPUs: machine.GPUs, Images: images, Pids: c.Pids}
	agents, notes, err := containers.Agents()
	for _, note := range notes {
		fmt.Fprintf(env.Stderr, "kbnode: note: %s\n", note)
	}
	if err != nil {
		return nil, err
	}
	return templates.Compose{
		Node: c.Node, Agents: agents, CDI: c.CDI, Token: c.Token, Hooks: c.Hooks, Broker: c.Broker, BrokerGroup: c.BrokerGroup,
		Endpoint: c.Endpoint, HostNetwork: c.HostNetwork, Drain: c.Drain,
	}.Render()
}

// images reads --image: by slot, and under "*" the one for all others.
func (c *composeCmd) images() (map[string]string, error) {
	images := map[string]string{}
	for _, text := range c.Image {
		slot, image, ok := strings.Cut(text, "=")
		if !ok {
			slot, image = "*", text
		}
		if images[slot] != "" {
			return nil, fmt.Errorf("--image: got a second one for %s, %q", strings.Replace(slot, "*", "all slots", 1), image)
		}
		images[slot] = image
	}
	return images, nil
}
