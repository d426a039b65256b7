// Package job is what kbrun evaluate does as a job of a build: it finds the
// payload, has package runner judge it in the time that the step has, and hands
// the result over, whatever happens.
package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gpu-mode/kbgen/runner"
	"github.com/gpu-mode/kbgen/schema"
)

// An Env is the outside world: the environment as it was before it was hidden,
// and streams.
type Env struct {
	Lookup         func(string) (string, bool)
	Environ        func() []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Getenv returns the variable's value, "" when it is unset.
func (e Env) Getenv(name string) string {
	v, _ := e.Lookup(name)
	return v
}

// A Job judges one payload.
type Job struct {
	runner.Job // payload, environment and times are set here, and what is hidden is added to

	Env         Env
	PayloadFile string        // "-" is stdin; "": the environment carries the payload
	Out         string        // the file of the result
	Secret      bool          // the build's second run
	Limit       time.Duration // 0: the step's timeout alone
	Exposed     error         // why the environment could not be hidden

	GPUType, Queue string
	Misplaced      string // why this is not what the build asks for

	Asked  any    // of the machine: another job that asks for something else is judged by itself
	Retain string // directory, "": nothing is kept
	Broker string // socket

	lookup func(string) (string, bool)
	log    logger
	clock  clock
	idErr  error
	keeper *keeper  // nil: nothing is kept
	key    *keptKey // nil: there is no payload
}

// Run evaluates, and hands the result over. A result is written whatever
// happens.
//
// Errors: *[DirectoryError]; or the result could not be written or uploaded.
func (j *Job) Run(ctx context.Context) (*schema.Result, error) {
	env := j.Env
	j.clock = newClock(time.Now(), j.Limit, env)
	j.lookup = env.Lookup
	if j.Secret {
		j.lookup = secretLookup(env.Lookup)
		j.RunID, _ = j.lookup(schema.EnvRunID)
	}
	j.idErr = j.checkRunID()
	file, err := newResultFile(j.Out, j.RunID)
	if err != nil {
		return nil, err
	}
	j.log = logger{env.Stdout, new(atomic.Value)}
	if j.Retain != "" && uploads(env, j.Out) {
		if j.keeper, err = openKeeper(j.Retain); err != nil { // no fault: the result is then all there is
			warn(env, err)
		}
	}
	result, trusted := guarded(ctx, j.clock, j.RunID, env.Stderr, func(ctx context.Context) *schema.Result {
		if j.Misplaced != "" {
			return blank(j.RunID, schema.OutcomeWrongMachine, j.Misplaced)
		}
		return j.evaluate(ctx)
	})
	result.GPUType, result.Queue = j.GPUType, j.Queue
	if trusted && !result.Retained && j.key != nil { // first of all: what follows may be cut off
		if err := j.keeper.keep(*j.key, result); err != nil {
			warn(env, err)
		}
	}
	if err := file.write(result); err != nil {
		return nil, err
	}
	j.log.verdict(result)
	if trusted { // the calls to Buildkite have the job's token
		if err := publish(ctx, env, j.clock, j.Out, result, j.log.of(result)); err != nil {
			return nil, err
		}
		if j.key != nil {
			j.keeper.forget(*j.key)
		}
	}
	return result, nil
}

// Idle ends a job of a build that nobody launched with a payload: a push to a
// pipeline whose one step judges. There is nothing to judge, and no result; an
// older one, at out, must not pass for one of this build.
func Idle(out string, say io.Writer) error {
	if err := clearResult(out); err != nil {
		return err
	}
	fmt.Fprintln(say, "+++ Nothing to judge: a push or a pull request made this build, and it carries no payload")
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

func (j *Job) evaluate(ctx context.Context) *schema.Result {
	env, log, clock := j.Env, j.log, j.clock
	if j.Exposed != nil {
		return blank(j.RunID, schema.OutcomeMachine, j.Exposed.Error())
	}
	begun := time.Now()
	err := j.idErr // first: a sealed payload opens for a run
	open, wasSealed := newOpener(ctx, env, clock, j.Broker, j.RunID), false
	if err == nil {
		j.Payload, err = ReadPayload(j.PayloadFile, env.Stdin, j.lookup, func(sealed string) (string, error) {
			wasSealed = true
			return open(sealed)
		})
	}
	switch {
	case ctx.Err() != nil && sealedElsewhere(err):
		return blank(j.RunID, schema.OutcomeCanceled, "")
	case machineFault(err), sealedElsewhere(err):
		return blank(j.RunID, schema.OutcomeMachine, err.Error())
	case err != nil:
		return blank(j.RunID, schema.OutcomeBadPayload, err.Error())
	}
	j.Decode = time.Since(begun)
	log.start(j.RunID, j.Payload)
	j.Image = env.Getenv(schema.EnvImage)
	if j.RunID != "" {
		j.key = &keptKey{RunID: j.RunID, Payload: digestOf([]byte(j.Payload.JSON())), Asked: j.Asked, Image: j.Image}
		if kept := j.keeper.find(*j.key); kept != nil {
			kept.Retained = true
			fmt.Fprintln(env.Stdout, "  an earlier try of this job judged it on this machine, and its result was kept: it is handed over now, nothing runs again")
			return kept
		}
	}
	log.budget(j.Payload, clock)
	if j.Retain != "" {
		j.SandboxHide = append(j.SandboxHide, j.Retain)
	}
	j.SandboxHide = append(j.SandboxHide, j.Broker)
	j.Environ, j.WorkDir = env.Environ(), env.Getenv("TMPDIR")
	j.Start, j.Deadline, j.Progress = clock.start, clock.deadline, log.phase
	result := runner.Evaluate(ctx, j.Job)
	if wasSealed {
		withoutNames(result, j.Payload)
	}
	return result
}

// machineFault reports whether err is about what the machine lacks.
func machineFault(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && slices.Contains([]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO}, errno)
}

// checkRunID refuses a run id that could not name an annotation and a meta-data
// key, and a job without one: its result could not be told from another's. A
// job whose launcher gives none, as Kernelbot's first one, gets one of its build
// and step.
func (j *Job) checkRunID() error {
	if build := j.Env.Getenv(schema.EnvBuildID); j.RunID == "" && !j.Secret && build != "" {
		j.RunID = schema.DerivedRunID(build, j.Env.Getenv(schema.EnvStepID))
	}
	if j.RunID == "" {
		if _, job := j.Env.Lookup("BUILDKITE_JOB_ID"); job {
			return errors.New("KERNELBOT_RUN_ID is not set, want the run's id in a Buildkite job")
		}
		return nil
	}
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$`).MatchString(j.RunID) {
		id := j.RunID
		j.RunID = ""
		return fmt.Errorf("run id: got %.60q, want up to 200 letters, digits, dots, colons, dashes and underscores", id)
	}
	return nil
}
