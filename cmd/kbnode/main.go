// Kbnode looks after a vendor's GPU node. What stands of it so far is the broker
// of secrets and the files for agents in containers.
package main

import (
	"os"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(program())) }

type grammar struct {
	Secretd secretdCmd `cmd:""`
	Compose composeCmd `cmd:""`
}

func program() cli.Program {
	return cli.Program{Name: "kbnode", Grammar: &grammar{}, Help: help}
}

var help = map[string]string{
	"": `kbnode looks after a vendor's GPU node.

usage:
  kbnode secretd               hand secrets to the steps that may have them
  kbnode compose FILE NODE     agents in containers: a docker compose file
  kbnode completion SHELL      for bash, zsh or fish
  kbnode man                   all help pages, for man(1)
  kbnode COMMAND --help | kbnode --version

exit status: 0 done, 1 failed, 2 wrong usage
`,
	"secretd": `usage: kbnode secretd [--config FILE] [--socket PATH] [--check]
       kbnode secretd --unit | --socket-unit

Answers steps that ask for a secret (kbgen secret get). Runs as root with the
node's private keys, on the socket that systemd hands over, else on PATH. Logs
who asked for what and what was decided, never a value.

  --config FILE        (default /etc/kbnode/secretd.yml)
  --socket PATH        (default /run/kbnode/secretd.sock); for the group --group
  --group NAME         who may ask (default: the group of the process)
  --check              read config and keys, say what they are, and end
  --unit               print kbnode-secretd.service for --config, and end
  --credential FILE    with --unit: a key encrypted by systemd-creds for this
                       machine; the config calls it secret.key
  --socket-unit        print kbnode-secretd.socket for --socket and --group

The config, YAML:
  version: 1
  keys: [secret.key]       files: in systemd's credentials directory, else
                           beside the config; their owner's alone (0600)
  oidc:                    who is believed: tokens of Buildkite's jobs
    organizations: [UUID]
    audience: kbnode       (default)
    issuer: https://agent.buildkite.com   (default)
  host:                    or, without tokens: whatever this node may run
    organization: UUID
    pipelines: [UUID]
  signers: [FILE]          Ed25519 public keys in PEM; only what they signed
  old: {pipelines: [UUID]} who gets SECRET_* in the old, unbound formats

example:
  kbnode secretd --check
`,
	"compose": `usage: kbnode compose FILE NODE --image IMAGE... [flag ...]
       kbnode compose --unit | --dockerfile

Prints the docker compose file for a node of a queue file (docs/vendors.md): an
agent in a container for each slot, gpu0 and up. An agent takes one job and
ends; agent@.service (--unit) makes the next container. A job can read neither
the agent's token nor a docker socket, and writes to memory only.

  --image [SLOT=]IMAGE for all slots, or for one; see --dockerfile
  --cdi                devices by CDI name, nvidia.com/gpu=UUID
  --token FILE         the registration token, of root alone (0600)
                       (default /etc/kbnode/agent-token)
  --hooks DIR          the agent's hooks, of root (default /etc/kbnode/hooks)
  --broker SOCKET      of kbnode secretd. The agent's job API is on then, which
                       kbgen secret get needs; without it, it is off
  --broker-group GID   the number of the group that may ask it
  --endpoint URL       of the agent API (default: Buildkite's)
  --host-network       jobs reach what listens on the node; for tests
  --pids N             processes and threads of a slot (default 4096)
  --drain DURATION     for the last job, once told to stop (default 1h)
  --unit               print agent@.service for --file, with --drain
  --file FILE          where the compose file will be
                       (default /etc/kbnode/compose.yml)
  --dockerfile         print the recipe of an agent's image on any base

NVIDIA's GPUs need UUIDs in the queue file. AMD's cannot be given yet: a queue
file does not tell their render nodes.

example:
  kbnode compose h100-01.yml h100-01 --image kbgen-agent:cuda-13.0 > compose.yml
`,
}
