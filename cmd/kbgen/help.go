package main

var help = map[string]string{
	"": `kbgen makes the Buildkite pipeline that evaluates a kernel submission.

usage:
  kbgen upload evaluate [--gpu NAME]   render, check, hand over to the agent
  kbgen render evaluate [--gpu NAME]   render, check, print
  kbgen gpus                           list the GPU types
  kbgen COMMAND --help | kbgen --version

Stdout carries the pipeline only. It is printed whole, after it has passed
every check, or not at all.

exit status: 0 done, 1 failed, 2 wrong usage; upload: also the agent's own

example, the first step of a build:
  command: kbgen upload evaluate
`,
	"upload": `usage: kbgen upload evaluate [options]

Renders the evaluate pipeline, checks it, and hands it to
"buildkite-agent pipeline upload". Runs inside a Buildkite job.

` + evaluateOptions + `  --agent PATH          the agent to run (default: buildkite-agent in
                        $BUILDKITE_BIN_PATH, else on PATH)
  --dry-run             print the pipeline instead; needs no job and no agent

stdout: what the agent prints, or the pipeline with --dry-run
exit status: 0 uploaded, 1 failed, 2 wrong usage, else the agent's own

example:
  KERNELBOT_GPU=H100_BK kbgen upload evaluate --dry-run
`,
	"render": `usage: kbgen render evaluate [options]

Renders the evaluate pipeline, checks it, and prints it for
"buildkite-agent pipeline upload" with interpolation, the agent's default.

` + evaluateOptions + `  --format yaml|json    json is safer in a pipe: cut short, it parses nowhere

stdout: the pipeline. When kbgen fails and stdout is not a terminal: one line
that the agent refuses, so that a pipe without pipefail fails as well.
exit status: 0 done, 1 failed, 2 wrong usage

example:
  kbgen render evaluate --gpu H100_BK | buildkite-agent pipeline upload
`,
	"gpus": `usage: kbgen gpus

Lists the GPU types, one line each, in the order in which ALL renders them.

exit status: 0 done, 2 wrong usage
`,
}

const evaluateOptions = `options:
  --gpu NAME            GPU type; again, or NAME,NAME, for several; ALL for each
                        (default $KERNELBOT_GPU, else the GPU type whose queue
                        is $KERNELBOT_QUEUE or $GPU_QUEUE; all that are set
                        must agree)
  --image REF           replaces the image of docker steps; needs a digest or
                        a tag other than latest ($KERNELBOT_IMAGE)
  --payload-chunks N    the payload comes in N variables, KERNELBOT_PAYLOAD_0
                        and so on, at most 16 ($KERNELBOT_PAYLOAD_CHUNKS)
`
