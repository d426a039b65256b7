package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node/setup"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema/near"
	"github.com/gpu-mode/kbgen/schema/queuefile"
	"github.com/gpu-mode/kbgen/templates"
)

// composeCmd prints what agents in containers are started from.
type composeCmd struct {
	QueueFile string `arg:"" optional:"" name:"file"`
	Node      string `arg:"" optional:"" name:"node"`

	Image       []string      `placeholder:"[SLOT=]IMAGE" sep:"none"`
	CDI         bool          `name:"cdi"`
	Token       string        `default:"/etc/kbnode/agent-token" placeholder:"FILE"`
	Hooks       string        `default:"/etc/kbnode/hooks" placeholder:"DIR"`
	Broker      string        `placeholder:"SOCKET"`
	BrokerGroup int           `placeholder:"GID"`
	Endpoint    string        `placeholder:"URL"`
	HostNetwork bool          `name:"host-network"`
	Drain       time.Duration `default:"1h"`
	Pids        int           `default:"4096" placeholder:"N"`
	Unit        bool
	File        string `default:"/etc/kbnode/compose.yml" placeholder:"FILE"`
	Dockerfile  bool
}

func (c *composeCmd) Run(_ context.Context, env *cli.Env) error {
	var text string
	var err error
	switch {
	case c.Unit && c.Dockerfile, (c.Unit || c.Dockerfile) && c.QueueFile != "":
		return cli.Usagef("got more than one of --unit, --dockerfile and a queue file")
	case c.Unit:
		text, err = templates.AgentUnit(c.File, c.Drain)
	case c.Dockerfile:
		var body []byte
		body, err = templates.AgentDockerfile()
		text = string(body)
	case c.Node == "":
		return cli.WithHint(cli.Usagef("want a queue file and one of its nodes"), "kbnode compose --help")
	default:
		var body []byte
		body, err = c.compose(env)
		text = string(body)
	}
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	_, err = io.WriteString(env.Stdout, text)
	return err
}

// compose renders the compose file of one node.
func (c *composeCmd) compose(env *cli.Env) ([]byte, error) {
	file, _, err := setup.ReadQueueFile(c.QueueFile, false)
	if err != nil {
		return nil, err
	}
	agents, err := c.agents(env, file)
	if err != nil {
		return nil, err
	}
	return templates.Compose{
		Node: c.Node, Agents: agents, CDI: c.CDI, Token: c.Token, Hooks: c.Hooks, Broker: c.Broker, BrokerGroup: c.BrokerGroup,
		Endpoint: c.Endpoint, HostNetwork: c.HostNetwork, Drain: c.Drain,
	}.Render()
}

// agents are those of the node, with the images asked for. What the vendor
// should know of them is told on stderr.
func (c *composeCmd) agents(env *cli.Env, file *queuefile.File) ([]templates.ContainerAgent, error) {
	images, all, err := c.images()
	if err != nil {
		return nil, err
	}
	shares := map[string]queuefile.Share{} // by the path of a group
	var nodes []string
	for i := range file.Nodes {
		nodes = append(nodes, file.Nodes[i].Name)
		for j := range file.Nodes[i].GPUs {
			shares[fmt.Sprintf("nodes[%d].gpus[%d]", i, j)] = file.Nodes[i].GPUs[j].Agent
		}
	}
	var agents []templates.ContainerAgent
	told := map[string]bool{}
	for _, a := range file.Agents() {
		if a.Node != c.Node {
			continue
		}
		row, err := pipelines.Fleet.Lookup(a.GPUType)
		if row.Name == "" {
			return nil, err // Check knows the type; only a row that is off is an error with a row
		}
		slot := fmt.Sprintf("gpu%d", len(agents))
		image, ok := images[slot]
		if delete(images, slot); !ok {
			image = all
		}
		if image == "" {
			return nil, fmt.Errorf("--image: got none for %s", slot)
		}
		devices, err := containerDevices(&row, &a)
		if err != nil {
			return nil, err
		}
		if row.Platform == pipelines.Docker && !told[row.Name] {
			told[row.Name] = true
			fmt.Fprintf(env.Stderr, "kbnode: note: steps for %s start a container of their own and need an agent that has docker; these have none\n", row.Name)
		}
		share := shares[a.Path]
		agents = append(agents, templates.ContainerAgent{
			Slot: slot, Image: image, Tags: a.Tags, Devices: devices, CPUs: share.CPUs, MemoryGiB: share.MemoryGiB, Pids: c.Pids,
		})
	}
	if len(agents) == 0 {
		return nil, fmt.Errorf("%s: got no node %q, want %s", file.Name(), c.Node, near.Perhaps(c.Node, nodes))
	}
	for slot := range images {
		return nil, fmt.Errorf("--image: got one for %q, want a slot from gpu0 to gpu%d", slot, len(agents)-1)
	}
	return agents, nil
}

// images reads --image: by slot, and the one for all others.
func (c *composeCmd) images() (bySlot map[string]string, all string, err error) {
	bySlot = map[string]string{}
	for _, text := range c.Image {
		slot, image, ok := strings.Cut(text, "=")
		switch {
		case !ok && all == "":
			all = text
		case !ok:
			return nil, "", fmt.Errorf("--image: got a second one for all slots, %q", text)
		case bySlot[slot] != "":
			return nil, "", fmt.Errorf("--image: got a second one for %s, %q", slot, image)
		default:
			bySlot[slot] = image
		}
	}
	return bySlot, all, nil
}

// containerDevices are the UUIDs that an agent's container asks for.
func containerDevices(row *pipelines.GPUType, a *queuefile.Agent) ([]string, error) {
	byUUID := strings.HasPrefix(a.Tags[len(a.Tags)-1], "gpu-uuid=")
	switch {
	case row.Vendor == pipelines.NoGPU:
		return nil, nil
	case row.Vendor != pipelines.NVIDIA:
		return nil, fmt.Errorf("%s: got %s, want NVIDIA's GPUs or none: what a container of another maker's needs is not in a queue file", a.Path, row.Name)
	case !byUUID:
		return nil, fmt.Errorf("%s: got count or indexes, want uuids: an index names another GPU after one has failed", a.Path)
	}
	return a.Devices, nil
}
