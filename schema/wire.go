package schema

import (
	"strconv"
	"strings"
)

// This file is the one home of the names and numbers that several programs have
// to agree on: what they call a build's variables, what an exit status means,
// how much of anything fits. Formats stand in files of their own.

// EnvPrefix begins the name of every variable of a build that is ours.
const EnvPrefix = "KERNELBOT_"

// The variables of a build's environment, as the launcher writes them.
const (
	EnvPayload       = EnvPrefix + "PAYLOAD"        // the whole encoded payload, or with _<i> behind it a chunk
	EnvPayloadChunks = EnvPrefix + "PAYLOAD_CHUNKS" // how many chunks there are
	EnvPayloadSHA256 = EnvPrefix + "PAYLOAD_SHA256" // of all chunks together, hex

	EnvRunID          = EnvPrefix + "RUN_ID"          // the launcher's id of the run, which the result repeats
	EnvGPU            = EnvPrefix + "GPU"             // GPU type; for kbgen also several, with commas
	EnvQueue          = EnvPrefix + "QUEUE"           // the GPU type's queue
	EnvMode           = EnvPrefix + "MODE"            // one of Modes
	EnvTimeoutSeconds = EnvPrefix + "TIMEOUT_SECONDS" // what the payload's phases may take in all
	EnvUser           = EnvPrefix + "USER"            // whose submission it is: bounds how many run at once
	EnvImage          = EnvPrefix + "IMAGE"           // replaces the rows' container image
)

// EnvSecretPrefix begins the names that carry a second run in the same build:
// each is a name of the first with SECRET_ behind [EnvPrefix], see [SecretEnv].
const EnvSecretPrefix = EnvPrefix + "SECRET_"

// The variables that a step sets for kbrun and for the commands of other kinds.
const (
	EnvDeadline  = EnvPrefix + "DEADLINE"   // a time.Duration, counted from kbrun's start
	EnvGPUVendor = EnvPrefix + "GPU_VENDOR" // nvidia, amd, google or none: what must be there
	EnvGPUCount  = EnvPrefix + "GPU_COUNT"  // how many of them

	// How each of them is known: [DeviceType].
	EnvGPUName      = EnvPrefix + "GPU_NAME"       // patterns with [GPUNameSeparator] between
	EnvGPUArch      = EnvPrefix + "GPU_ARCH"       // "90", "gfx942"
	EnvGPUMemoryGiB = EnvPrefix + "GPU_MEMORY_GIB" // the least; 0 is any

	// A step that serves every build says here what it is for, so that EnvGPU and
	// EnvQueue stay what the build asks for.
	EnvStepGPU   = EnvPrefix + "STEP_GPU"
	EnvStepQueue = EnvPrefix + "STEP_QUEUE"

	EnvSandbox     = EnvPrefix + "SANDBOX"      // the level that is needed, one of SandboxLevels
	EnvUntrusted   = EnvPrefix + "UNTRUSTED"    // "true" in a step that runs a submission: hooks give it no secret
	EnvSandboxRead = EnvPrefix + "SANDBOX_READ" // paths that a submission may read; set by the node
	EnvRetain      = EnvPrefix + "RETAIN"       // directory of results that wait for their upload, or none; set by the node
	EnvBroker      = EnvPrefix + "BROKER"       // socket of the broker that opens sealed payloads; set by the node

	EnvVendor    = EnvPrefix + "VENDOR"     // the row's, for smoke and isolation steps
	EnvGPUs      = EnvPrefix + "GPUS"       // of one job
	EnvCPUs      = EnvPrefix + "CPUS"       // of one job, whole cores
	EnvMemoryGiB = EnvPrefix + "MEMORY_GIB" // of one job
)

// GPUNameSeparator stands between the patterns of [EnvGPUName]. No device's name
// has one.
const GPUNameSeparator = "|"

// Names of older launchers, read when no newer one is set.
const (
	EnvOldPayload = "SUBMISSION_PAYLOAD"
	EnvOldQueue   = "GPU_QUEUE"
)

// QueueGPUType is what a GPU type is called in a queue of a vendor's own,
// {vendor}-{gpu_type}-{index}: "h100" for H100_BK.
func QueueGPUType(name string) string { return strings.ToLower(strings.TrimSuffix(name, "_BK")) }

// MetaOutcome and MetaResult are the keys of a build's meta-data under which kbrun
// leaves the name of a run's outcome, and its result, see [InlineResult].
func MetaOutcome(runID string) string { return "outcome:" + runID }
func MetaResult(runID string) string  { return "result:" + runID }

// EnvPayloadChunk is the variable of chunk i, counted from 0.
func EnvPayloadChunk(i int) string { return EnvPayload + "_" + strconv.Itoa(i) }

// SecretEnv is the name under which the second run of a build carries what the
// first carries as name, which must begin with [EnvPrefix].
func SecretEnv(name string) string { return EnvSecretPrefix + name[len(EnvPrefix):] }

// A sealed payload travels as a plain one does, and begins with SealedPrefix, as
// all that package secrets seals; it is sealed under SealedPayloadName.
//
// A container has no broker to ask. So its machine opens the payload before it
// starts one, in the same variables: OpenedPrefix and the payload as it was, or
// RefusedPrefix, the reason, a colon and what the broker found.
const (
	SealedPrefix      = "kbsec1:"
	SealedPayloadName = "SUBMISSION"
	OpenedPrefix      = "kbsec1-opened:"
	RefusedPrefix     = "kbsec1-refused:"
)

// Limits of a payload's carriers. Linux refuses a variable from 128 KiB on,
// name and NUL included, and all of them together near 2 MiB.
const (
	MaxInline = 96 << 10 // characters in one variable
	MaxChunks = 16       // variables for one payload
)

// Exit statuses that mean something to a step's retry rules. A verdict, right
// or wrong, is 0. Kbrun ends a command line that cannot be used with [ExitUsage];
// the other commands, which no retry rule sees, with 2, as shells do.
//
// Source: sysexits.h; package runtime for ExitPanic.
const (
	ExitPanic    = 2  // a Go program's own death: an uncaught panic, a deadlock, no memory
	ExitUsage    = 64 // EX_USAGE: a job whose command line cannot be used, on whatever machine
	ExitTempFail = 75 // EX_TEMPFAIL: the machine could not judge; another may
	ExitConfig   = 78 // EX_CONFIG: the payload or the configuration can work nowhere
)

// MaxAnnotation is how long an annotation's body may be at Buildkite, in bytes.
const MaxAnnotation = 1 << 20

// Buildkite's limits on what pipelines upload.
//
// Source: buildkite.com/docs/pipelines/configure/limits.
const (
	MaxJobsPerUpload   = 500  // every step counts, a group beside its steps
	MaxJobsPerBuild    = 4000 // retries included
	MaxUploadsPerBuild = 500
)
