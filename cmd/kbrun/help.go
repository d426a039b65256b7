package main

const helpProgram = `kbrun judges a kernel submission on the machine it runs on.

Usage:
  kbrun evaluate [--payload-file FILE] [--out FILE] [--run-id ID]
  kbrun payload decode|encode [FILE]
  kbrun doctor [--json]
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
  --payload-file FILE  read the payload from FILE, "-" is stdin: as encoded for
                       Buildkite, or its JSON
                       default: KERNELBOT_PAYLOAD, or KERNELBOT_PAYLOAD_0 and on
                       with _CHUNKS and _SHA256, or SUBMISSION_PAYLOAD
  --broker SOCKET      KERNELBOT_BROKER; of the node's kbnode secretd, which opens
                       a sealed payload (kbsec1:...) for the job of its run;
                       default /run/kbnode/secretd.sock
  --secret             judge the build's second run: KERNELBOT_SECRET_PAYLOAD
                       (or _0 and on) and KERNELBOT_SECRET_RUN_ID
  --out FILE           where the result goes; default result.json
  --run-id ID          KERNELBOT_RUN_ID; in a Buildkite job default
                       build-BUILDKITE_BUILD_ID.BUILDKITE_STEP_ID
  --deadline TIME      KERNELBOT_DEADLINE; the evaluation ends by then, counted
                       from the start, like 14m; default 30s less than
                       BUILDKITE_TIMEOUT. 15s later kbrun ends without it
  --gpu-vendor NAME    KERNELBOT_GPU_VENDOR; nvidia, amd or google: do not start
                       without such a device; none: start whatever state the
                       machine's devices are in; by default any will do, but
                       not a broken or a busy one
  --gpu-count N        KERNELBOT_GPU_COUNT; so many of them; default 1
  --gpu-name NAMES     KERNELBOT_GPU_NAME; what the driver must call each of them:
                       patterns with | between, where * is any text, as in
                       'NVIDIA A100-*|NVIDIA A100 *'
  --gpu-arch NAME      KERNELBOT_GPU_ARCH; their architecture, like 90 or gfx942
  --gpu-memory-gib N   KERNELBOT_GPU_MEMORY_GIB; the least memory of each
  --gpu-type NAME      KERNELBOT_STEP_GPU, else KERNELBOT_GPU; for the result. A
                       build whose KERNELBOT_GPU names another ends with 75
  --queue NAME         KERNELBOT_STEP_QUEUE, else KERNELBOT_QUEUE, GPU_QUEUE; the
                       same of the queue
  --allow-shared-gpu   start although somebody else uses the GPU, and do not call
                       its times ambiguous for that
  --sandbox LEVEL      KERNELBOT_SANDBOX; none, partial or full: how well a
                       submission must be isolated here, or the job ends with 75;
                       default partial. kbrun doctor shows what can be had
  --sandbox-read PATHS KERNELBOT_SANDBOX_READ; files and directories, separated by
                       colons, that a submission may read beyond the system's,
                       PATH, and the installations of python3 and nvcc
  --no-preload         start an interpreter for every phase, instead of forking one
                       that has imported the task's modules
  --allow-weak-sandbox run a submission in whatever can be had
  --retain DIR         KERNELBOT_RETAIN; where a result stays that could not be
                       uploaded, for the job's next try on this machine; none:
                       nowhere; default .kbrun-results in BUILDKITE_BUILD_PATH

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
    --sources  print the files' texts as well
    --json     print the whole payload as JSON instead, the seed too
  encode  check it and print it as KERNELBOT_PAYLOAD wants it; default stdin

Exit status:
  0   done
  1   the payload cannot be used
  64  wrong usage

Example:
  kbrun payload decode --json payload.txt | kbrun payload encode
`
