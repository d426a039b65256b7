package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/runner"
	"github.com/gpu-mode/kbgen/runner/job"
	"github.com/gpu-mode/kbgen/schema"
)

type evaluateCmd struct {
	PayloadFile string        `placeholder:"FILE" help:"read the payload from FILE, \"-\" is stdin: as encoded for Buildkite, or its JSON; default: KERNELBOT_PAYLOAD, or KERNELBOT_PAYLOAD_0 and on with _CHUNKS and _SHA256, or SUBMISSION_PAYLOAD"`
	Out         string        `default:"result.json" placeholder:"FILE" help:"the file to write the result to"`
	RunID       string        `var:"KERNELBOT_RUN_ID" placeholder:"ID" help:"the id of the run; default in a Buildkite job build-BUILDKITE_BUILD_ID.BUILDKITE_STEP_ID"`
	Secret      bool          `help:"judge the build's second run: KERNELBOT_SECRET_PAYLOAD (or _0 and on) and KERNELBOT_SECRET_RUN_ID"`
	NoPreload   bool          `help:"start an interpreter for every phase, instead of forking one that has already imported the task's modules"`
	Deadline    time.Duration `var:"KERNELBOT_DEADLINE" placeholder:"TIME" help:"end the evaluation so long after the start, as 14m; default 30s less than BUILDKITE_TIMEOUT. kbrun exits 15s later in any case"`
	exposed     error
	deviceFlags
	placeFlags
	sandboxFlags
	retainFlags
	brokerFlags
}

// memoryLimit is how much memory kbrun takes, in bytes, before the collector works as
// hard as it may. What kbrun takes, the submission does not have.
const memoryLimit = 40 << 20

// Run evaluates and exits by the outcome.
func (c *evaluateCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.PayloadFile == "" && !c.Secret && c.RunID == "" && schema.Idle(env.LookupEnv) {
		return ended(job.Idle(c.Out, env.Stdout), cli.ExitFailed)
	}
	debug.SetMemoryLimit(memoryLimit)
	j := job.Job{
		Env:         job.Env{Lookup: env.LookupEnv, Environ: env.Environ, Stdin: env.Stdin, Stdout: env.Stdout, Stderr: env.Stderr},
		PayloadFile: c.PayloadFile, Out: c.Out, Secret: c.Secret, Limit: c.Deadline, Exposed: c.exposed,
		Retain: c.directory(env), Broker: c.Broker,
		Job: runner.Job{RunID: c.RunID, FreshInterpreters: c.NoPreload, Devices: machine(), Sandbox: c.level(), Version: cli.Version()},
	}
	j.SandboxRead, j.SandboxHide = c.paths(env)
	c.GPUType, c.Queue, j.Misplaced = job.Place{GPUType: c.GPUType, Queue: c.Queue}.In(j.Env)
	j.GPUType, j.Queue = c.GPUType, c.Queue
	j.Requirements, j.Asked = c.requirements(c.GPUType), c.asked()
	result, err := j.Run(ctx)
	if err != nil {
		return ended(err, schema.ExitTempFail)
	}
	if status := result.Outcome.ExitStatus(); status != 0 {
		return &cli.ExitError{Status: status, Err: fmt.Errorf("%s: %s", result.Outcome.Name, job.Shown(result.Outcome.Text))}
	}
	return nil
}

// ended gives an error its exit status: that of wrong usage when the result
// cannot lie where it was asked for.
func ended(err error, status int) error {
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*job.DirectoryError)):
		return &cli.UsageError{Err: err}
	}
	return &cli.ExitError{Status: status, Err: err}
}

// asked is what the job asks of the machine: another job with the same payload
// that asks for something else is judged by itself.
func (c *evaluateCmd) asked() any {
	return struct {
		Device  deviceFlags
		Place   placeFlags
		Sandbox sandboxFlags
	}{c.deviceFlags, c.placeFlags, c.sandboxFlags}
}

type retainFlags struct {
	Retain string `var:"KERNELBOT_RETAIN" placeholder:"DIR" help:"where to store a result that could not be uploaded, for the job's next try on this machine, or none; default .kbrun-results in BUILDKITE_BUILD_PATH"`
}

// directory is where results are kept: what was asked for, or a place in the
// agent's own directory of builds; "" when nothing is to be kept.
func (f *retainFlags) directory(env *cli.Env) string {
	switch builds := env.Getenv("BUILDKITE_BUILD_PATH"); {
	case f.Retain == job.RetainNone:
		return ""
	case f.Retain != "":
		return f.Retain
	case builds != "":
		return filepath.Join(builds, ".kbrun-results")
	}
	return ""
}

type brokerFlags struct {
	Broker string `var:"KERNELBOT_BROKER" default:"/run/kbnode/secretd.sock" placeholder:"SOCKET" help:"the socket of the node's kbnode secretd, which opens a sealed payload (kbsec1:...) for the job of its run"`
}
