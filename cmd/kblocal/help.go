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

  --env NAME=VALUE   build environment, may be repeated
  --env-file FILE    lines NAME=VALUE, or NAME to pass on; --env beats them
  --secrets-file F   the secret store: lines as of --env-file, never shown
  --step KEY         run this step only, others show as skipped; may be repeated
  --list             list the steps and run nothing
  --dry-run          print the pipeline as it would be uploaded and run nothing
  --watch            run again whenever FILE changes, until interrupted
  --unblock KEY      answer the block or input step KEY ('*' all of them)
  --field KEY=VALUE  an answer to a field of theirs, may be repeated
  --host docker      run steps of the docker plugin ON THIS MACHINE, without it
  --plugins DIR      take plugins from DIR/NAME and DIR/OWNER/NAME, git clones,
                     or from DIR/NAME@VERSION (bin/plugins beside kblocal)
  --here             run jobs in this directory instead of a checkout
  --agents N         agents per queue (2)
  --branch NAME      branch of the build (the current one, else main)
  --message TEXT     message of the build
  --timeout D        cancel the build after D, as 90s or 10m (none)
  --json             print the build as the REST API shows it; logs go to stderr
  --quiet            no job logs
  --dir DIR          keep state, logs and artifacts in DIR (a temporary directory)
  --agent PATH       buildkite-agent to use (KBLOCAL_AGENT; beside kblocal; PATH)

stdout: job logs and one line per job, or with --json the build
exit status: 0 the build passed, 1 it did not, 2 wrong usage

example: kbgen render evaluate --gpu CPU_BK | kblocal run -
`,
	"up": `kblocal up - serve Buildkite's APIs on loopback

usage: kblocal up [options]

` + serveHelp + `
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

  --dir DIR          state directory of the running kblocal up (KBLOCAL_DIR)
  --host HOST        how the agent reaches this machine, as 10.0.2.2 from a QEMU
                     guest (127.0.0.1)
  --queue NAME       queue of the agent (cpu)
  --tag KEY=VALUE    further tags, may be repeated
  --name NAME        name of the agent (its host's)
  --spawn N          how many agents the process runs (1)
  --base DIR         where the agent keeps checkouts, hooks and plugins
                     (/var/lib/buildkite-agent)

stdout: the configuration
exit status: 0 printed, 1 no kblocal serves from DIR, 2 wrong usage

example: kblocal agent --host 10.0.2.2 --queue b200 > buildkite-agent.cfg
`,
	"exec": `kblocal exec - serve Buildkite's APIs while a command runs

usage: kblocal exec [options] -- COMMAND [ARG]...

COMMAND gets KBLAUNCH_API_URL, BUILDKITE_API_TOKEN, BUILDKITE_ORG and
BUILDKITE_PIPELINE in its environment and starts when the agents are connected.

` + serveHelp + `  --verbose          show what happens on stderr

exit status: the command's; 1 failed to serve, 2 wrong usage

example: kblocal exec -- kblaunch submit vectoradd_py right --gpu CPU_BK
`,
}

const serveHelp = `  --queue NAME=N         N agents on queue NAME, may be repeated (bootstrap=1, cpu=1)
  --agents N             agents of each queue without an N; 0 starts none
  --pipeline SLUG=FILE   a pipeline with the steps of FILE, may be repeated
                         (kernelbot, whose step runs kbgen upload evaluate)
  --secrets-file FILE    the secret store: lines NAME=VALUE; may be repeated
  --checkout             jobs get a checkout of this git repository's HEAD
  --port N               port of the APIs and the page (any free one)
  --artifact-port N      port of the artifact store (any free one)
  --listen ADDRESS       another address than loopback's, for others to reach
  --reach NAME           a name by which browsers reach the page, may be repeated
  --org SLUG             organization (gpu-mode)
  --rate-limits          count REST calls and answer 429 as the service does
  --scopes LIST          scopes of the API token, as read_builds,write_builds (all)
  --lost-after DURATION  of silence, and an agent is lost (30s)
  --lenient              ignore unknown members of request bodies
  --webhook URL          post build.* and job.* events there
  --webhook-secret TEXT  key of their signature (KBLOCAL_WEBHOOK_SECRET)
  --webhook-copies N     how often each event is posted (1)
  --fault RULE           a fault to inject, may be repeated, as
                         'GET /v2/* status=500 count=2'
  --plugins DIR          take plugins from DIR/NAME and DIR/OWNER/NAME, git clones,
                         or from DIR/NAME@VERSION (bin/plugins beside kblocal)
  --dir DIR              keep state, logs and artifacts in DIR (a temporary directory)
  --agent PATH           buildkite-agent to use (KBLOCAL_AGENT; beside kblocal; PATH)
`
