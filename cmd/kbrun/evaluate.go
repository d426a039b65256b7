package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/runner"
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

// Run evaluates and exits by the outcome. A result is written whatever
// happens after the command line was understood.
func (c *evaluateCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.PayloadFile == "" && !c.Secret && c.RunID == "" && schema.Idle(env.LookupEnv) {
		return c.idle(env)
	}
	clock := newClock(time.Now(), c.Deadline, env)
	lookup := env.LookupEnv
	if c.Secret {
		lookup = secretLookup(env.LookupEnv)
		c.RunID, _ = lookup(schema.EnvRunID)
	}
	idErr := c.checkRunID(env)
	file, err := newResultFile(c.Out, c.RunID)
	if usage := (*cli.UsageError)(nil); err != nil && !errors.As(err, &usage) {
		return &cli.ExitError{Status: schema.ExitTempFail, Err: err}
	} else if err != nil {
		return err
	}
	log := newLogger(env.Stdout)
	var wrong string
	c.GPUType, c.Queue, wrong = c.place(env)
	job := &evaluateJob{env: env, lookup: lookup, log: log, clock: clock, idErr: idErr}
	if uploads(env, c.Out) {
		job.keeper = c.keeper(env)
	}
	result, trusted := guarded(ctx, clock, c.RunID, env.Stderr, func(ctx context.Context) *schema.Result {
		if wrong != "" {
			return blank(c.RunID, schema.OutcomeWrongMachine, wrong)
		}
		return c.evaluate(ctx, job)
	})
	result.GPUType, result.Queue = c.GPUType, c.Queue
	if trusted && !result.Retained && job.key != nil { // first of all: what follows may be cut off
		if err := job.keeper.keep(*job.key, result); err != nil {
			warn(env, err)
		}
	}
	if err := file.write(result); err != nil {
		return &cli.ExitError{Status: schema.ExitTempFail, Err: err}
	}
	log.verdict(result)
	if trusted { // the calls to Buildkite have the job's token
		if err := publish(ctx, env, clock, c.Out, result, log.of(result)); err != nil {
			return &cli.ExitError{Status: schema.ExitTempFail, Err: err}
		}
		if job.key != nil {
			job.keeper.forget(*job.key)
		}
	}
	if status := result.Outcome.ExitStatus(); status != 0 {
		return &cli.ExitError{Status: status, Err: fmt.Errorf("%s: %s", result.Outcome.Name, shown(result.Outcome.Text))}
	}
	return nil
}

// idle ends a job of a build that nobody launched with a payload: a push to a
// pipeline whose one step judges. There is nothing to judge, and no result; an
// older one must not pass for one of this build.
func (c *evaluateCmd) idle(env *cli.Env) error {
	if err := clearResult(c.Out); err != nil {
		return err
	}
	fmt.Fprintln(env.Stdout, "+++ Nothing to judge: a push or a pull request made this build, and it carries no payload")
	return nil
}

// secretLookup finds the variables of a build's second run, which have the
// names of the first with KERNELBOT_SECRET_ in front.
func secretLookup(lookup func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		rest, ok := strings.CutPrefix(name, schema.EnvPrefix)
		if !ok {
			return "", false // older names have no second run
		}
		return lookup(schema.EnvSecretPrefix + rest)
	}
}

// An evaluateJob is what one run of evaluate works with.
type evaluateJob struct {
	env    *cli.Env
	lookup func(string) (string, bool)
	log    logger
	clock  clock
	idErr  error
	keeper *keeper  // nil: nothing is kept
	key    *keptKey // nil: there is no payload
}

// keeper opens the directory of kept results, nil without one. Why there is
// none is said once, and is no fault: the result is then all there is.
func (c *evaluateCmd) keeper(env *cli.Env) *keeper {
	dir := c.directory(env)
	if dir == "" {
		return nil
	}
	k, err := openKeeper(dir)
	if err != nil {
		warn(env, err)
		return nil
	}
	return k
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

func (c *evaluateCmd) evaluate(ctx context.Context, job *evaluateJob) *schema.Result {
	env, lookup, log, clock, idErr := job.env, job.lookup, job.log, job.clock, job.idErr
	if c.exposed != nil {
		return blank(c.RunID, schema.OutcomeMachine, c.exposed.Error())
	}
	begun := time.Now()
	err := idErr // first: a sealed payload opens for a run
	var payload *schema.Payload
	open, wasSealed := c.opener(ctx, env, clock, c.RunID), false
	if err == nil {
		payload, err = readPayload(c.PayloadFile, env.Stdin, lookup, func(sealed string) (string, error) {
			wasSealed = true
			return open(sealed)
		})
	}
	switch {
	case ctx.Err() != nil && sealedElsewhere(err):
		return blank(c.RunID, schema.OutcomeCanceled, "")
	case machineFault(err), sealedElsewhere(err):
		return blank(c.RunID, schema.OutcomeMachine, err.Error())
	case err != nil:
		return blank(c.RunID, schema.OutcomeBadPayload, err.Error())
	}
	decoded := time.Since(begun)
	log.start(c.RunID, payload)
	if c.RunID != "" {
		job.key = &keptKey{RunID: c.RunID, Payload: digestOf([]byte(payload.JSON())), Asked: c.asked(), Image: env.Getenv(schema.EnvImage)}
		if kept := job.keeper.find(*job.key); kept != nil {
			kept.Retained = true
			log.retained()
			return kept
		}
	}
	log.budget(payload, clock)
	read, hide := c.paths(env)
	if dir := c.directory(env); dir != "" {
		hide = append(hide, dir)
	}
	hide = append(hide, c.Broker)
	result := runner.Evaluate(ctx, runner.Job{
		Sandbox: c.level(), SandboxRead: read, SandboxHide: hide,
		FreshInterpreters: c.NoPreload,
		Payload:           payload,
		RunID:             c.RunID,
		Environ:           env.Environ(),
		WorkDir:           env.Getenv("TMPDIR"),
		Deadline:          clock.deadline,
		Start:             clock.start,
		Decode:            decoded,
		Version:           cli.Version(),
		Image:             env.Getenv(schema.EnvImage),
		Devices:           machine(),
		Requirements:      c.requirements(c.GPUType),
		Progress:          log.phase,
	})
	if wasSealed {
		withoutNames(result, payload)
	}
	return result
}

// machineFault reports whether err is about what the machine lacks.
func machineFault(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// checkRunID refuses a run id that could not name an annotation and a meta-data
// key, and a job without one: its result could not be told from another's. A
// job whose launcher gives none, as Kernelbot's first one, gets one of its build
// and step.
func (c *evaluateCmd) checkRunID(env *cli.Env) error {
	if build := env.Getenv(schema.EnvBuildID); c.RunID == "" && !c.Secret && build != "" {
		c.RunID = schema.DerivedRunID(build, env.Getenv(schema.EnvStepID))
	}
	if c.RunID == "" {
		if _, job := env.LookupEnv("BUILDKITE_JOB_ID"); job {
			return errors.New("KERNELBOT_RUN_ID is not set, want the run's id in a Buildkite job")
		}
		return nil
	}
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$`).MatchString(c.RunID) {
		id := c.RunID
		c.RunID = ""
		return fmt.Errorf("run id: got %.60q, want up to 200 letters, digits, dots, colons, dashes and underscores", id)
	}
	return nil
}
