package main

var help = map[string]string{
	"": `kbgen makes Buildkite pipelines for GPU kernel submissions, and checks them.

usage:
  kbgen upload [PIPELINE]      render, check, hand over to the agent
  kbgen render PIPELINE        render, check, print
  kbgen plan PIPELINE          a table: queues, timeouts, GPU-minutes
  kbgen explain STEP[.FIELD]   where the values of a step come from
  kbgen diff OLD [NEW]         what changed between two pipelines
  kbgen check FILE|-...        hold pipelines, also foreign ones, to the rules
  kbgen golden                 compare testdata/golden with what is rendered
  kbgen vendor init|check      a vendor's queue file, checked
  kbgen gpus | kinds | queues  list what there is
  kbgen secret COMMAND         values that only the vendors' nodes can read
  kbgen image KIND             the Dockerfile of a runner image: cuda, rocm, cpu
  kbgen schema [DOCUMENT]      JSON Schemas: of pipelines, results, --json
  kbgen completion SHELL       for bash, zsh or fish
  kbgen man                    all help pages, for man(1)
  kbgen COMMAND --help | kbgen --version

pipelines: evaluate, smoke, isolation, image, bootstrap, ci (see kbgen kinds)

Stdout carries the pipeline only. It is printed whole, after it has passed
every check, or not at all.

exit status: 0 done, 1 failed, 2 wrong usage, 3 a check failed, 4 goldens
differ, 5 the agent refused the upload

example, the first step of a build:
  command: kbgen upload evaluate
`,
	"check": checkHelp,
	"upload": `usage: kbgen upload [PIPELINE] [options]

Renders a pipeline (default: evaluate), checks it, hands it to the job's agent.
A retried job leaves out what an earlier one has uploaded.
` + requestOptions + `  --relay              wait for the evaluation and show its result.json and exit
                       status as this job's, which needs a queue of its own
  --expect-version V   fail when this is not kbgen V
  --agent PATH         not the job's, or PATH's, buildkite-agent
  --dry-run            print the pipeline instead; needs no job and no agent
  --max-jobs N         jobs in one document, further ones follow (default 500)
  --replace            drop the build's steps that have not begun
  --allow-empty        nothing to do is no error with --gpu ALL
  --no-artifact        do not keep pipeline.yml as an artifact of this job
  --metrics FILE       write what was done, as OpenMetrics
  --jwks-file PATH, --jwks-key-id ID, --signing-aws-kms-key ID,
  --signing-gcp-kms-key ID   sign the steps: handed to the agent
exit status: 0 uploaded, 1 failed, 2 wrong usage, 3 a check failed, 5 refused
`,
	"render": `usage: kbgen render PIPELINE [options]

Renders a pipeline, checks it, and prints it for "buildkite-agent pipeline
upload" with interpolation, the agent's default.

` + requestOptions + `  --format yaml|json   json is safer in a pipe: cut short, it parses nowhere
  --max-jobs N         jobs in one document, further ones follow (default 500)
  --static, --relay    bootstrap only: for launchers that look for the result in
                       a build's first job, which judges, or waits and shows it
  --expect-version V   bootstrap only: insist on kbgen V (default: this release)

stdout: the pipeline. When kbgen fails and stdout is not a terminal: one line
that the agent refuses, so that a pipe without pipefail fails as well.
exit status: 0 done, 1 failed, 2 wrong usage, 3 a check failed

example:
  kbgen render evaluate --gpu H100_BK | buildkite-agent pipeline upload
`,
	"plan": `usage: kbgen plan PIPELINE [options]

Prints a table of the steps: key, queue, GPU type, timeout, tries and
GPU-minutes in the worst case, image.

` + requestOptions + `  --json               the same as JSON

exit status: 0 done, 1 failed, 2 wrong usage
`,
	"explain": `usage: kbgen explain STEP[.FIELD] [options]

Says for each value of a step which layer decided it: product, vendor, row,
kind, pipeline, command line; later ones beat earlier ones. Looks through all
pipelines and all GPU types, those switched off included.

` + requestOptions + `
exit status: 0 done, 1 failed, 2 wrong usage

example:
  kbgen explain evaluate-h100.timeout_in_minutes
`,
	"diff": `usage: kbgen diff OLD NEW [options]
       kbgen diff REVISION [--dir testdata/golden] [options]

Compares what two pipelines mean, step by step and value by value: two files
(- is stdin), or all goldens of a git revision with those of the working tree.
Order of steps, comments and quotes do not count. A change that many goldens
share is told once.

  --markdown           a table, for a comment on a pull request
  --json               see kbgen schema diff

stdout: "+" added, "-" removed, else old → new
exit status: 0 the same, 1 different or failed, 2 wrong usage

example:
  kbgen diff main
`,
	"golden": `usage: kbgen golden [PIPELINE]... [--update] [--dir testdata]

Renders every scenario (testdata/scenarios/PIPELINE.NAME.env) and compares with
testdata/golden/PIPELINE/GPU.yml, or GPU.NAME.yml. Missing goldens and those of
no scenario are faults as well.

  --update   rewrite them; refused when $CI is true. make golden does this, and
             rewrites what the other packages' tests compare with

exit status: 0 the same, 1 failed, 2 wrong usage, 4 different
`,
	"gpus": `usage: kbgen gpus [--json]

Lists the GPU types, one line each, in the order in which ALL renders them.
With --json all of each row (kbgen schema gpus).

exit status: 0 done, 2 wrong usage
`,
	"kinds": `usage: kbgen kinds [--json]

Lists the kinds of steps, and the pipelines made of them.

exit status: 0 done, 2 wrong usage
`,
	"queues": `usage: kbgen queues [--json]

Lists the queues that steps are sent to, and what each serves.

exit status: 0 done, 2 wrong usage
`,
	"image": `usage: kbgen image cuda|rocm|cpu [--base]
       kbgen image rootfs

Prints the Dockerfile of a runner image; --base prints the image it is built on,
whose digest the build is given as BASE_DIGEST. The CPU image is built on a
minimal Debian, which the script that "kbgen image rootfs" prints makes from
packages, for machines that reach a Debian mirror and no registry.

exit status: 0 done, 1 failed, 2 wrong usage

example, a base for "kbgen image cpu":
  kbgen image rootfs > rootfs.sh && sudo sh rootfs.sh base.tar
  docker import base.tar kbgen-base:1
`,
	"schema": `usage: kbgen schema [DOCUMENT] | --list

Prints a JSON Schema: of pipelines (the default) as kbgen check checks them, one
definition for each type of step; of result.json, task.yml, queue files, the
payload; and of what commands print with --json.

  --list               all documents that have one

exit status: 0 done, 2 wrong usage

example:
  kbgen schema result > result.schema.json
`,
	"completion": `usage: kbgen completion bash|zsh|fish

Prints a script that completes kbgen's commands, flags and GPU types.

exit status: 0 done, 2 wrong usage

example:
  kbgen completion bash > /etc/bash_completion.d/kbgen
`,
	"vendor": helpVendor,
}

const requestOptions = `options:
  --gpu NAME           GPU type; again, or NAME,NAME, for several; ALL for each
                       (default $KERNELBOT_GPU, else the one whose queue is
                       $KERNELBOT_QUEUE or $GPU_QUEUE; all set must agree)
  --include-off        GPU types that are switched off as well
  --image REF          replaces the rows' image; pinned ($KERNELBOT_IMAGE)
  --image-policy P     of one that a build may not name: row (default), refuse
  --payload-chunks N, --mode, --run-id, --user, --timeout-seconds
                       of the run ($KERNELBOT_PAYLOAD_CHUNKS, _MODE, _RUN_ID;
                       a second, secret run: $KERNELBOT_SECRET_RUN_ID)
  --registry-secret S  pipeline image pushes with S, [buildkite:|kbsec1:]NAME
  --only KEY|PREFIX*, --tag TAG, --changed-since REVISION, --changed-files FILE
                       some steps, with what they depend on; the rest is skipped
`
