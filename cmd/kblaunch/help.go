package main

const helpProgram = `kblaunch sends kernel submissions to Buildkite and prints their verdicts.

usage:
  kblaunch submit TASK SUBMISSION --gpu NAME [--mode MODE]
  kblaunch examples       list the tasks that come with it
  kblaunch queues         list queues and agents, or check vendors' queue files
  kblaunch completion bash|zsh|fish | man
  kblaunch COMMAND --help | kblaunch --version

exit status: 0 the submission passed, 1 it did not, 2 wrong usage,
             3 trouble: there is no verdict

example:
  kblaunch submit vectoradd_py right --gpu CPU_BK
`

const helpSubmit = `usage: kblaunch submit TASK SUBMISSION --gpu NAME [options]

Makes a build for one submission, waits for it, fetches the result of exactly
this run and prints the verdict. What it gives up on, it cancels.

TASK is a folder with a task.yml, or the name of an example (kblaunch examples).
SUBMISSION is a file, or the name of one of the example's submissions.

options:
  --gpu NAME            GPU type (kbgen gpus lists them)
  --mode MODE           test, benchmark, profile, leaderboard or private;
                        default test
  --json                print result.json as it came, and nothing else
  --timing              print a table of phases and REST calls to stderr
  --seal FILE           KBLAUNCH_SEAL; seal the payload for the queues that FILE
                        names, so that only their nodes can read it: YAML with
                        version: 1, organization and pipeline (UUIDs), and below
                        queues, by key: recipients (a file of keys), and what
                        else a job must prove: id (the queue's UUID), steps,
                        refs, sources. docs/secrets.md has an example
  --timeout D           longest run on the machine, like 20m;
                        default: the GPU type's own limit and a minute
  --queue-timeout D     longest wait for a machine, bootstrap included;
                        default 30m
  --org SLUG            BUILDKITE_ORG; default gpu-mode
  --pipeline SLUG       BUILDKITE_PIPELINE; default kernelbot
  --api URL             KBLAUNCH_API_URL; default https://api.buildkite.com/
  --branch NAME         of the pipeline's repository; default main
  --commit REV          default HEAD

The API token is read from BUILDKITE_API_TOKEN only. It needs the scopes
write_builds, read_builds and read_artifacts; with read_build_logs a build
without a result is explained by the end of its log.

stdout: the verdict; times as mean ± error, best ⚡ and worst 🐌
stderr: progress, when it is a terminal; errors
exit status:
  0  the submission passed
  1  it did not: wrong, crashed, too slow, does not compile, ...
  2  wrong usage, or a task or submission that cannot be used
  3  trouble: no verdict. The machine, the pipeline, the API, a timeout, Ctrl-C

example:
  kblaunch submit vectoradd_py right --gpu CPU_BK --mode leaderboard
`

const helpExamples = `usage: kblaunch examples

Lists the tasks that come with kblaunch: name, language, submissions, and what
to do. Any of them serves as TASK.

exit status: 0 done, 2 wrong usage
`

const helpQueues = `usage: kblaunch queues [--check FILE]...

Lists the organization's queues with their agents. With --check it compares
what queue files promise with what is connected, and says what is missing: a
queue that does not exist or is paused, an agent that is not there, is paused
or has other tags, two agents on one GPU. kbgen vendor check says whether the
files themselves are right.

options:
  --check FILE          a queue file; again for several
  --json                an array: kbgen schema agents, with --check findings
  --org SLUG            BUILDKITE_ORG; default gpu-mode
  --api URL             KBLAUNCH_API_URL; default https://api.buildkite.com/

The API token is read from BUILDKITE_API_TOKEN only. It needs the scopes
read_clusters and read_agents.

stdout: the queues, or the faults and a line for each queue promised
exit status:
  0  done; with --check: everything promised is there
  1  with --check: something is missing
  2  wrong usage, or a file with an error of its own
  3  trouble: the API gave no answer

example:
  kblaunch queues --check node.yml
`
