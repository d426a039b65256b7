// Kbnode makes each GPU of a vendor's machine an isolated Buildkite agent, checks it
// and looks after it. Its commands parse flags, call a package below node and print;
// go doc of package node lists those packages.
package main

import (
	"os"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(program())) }

type grammar struct {
	Preflight preflightCmd `cmd:""`
	Plan      planCmd      `cmd:""`
	Apply     applyCmd     `cmd:""`
	Upgrade   upgradeCmd   `cmd:""`
	Undo      undoCmd      `cmd:""`
	Adopt     adoptCmd     `cmd:""`
	Status    statusCmd    `cmd:""`
	Doctor    doctorCmd    `cmd:""`
	Verify    verifyCmd    `cmd:""`
	Drain     drainCmd     `cmd:""`
	Resume    resumeCmd    `cmd:""`
	Prepare   prepareCmd   `cmd:"" hidden:""`
	Disk      diskCmd      `cmd:"" hidden:""`
	Watch     watchCmd     `cmd:"" hidden:""`
	Ready     readyCmd     `cmd:"" hidden:""`
	Secretd   secretdCmd   `cmd:""`
	Compose   composeCmd   `cmd:""`
	Facts     factsCmd     `cmd:""`
	Version   versionCmd   `cmd:""`

	Image     imageCmds    `cmd:""`
	Proxy     proxyCmd     `cmd:""`
	Gate      gateCmd      `cmd:""`
	Bootstrap bootstrapCmd `cmd:""`
	Reap      reapCmd      `cmd:""`
}

func program() cli.Program {
	return cli.Program{Name: "kbnode", Grammar: &grammar{}, Help: help}
}

var help = cli.Pages(map[string]cli.Page{
	"": {Text: `kbnode looks after a vendor's GPU node.

usage:
  kbnode preflight             whether this machine can be set up
  kbnode plan FILE             what apply would change, for a queue file
  kbnode apply FILE            make each GPU of this machine an agent
  kbnode upgrade               another kbnode or agent, slot by slot
  kbnode undo                  make the machine what it was
  kbnode adopt                 take over what older scripts set up
  kbnode status                what each slot does now
  kbnode doctor                what is wrong, and what mends it
  kbnode verify                prove it with jobs on every slot at once
  kbnode drain | resume        take slots out of use, and back
  kbnode secretd               hand secrets to the steps that may have them
  kbnode compose FILE NODE     agents in containers: a docker compose file
  kbnode facts                 what this machine is, as JSON or a queue file
  kbnode image                 which images run, update, rollback, gc
  kbnode gate | bootstrap | proxy | reap     what units and hooks call
  kbnode completion SHELL      for bash, zsh or fish
  kbnode man                   all help pages, for man(1)
  kbnode version --verify SHA256SUMS --key KEY
                               check kbnode's programs against a release
  kbnode COMMAND --help | kbnode --version

exit status: 0 done, 1 failed, 2 wrong usage
`},
	"image": {
		Usage: `kbnode image status [--json]
kbnode image update (REFERENCE... | --all) [--local] [--free GIB]
kbnode image rollback REFERENCE
kbnode image gc`,
		Text: `Which image runs where a step names a reference. An update pulls it beside
running jobs, tries it, and pins its ID: the next job has it, no agent is
restarted, and one that fails its trial changes nothing. Two images of a
reference stay. The timer kbnode-image updates all once a day.

An image has the digest that the queue file or the reference names, and is
pulled by it, once. A tag alone is pulled only if the queue file says
allow_tags: true. --local takes an image that was loaded by hand.

status:
{options status}

update:
{options update}

gc removes what kbnode pulled and no reference needs.

exit status: 0 done, 1 failed, or an image is not there, 2 wrong usage
example:
  kbnode image update --all`,
	},
	"gate": {
		Usage: "kbnode gate",
		Text: `Says whether the job may run on this slot; the agent's hook pre-bootstrap runs
it. A job's log shows nothing of that hook: where the agent's configuration
names kbnode bootstrap, which asks the same, the refusal is left to it. Reads
the job's variables from the file that BUILDKITE_ENV_JSON_FILE names, and the
slot from KBNODE_SLOT. A docker slot takes steps that kbgen writes: the pinned
docker plugin, with the settings that are the step's, and an image of the
slot's. A host slot takes the commands of its rows. No job sets PATH, BASH_ENV,
BUILDKITE_PLUGIN_* and the like. The slot's slice must have its limits.`,
		More: `exit status: 0 it may run, 1 it may not; the reason is on stderr
example:
  BUILDKITE_ENV_JSON_FILE=job.json KBNODE_SLOT=gpu0 kbnode gate`,
	},
	"bootstrap": {
		Usage: "kbnode bootstrap",
		Text: `Runs a job on this slot if kbnode gate admits it; else the log says why not. It
takes the place of the agent's own bootstrap and of the docker plugin, so that
no shell on this machine reads the data of a container's job. It opens a sealed
payload by kbnode secretd, asks the slot's proxy for the container that the
plugin would start, and uploads the artifacts that are plain files. A slot
without containers runs one of its own commands instead, in bash. When the job
ends, its container and its directory are gone. The agents' configuration names
this command as bootstrap-script. The slot is KBNODE_SLOT's, and the user must
be that slot's.`,
		More: `exit status: the job's; 78 it is refused, 75 the slot is not fit for it
example:
  bootstrap-script="/usr/bin/kbnode bootstrap"`,
	},
	"proxy": {
		Usage: "kbnode proxy --slot NAME",
		Text: `Answers kbnode bootstrap as the docker engine would, on the socket that systemd
hands over. Containers run as the slot's user, in its slice, with its devices,
cores and memory, from pinned images, without network; they see the job's
directory and nothing else of the machine. What the last job left is removed
before a container is made. What a slot may not do is answered with the reason,
which stands in the job's log.`,
		Example: "kbnode proxy --slot gpu0",
	},
	"reap": {
		Usage: "kbnode reap --slot NAME [--timeout DURATION]",
		Text: `Removes what a slot's jobs left behind: containers, and all files in the
directories of the slot's user. Each agent's unit runs it after the agent stops.
For a slot without containers it first copies the job's record from the journal
to /var/lib/kbnode/audit.`,
		Example: "kbnode reap --slot gpu0",
	},
	"preflight": {
		Usage: "kbnode preflight [--endpoint URL] [--json] [--root DIR]",
		Text: `Prints a checklist of this machine before it is set up, with the command that
mends each fault: distribution, kernel, systemd, control groups, docker, GPUs
and their drivers, versions with known vulnerabilities, swap, disk, the clock,
the addresses that agents need, and other agents. It needs no queue file and
changes nothing. kbnode doctor checks a machine that is set up.`,
		More: `exit status: 0 no check failed (there may be warnings), 1 a check failed,
2 wrong usage`,
		Example: "sudo kbnode preflight",
	},
	"plan": {
		Usage: "kbnode plan [FILE] [flag ...]",
		Text: `Prints what kbnode apply would do to this machine with the same flags: what is
missing or refused, then for each slot and for all slots which files change and
which units restart, and why. --diff prints each change, files as diffs. It
changes nothing. The token is not needed, and never shown.

kbnode apply remembers FILE, --node, --endpoint, --verification-jwks and
--allow-small. An empty --endpoint or --verification-jwks clears the remembered
value.`,
		More: `exit status: 0 nothing to do, 1 failed, 2 changes, or something is missing;
wrong usage is 2 as well, with "kbnode: error:" on stderr and nothing on stdout`,
		Example: "sudo kbnode plan h100-01.yml --node h100-01",
	},
	"apply": {
		Usage: "kbnode apply [FILE] [--node NAME] [--token-file FILE] [flag ...]",
		Text: `Makes each GPU of this machine an agent, as FILE, a queue file, says: what
kbnode plan prints. Agents end their jobs before they stop. A second run changes
nothing. A run after an interrupted one continues it. kbnode undo reverts it.

It remembers FILE, --node, --endpoint, --verification-jwks and --allow-small.
An empty --endpoint or --verification-jwks clears the remembered value. Without
verification keys, steps need no signature.`,
		Example: "sudo kbnode apply h100-01.yml --node h100-01 --token-file token",
	},
	"upgrade": {
		Usage: "kbnode upgrade [--agent FILE --agent-sha256 HEX] [flag ...]",
		Text: `Installs this kbnode with the queue file and the settings of the last apply, and
replaces the agent with FILE if kbnode installed the current one. Each slot ends
its job and starts again before the next slot stops. If a slot does not start,
the slots after it are left alone. If docker has to restart, all agents stop
first.`,
		Example: "sudo ./kbnode upgrade --agent ./buildkite-agent --agent-sha256 HEX",
	},
	"undo": {
		Usage: "kbnode undo [--purge] [--force] [flag ...]",
		Text: `Makes the machine what it was before the first kbnode apply or adopt: agents end
their jobs and stop, files have their old content, mode and owner, or are gone,
what ran before runs again. What was changed by hand since is listed, and then
nothing is done. Of docker's daemon.json it takes out features.cdi alone.`,
		Example: "sudo kbnode undo --purge",
	},
	"adopt": {
		Usage: "kbnode adopt [--drain DURATION] [--root DIR]",
		Text: `Takes over what Kernelbot's older scripts set up: the agents
buildkite-agent-gpuN and buildkite-agent@gpuN end their jobs, stop, and start at
boot no more; files with their token become root's alone; the token is kept for
kbnode apply. Their files stay where they are. kbnode undo brings all back.`,
		Example: "sudo kbnode adopt && sudo kbnode apply h100-01.yml",
	},
	"disk": {
		Usage: "kbnode disk --slot NAME",
		Text: `Makes the image that is mounted as the slot's disk. The content of an older
image is lost. kbnode-disk@.service runs it.`,
		Example: "kbnode disk --slot gpu0",
	},
	"facts": {
		Usage: "kbnode facts [--queue-file] [--root DIR]",
		Text: `Prints what the machine is, as JSON: distribution, kernel, systemd, processors
with their cores and NUMA nodes, memory, disks, GPUs with UUID, PCI address,
device nodes and MIG instances, docker, CDI, the agent, and what kbnode or
Kernelbot's older scripts have set up. What could not be read is in "unread".

It changes nothing. As root it sees more: docker, for one.

--queue-file prints a queue file instead: GPUs by UUID, with the type that their
names have in kbgen gpus, and an agent for each. Agents share the CPUs, memory
and disk that the host does not need. Correct vendor, contacts and network,
which kbnode cannot know. A GPU that matches no row is listed in a comment at
the end.`,
		Example: "sudo kbnode facts --queue-file > node.yml",
	},
	"version": {
		Usage: "kbnode version [--verify SHA256SUMS --key KEY]",
		Text: `Prints the version. With --verify it checks the signature of a release's
SHA256SUMS instead, and that kbnode and kbgen's other programs beside it are
listed there.

{options}

A changed kbnode could say anything here: check the package with minisign and
sha256sum before the first installation.`,
		More: `exit status: 0 all are of the release, 1 one is not, 2 wrong usage
example:
  kbnode version --verify SHA256SUMS --key RW...`,
	},
	"status": {
		Usage: "kbnode status [--json]",
		Text: `Says what each slot does: idle, busy, paused, starting, stopping or down; its
job, how often its agent was started again, whether its device is in order,
which of kbnode's files were changed by hand, and the settings of the last
apply.`,
		Example: `kbnode status --json | jq '.slots[] | select(.state == "paused")'`,
	},
	"doctor": {
		Usage: `kbnode doctor [--slot NAME] [--preflight | [--deep] [--submit]]
[--all | --json]`,
		Text: "Says what is wrong with this machine or a slot, and the command that mends it.",
		More: `exit status: 0 nothing is wrong (warnings may stand there), 1 something is
example:
  kbnode doctor --slot gpu3`,
	},
	"verify": {
		Usage: "kbnode verify [SLOT ...] [--timeout DURATION] [--json]",
		Text: `Proves this machine with jobs, on all slots at once or on those named. It drains
them, turns their own agents to a stand-in for Buildkite on this machine, has
each take the steps that kbgen writes, and turns the agents back:

  container   what a submission must not be able to do, tried inside; the
              limits, read from outside; no two slots with one device
  isolation   the same by kbgen's own step and the agent
  proof       whether kbrun's isolated harness works on the slot's GPU
  evaluation  a right and a wrong submission; both get their verdict, and
              result.json arrives

A slot that is paused is not tried. Nothing is sent to Buildkite: the stand-in
is kblocal, from beside kbnode or from PATH. Ended by force, it leaves the
agents turned away until the next verify, apply or reboot; doctor says so.`,
		More: `exit status: 0 all is as promised, 1 it is not
example:
  kbnode verify`,
	},
	"drain": {
		Usage: "kbnode drain [SLOT ...] [--reason TEXT] [--timeout DURATION] [--no-wait]",
		Text: `Has slots end the job in hand and take no other, all slots for no name. They
stay so over reboots, until kbnode resume.`,
		Example: `kbnode drain gpu3 --reason "fan exchange"`,
	},
	"resume": {Text: `usage: kbnode resume [SLOT ...]

Has slots take jobs again, all slots for no name. A slot whose device is not in
order stays as it is: its agent's preflight says why.

example:
  kbnode resume gpu3
`},
	"prepare": {
		Usage: "kbnode prepare [--wait DURATION]",
		Text: `For kbnode-prepare.service: waits until the drivers have made the device nodes
of all slots, then has systemd read the slices again.`,
		Example: "kbnode prepare",
	},
	"ready": {
		Usage: "kbnode ready",
		Text: `For kbnode-agent@.service: fails if the slot of KBNODE_SLOT cannot run jobs,
because its directory is not writable or the docker engine does not answer. The
agent does not register then.`,
		Example: "KBNODE_SLOT=gpu0 kbnode ready",
	},
	"watch": {
		Usage: "kbnode watch [--text-file FILE]",
		Text: `For kbnode-check.service: takes slots out of use whose devices are not in order,
with the reason, and writes figures for Prometheus' node exporter.`,
		Example: "kbnode watch --text-file /var/lib/prometheus/node-exporter/kbnode.prom",
	},
	"secretd": {
		Usage: `kbnode secretd [--config FILE] [--socket PATH] [--check]
kbnode secretd --unit | --socket-unit`,
		Text: `Answers steps that ask for a secret (kbgen secret get). Runs as root with the
node's private keys, on the socket that systemd hands over, else on PATH. Logs
who asked for what and what was decided, never a value.`,
		More: `The config, YAML:
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
  old:                     jobs that get SECRET_* in the old formats;
    pipelines: [UUID]      needs oidc
    refs: [refs/heads/main]
    steps: [KEY]
    sources: [api]         (default: all)`,
		Example: "kbnode secretd --check",
	},
	"compose": {
		Usage: `kbnode compose FILE NODE --image IMAGE... [flag ...]
kbnode compose --unit | --dockerfile`,
		Text: `Prints the docker compose file for a node of a queue file (docs/vendors.md): an
agent in a container for each slot, gpu0 and up. An agent takes one job and
ends; agent@.service (--unit) makes the next container. A job can read neither
the agent's token nor a docker socket, and writes to memory only.`,
		More: `If the queue file has count or indexes, run this on the node itself, because it
reads the UUIDs of the NVIDIA GPUs there. AMD GPUs are not supported yet,
because a queue file does not name their render nodes.`,
		Example: "kbnode compose h100-01.yml h100-01 --image kbgen-agent:cuda-13.0 > compose.yml",
	},
})
