package main

var help = map[string]string{
	"": `kblocal - run Buildkite pipelines offline, with real agents

usage: kblocal run FILE|-              run one pipeline, print its job logs
       kblocal up                      serve until interrupted, print what to export
       kblocal exec -- COMMAND [ARG]   serve while COMMAND runs
       kblocal completion bash|zsh|fish | man
       kblocal COMMAND --help | kblocal --version

Everything listens on loopback only and lies in one directory. Tokens are new
with every start. What Buildkite offers and kblocal does not (block, input,
trigger, matrix, secrets, ...) is refused with the reason, never ignored.

example: kblocal run .buildkite/pipeline.yml --env KERNELBOT_GPU=CPU_BK
`,
	"run": `kblocal run - run one pipeline offline

usage: kblocal run FILE|- [options]

A first job uploads FILE with the real agent, as a bootstrap step would; agents
are started for every queue the steps ask for. In a git repository jobs get a
checkout of HEAD, elsewhere an empty directory.

  --env NAME=VALUE   build environment, may be repeated
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
stdout: lines to export
stderr: what happens, with the lines of every job
exit status: 0 after an interrupt, 1 failed, 2 wrong usage

While it serves, with the API token as bearer token:
  GET, POST, DELETE /kblocal/faults    list, add {"rule": "..."}, clear
  POST /kblocal/agents/NAME/lose       declare an agent lost

example: kblocal up --queue bootstrap=1 --queue cpu=2 --port 8900
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
  --pipeline SLUG=FILE   a pipeline with the steps of FILE, may be repeated
                         (kernelbot, whose step runs kbgen upload evaluate)
  --checkout             jobs get a checkout of this git repository's HEAD
  --port N               port of the APIs and the page (any free one)
  --org SLUG             organization (gpu-mode)
  --rate-limits          count REST calls and answer 429 as the service does
  --scopes LIST          scopes of the API token, as read_builds,write_builds (all)
  --lenient              ignore unknown members of request bodies
  --webhook URL          post build.* and job.* events there
  --webhook-secret TEXT  key of their signature (KBLOCAL_WEBHOOK_SECRET)
  --webhook-copies N     how often each event is posted (1)
  --fault RULE           a fault on demand, may be repeated, as
                         'GET /v2/* status=500 count=2'
  --dir DIR              keep state, logs and artifacts in DIR (a temporary directory)
  --agent PATH           buildkite-agent to use (KBLOCAL_AGENT; beside kblocal; PATH)
`
