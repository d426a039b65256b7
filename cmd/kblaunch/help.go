package main

import "github.com/gpu-mode/kbgen/cmd/internal/cli"

const statuses = `exit status:
  0  the submission passed; with several, all did
  1  one did not: wrong, crashed, too slow, does not compile, ...
  2  wrong usage, or a task or submission that cannot be used
  3  trouble: no verdict. The machine, the pipeline, the API, a timeout, Ctrl-C
`

var help = cli.Pages(map[string]cli.Page{
	"": {Text: `kblaunch sends kernel submissions to Buildkite and prints their verdicts.

usage:
  kblaunch submit TASK SUBMISSION --gpu NAME [--mode MODE]
  kblaunch watch RUN...     wait for runs that were made before
  kblaunch list             the builds of launchers, and what became of them
  kblaunch result RUN       the verdict, or result.json, of a run that is over
  kblaunch log RUN          what its machine printed
  kblaunch cancel RUN...
  kblaunch retry RUN        start what did not pass again
  kblaunch compare A B      the times of two results
  kblaunch examples         list the tasks that come with it
  kblaunch queues           queues and agents, or vendors' queue files checked
  kblaunch completion bash|zsh|fish | man
  kblaunch COMMAND --help | kblaunch --version

A RUN is the number of a build, or a run id.

exit status: 0 the submission passed, 1 it did not, 2 wrong usage,
             3 trouble: there is no verdict

example:
  kblaunch submit vectoradd_py right --gpu CPU_BK
`},
	"submit": {
		Usage: `kblaunch submit TASK SUBMISSION --gpu NAME [options]
kblaunch submit SUBMISSION [options]`,
		Text: `Makes a build for a submission on each GPU type, waits, fetches the results of
exactly these runs and prints the verdicts. What it gives up on, it cancels.

TASK is a folder with a task.yml, or an example (kblaunch examples). SUBMISSION
is a file, - for standard input, or the name of an example's submission. A file
may say where it belongs in the comment that it begins with:
  #!POPCORN leaderboard TASK
  #!POPCORN gpus NAME...`,
		Titled: true,
		More: `The API token is read from BUILDKITE_API_TOKEN only. It needs the scopes
write_builds, read_builds and read_artifacts; with read_build_logs a build
without a result is explained by the end of its log, with read_agents a wait by
who serves the queue.

` + statuses + `
example:
  kblaunch submit vectoradd_py right --gpu CPU_BK --mode leaderboard`,
	},
	"watch": {
		Usage: "kblaunch watch RUN... [options]",
		Text: `Waits for runs that were made before, by --detach or by somebody else, and
prints their verdicts as submit does. Ctrl-C ends the waiting, not the runs.`,
		Titled: true,
		More: statuses + `
example:
  kblaunch watch 4711`,
	},
	"list": {
		Usage: "kblaunch list [options]",
		Text: `Lists the builds that launchers made, the newest first: state, outcome of the
run, GPU type, mode, age, run id.`,
		Titled: true,
		More:   "exit status: 0 done, 2 wrong usage, 3 trouble",
	},
	"result": {
		Usage:  "kblaunch result RUN [options]",
		Text:   `Prints the verdict of a run that is over.`,
		Titled: true,
		More:   statuses,
	},
	"log": {
		Usage: "kblaunch log RUN [options]",
		Text: `Prints what the job that judges has printed, as far as it is; without one that
has begun, the logs of the jobs before it. Needs the scope read_build_logs.`,
		Titled: true,
		More:   "exit status: 0 done, 2 wrong usage, 3 trouble",
	},
	"cancel": {
		Usage:  "kblaunch cancel RUN... [options]",
		Text:   "Cancels builds. One that is over stays as it is, and that is said.",
		Titled: true,
		More:   "exit status: 0 done, 2 wrong usage, 3 trouble",
	},
	"retry": {
		Usage: "kblaunch retry RUN [options]",
		Text: `Starts the jobs of a build again that failed, timed out, expired or were
canceled one by one, and waits for the run's result. The run keeps its id. A
submission that was judged, or whose build was canceled, is not judged again so:
submit it anew, under another run id.`,
		Titled: true,
		More:   statuses,
	},
	"compare": {
		Usage: "kblaunch compare OLD NEW [options]",
		Text: `Compares the times of two results case by case, as benchstat does: medians with
95 % confidence intervals, and whether they differ (p < 0.05, by ranks; where a
harness kept no samples, by the errors of the means). OLD and NEW are files
(result.json, or what submit --json printed), builds, or run ids.`,
		Titled:  true,
		More:    "exit status: 0 done, 2 wrong usage, 3 nothing to compare",
		Example: "kblaunch compare before.json after.json",
	},
	"examples": {
		Usage: "kblaunch examples [--json]",
		Text: `Lists the tasks that come with kblaunch: name, language, submissions, and what
to do. Any of them serves as TASK.`,
		More: "exit status: 0 done, 2 wrong usage",
	},
	"queues": {
		Usage: "kblaunch queues [--check FILE]...",
		Text: `Lists the organization's queues with their agents. With --check it compares
what queue files promise with what is connected, and says what is missing: a
queue that does not exist or is paused, an agent that is not there, is paused
or has other tags, two agents on one GPU. kbgen vendor check says whether the
files themselves are right.`,
		Titled: true,
		More: `The API token is read from BUILDKITE_API_TOKEN only. It needs the scopes
read_clusters and read_agents.

stdout: the queues, or the faults and a line for each queue promised
exit status:
  0  done; with --check: everything promised is there
  1  with --check: something is missing
  2  wrong usage, or a file with an error of its own
  3  trouble: the API gave no answer`,
		Example: "kblaunch queues --check node.yml",
	},
})
