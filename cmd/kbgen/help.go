package main

import "github.com/gpu-mode/kbgen/cmd/internal/cli"

var help = cli.Pages(map[string]cli.Page{
	"": {Text: `kbgen makes Buildkite pipelines for GPU kernel submissions, and checks them.

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
`},
	"check": {
		Usage: "kbgen check [options] FILE|-...",
		Text: `Applies every rule to pipelines, also to those that kbgen did not write: their
format, dependencies, limits, variables, retries, plugins, secrets. A file may
hold several documents. docs/rules.md explains the rules.`,
		Titled: true,
		More: `A comment in the file can allow a finding, for its line or its step:
  privileged: true # kbgen:allow KB205 needs performance counters

stdout: the findings
exit status: 0 nothing found, 1 failed, 2 wrong usage, 3 findings`,
		Example: "kbgen check .buildkite/*.yml",
	},
	"upload": {
		Usage: "kbgen upload [PIPELINE] [options]",
		Text: `Renders a pipeline (default: evaluate), checks it, hands it to the job's agent.
A retried job leaves out what an earlier one has uploaded.`,
		Titled: true,
		More:   "exit status: 0 uploaded, 1 failed, 2 wrong usage, 3 a check failed, 5 refused",
	},
	"render": {
		Usage: "kbgen render PIPELINE [options]",
		Text: `Renders a pipeline, checks it, and prints it for "buildkite-agent pipeline
upload" with interpolation, the agent's default.`,
		Titled: true,
		More: `stdout: the pipeline. When kbgen fails and stdout is not a terminal: one line
that the agent refuses, so that a pipe without pipefail fails as well.
exit status: 0 done, 1 failed, 2 wrong usage, 3 a check failed`,
		Example: "kbgen render evaluate --gpu H100_BK | buildkite-agent pipeline upload",
	},
	"plan": {
		Usage: "kbgen plan PIPELINE [options]",
		Text: `Prints a table of the steps: key, queue, GPU type, timeout, tries and
GPU-minutes in the worst case, image.`,
		Titled: true,
		More:   "exit status: 0 done, 1 failed, 2 wrong usage",
	},
	"explain": {
		Usage: "kbgen explain STEP[.FIELD] [options]",
		Text: `Says for each value of a step which layer decided it: product, vendor, row,
kind, pipeline, command line; later ones beat earlier ones. Looks through all
pipelines and all GPU types, those switched off included.`,
		Titled:  true,
		More:    "exit status: 0 done, 1 failed, 2 wrong usage",
		Example: "kbgen explain evaluate-h100.timeout_in_minutes",
	},
	"diff": {
		Usage: `kbgen diff OLD NEW [options]
kbgen diff REVISION [--dir testdata/golden] [options]`,
		Text: `Compares what two pipelines mean, step by step and value by value: two files
(- is stdin), or all goldens of a git revision with those of the working tree.
Order of steps, comments and quotes do not count. A change that many goldens
share is told once.`,
		More: `stdout: "+" added, "-" removed, else old → new
exit status: 0 the same, 1 different or failed, 2 wrong usage`,
		Example: "kbgen diff main",
	},
	"golden": {
		Usage: "kbgen golden [PIPELINE]... [--update] [--dir testdata]",
		Text: `Renders every scenario (testdata/scenarios/PIPELINE.NAME.env) and compares with
testdata/golden/PIPELINE/GPU.yml, or GPU.NAME.yml. Missing goldens and those of
no scenario are faults as well.`,
		More: "exit status: 0 the same, 1 failed, 2 wrong usage, 4 different",
	},
	"gpus": {
		Usage: "kbgen gpus [--json]",
		Text: `Lists the GPU types, one line each, in the order in which ALL renders them.
With --json all of each row (kbgen schema gpus).`,
		More: "exit status: 0 done, 2 wrong usage",
	},
	"kinds": {
		Usage: "kbgen kinds [--json]",
		Text:  "Lists the kinds of steps, and the pipelines made of them.",
		More:  "exit status: 0 done, 2 wrong usage",
	},
	"queues": {
		Usage: "kbgen queues [--json]",
		Text:  "Lists the queues that steps are sent to, and what each serves.",
		More:  "exit status: 0 done, 2 wrong usage",
	},
	"image": {Text: `usage: kbgen image cuda|rocm|cpu [--base]
       kbgen image rootfs

Prints the Dockerfile of a runner image; --base prints the image it is built on,
whose digest the build is given as BASE_DIGEST. The CPU image is built on a
minimal Debian, which the script that "kbgen image rootfs" prints makes from
packages, for machines that reach a Debian mirror and no registry.

exit status: 0 done, 1 failed, 2 wrong usage

example, a base for "kbgen image cpu":
  kbgen image rootfs > rootfs.sh && sudo sh rootfs.sh base.tar
  docker import base.tar kbgen-base:1
`},
	"schema": {
		Usage: "kbgen schema [DOCUMENT] | --list",
		Text: `Prints a JSON Schema: of pipelines (the default) as kbgen check checks them, one
definition for each type of step; of result.json, task.yml, queue files, the
payload; and of what commands print with --json.`,
		More:    "exit status: 0 done, 2 wrong usage",
		Example: "kbgen schema result > result.schema.json",
	},
	"completion": {Text: `usage: kbgen completion bash|zsh|fish

Prints a script that completes kbgen's commands, flags and GPU types.

exit status: 0 done, 2 wrong usage

example:
  kbgen completion bash > /etc/bash_completion.d/kbgen
`},
	"vendor": {Text: `usage:
  kbgen vendor init --gpu NAME [options] > FILE    write a queue file
  kbgen vendor check FILE...                       say all that is wrong with it

A queue file says what a vendor lends: machines, GPUs, the queue, CPUs, memory,
disk, network, and who to ask. docs/vendors.md explains it line by line. init
plans a machine by its numbers; on the machine itself, kbnode facts --queue-file
writes the file with the GPUs that are there.

options of init:
{options init}

options of check:
{options check}

FILE may be -, without --live. Files given together are compared too.
stdout: the file; the faults, notes among them
exit status: 0 done, 1 failed, 2 wrong usage, 3 a fault was found

example:
  kbgen vendor init --gpu H100_BK --count 8 > node.yml
  kbgen vendor check node.yml
`},
})
