package main

const helpProgram = `kbrun judges a kernel submission on the machine it runs on.

Usage:
  kbrun evaluate [--payload-file FILE] [--out FILE] [--run-id ID]
  kbrun payload decode|encode [FILE]
  kbrun doctor [--json]
  kbrun prove [--out FILE]
  kbrun completion bash|zsh|fish | man
  kbrun --version
  kbrun COMMAND --help

Exit status:
  0   there is a verdict, right or wrong; see outcome in result.json
  64  wrong usage
  75  the machine could not judge, or the job was ended; run it again elsewhere
  78  the payload or the job's configuration cannot work
`

const helpEvaluate = `Decode a payload, run its phases, write result.json. In a Buildkite job outside
of a container, then upload it and say how it ended.

Usage:
  kbrun evaluate [options]

Options:
{options}

Stdout is for people: Buildkite log groups, one line per test, the verdict.
The submission sees none of these variables, nor any other that is not on an
allow-list (PATH, CUDA_*, HIP_*, ...).

In a Buildkite job (BUILDKITE_JOB_ID and BUILDKITE_AGENT_ACCESS_TOKEN are set)
buildkite-agent uploads the artifact, unless BUILDKITE_ARTIFACT_PATHS names it,
annotates the build and sets the meta-data keys outcome:ID and result:ID (the
result once more, compressed, up to 16 kB), after every process of the
submission is gone. A failed upload is tried again until 5s before the
job's time is over. The result is kept for a day under --retain, a directory of
kbrun's user alone that no submission can reach; the next try of the same run
and payload, asking the same of the machine, uploads it and judges nothing.

Exit status:
  0   there is a verdict, right or wrong; see outcome in result.json; or a push
      made the build, which carries no payload: then there is no result
  64  wrong usage
  75  the machine could not judge, or the job was ended; run it again elsewhere
  78  the payload or the job's configuration cannot work

A GPU that is sick, busy, missing or of another type, and one of which nobody
can say it, ends the job with 75 before anything runs.
Programs: python3; nvcc or, with AMD GPUs, hipcc; ncu or rocprofv3 for profiles.
NVIDIA's driver is asked by kbrun-nvml when it lies beside kbrun, else by
nvidia-smi. docs/outcomes.md lists every outcome.

Example:
  kbrun evaluate --payload-file payload.txt --run-id try-1
`

const helpPayload = `Look into payloads, and make them.

Usage:
  kbrun payload decode [--json | --sources] [FILE]
  kbrun payload encode [FILE]

FILE holds a payload as encoded for Buildkite, or its JSON; "-" is stdin.

  decode  print what it asks for, without sources and seed. Without FILE, the
          payload that KERNELBOT_PAYLOAD or its kin carry
  encode  check it and print it as KERNELBOT_PAYLOAD wants it; default stdin

Options of decode:
{options decode}

Exit status:
  0   done
  1   the payload cannot be used
  64  wrong usage

Example:
  kbrun payload decode --json payload.txt | kbrun payload encode
`
