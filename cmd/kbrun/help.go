package main

const helpProgram = `kbrun judges a kernel submission on the machine it runs on.

Usage:
  kbrun evaluate [--payload-file FILE] [--out FILE] [--run-id ID]
  kbrun --version
  kbrun COMMAND --help

Exit status:
  0   there is a verdict, right or wrong; see outcome in result.json
  2   wrong usage
  75  the machine could not judge, or the job was ended; run it again elsewhere
  78  the payload or the job's configuration cannot work
`

const helpEvaluate = `Decode a payload, run its phases, write result.json. In a Buildkite job outside
of a container, then upload it and say how it ended.

Usage:
  kbrun evaluate [options]

Options:
  --payload-file FILE  read the payload from FILE, "-" is stdin: as encoded for
                       Buildkite, or its JSON
                       default: KERNELBOT_PAYLOAD, or KERNELBOT_PAYLOAD_0 and on
                       with _CHUNKS and _SHA256, or SUBMISSION_PAYLOAD
  --out FILE           where the result goes; default result.json
  --run-id ID          KERNELBOT_RUN_ID; needed in a Buildkite job
  --deadline TIME      KERNELBOT_DEADLINE; end by then, counted from the start,
                       like 14m; default 30s less than BUILDKITE_TIMEOUT

Stdout is for people: Buildkite log groups, one line per test, the verdict.
The submission sees none of these variables, nor any other that is not on an
allow-list (PATH, CUDA_*, HIP_*, ...).

In a Buildkite job (BUILDKITE_JOB_ID and BUILDKITE_AGENT_ACCESS_TOKEN are set)
buildkite-agent uploads the artifact, unless BUILDKITE_ARTIFACT_PATHS names it,
annotates the build and sets the meta-data key outcome:ID, after every process
of the submission is gone.

Exit status:
  0   there is a verdict, right or wrong; see outcome in result.json
  2   wrong usage
  75  the machine could not judge, or the job was ended; run it again elsewhere
  78  the payload or the job's configuration cannot work

Example:
  kbrun evaluate --payload-file payload.txt --run-id try-1
`
