package main

var help = map[string]string{
	"": `kblocal - run Buildkite pipelines offline, with real agents

usage: kblocal run FILE|-              run one pipeline, print its job logs
       kblocal up                      serve until interrupted, print what to export
       kblocal exec -- COMMAND [ARG]   serve while COMMAND runs
       kblocal agent                   print a configuration for an agent of your own
       kblocal completion bash|zsh|fish | man
       kblocal COMMAND --help | kblocal --version

Everything listens on loopback only and lies in one directory. Tokens are new
with every start. What Buildkite offers and kblocal does not (cache volumes,
teams, ...) is refused with the reason, never ignored; notify is
recorded and not sent.

example: kblocal run .buildkite/pipeline.yml --env KERNELBOT_GPU=CPU_BK
`,
	"run": `kblocal run - run one pipeline offline

usage: kblocal run FILE|- [options]

A first job uploads FILE with the real agent, as a bootstrap step would; agents
are started for every queue the steps ask for. In a git repository jobs get a
checkout of HEAD, elsewhere an empty directory.

{options}

stdout: job logs and one line per job, or with --json the build
exit status: 0 the build passed, 1 it did not, 2 wrong usage

example: kbgen render evaluate --gpu CPU_BK | kblocal run -
`,
	"up": `kblocal up - serve Buildkite's APIs on loopback

usage: kblocal up [options]

{options}

stdout: lines to export, for launchers and for agents of your own
stderr: what happens, with the lines of every job
exit status: 0 after an interrupt, 1 failed, 2 wrong usage

While it serves, with the API token as bearer token:
  GET, POST, DELETE /kblocal/faults    list, add {"rule": "..."}, clear
  POST /kblocal/agents/NAME/lose       declare an agent lost

An agent of your own registers with the configuration that kblocal agent prints;
DIR/buildkite-agent.cfg is one for this machine. A QEMU guest reaches this
machine as 10.0.2.2, with --port and --artifact-port fixed if it needs to know.

example: kblocal up --queue bootstrap=1 --queue cpu=2 --port 8900
`,
	"agent": `kblocal agent - print a configuration for an agent of your own

usage: kblocal agent [options] > buildkite-agent.cfg

For buildkite-agent start --config, on this machine, in a guest or in a
container. It holds the registration token: keep it to yourself.

{options}

stdout: the configuration
exit status: 0 printed, 1 no kblocal serves from DIR, 2 wrong usage

example: kblocal agent --host 10.0.2.2 --queue b200 > buildkite-agent.cfg
`,
	"exec": `kblocal exec - serve Buildkite's APIs while a command runs

usage: kblocal exec [options] -- COMMAND [ARG]...

COMMAND gets KBLAUNCH_API_URL, BUILDKITE_API_TOKEN, BUILDKITE_ORG and
BUILDKITE_PIPELINE in its environment and starts when the agents are connected.

{options}

exit status: the command's; 1 failed to serve, 2 wrong usage

example: kblocal exec -- kblaunch submit vectoradd_py right --gpu CPU_BK
`,
}
