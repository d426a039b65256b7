package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/runner"
	"github.com/gpu-mode/kbgen/schema"
)

const (
	exitMachine = 75

	// maxPayloadFile is the limit on --payload-file, in bytes.
	maxPayloadFile = 16 << 20
	// deadlineMargin is kept of a step's timeout for what comes after the
	// evaluation: killing, writing, uploading.
	deadlineMargin = 30 * time.Second
)

type evaluateCmd struct {
	PayloadFile string
	Out         string        `default:"result.json"`
	RunID       string        `var:"KERNELBOT_RUN_ID"`
	Deadline    time.Duration `var:"KERNELBOT_DEADLINE"`
	sandboxFlags
}

// Run evaluates and exits by the outcome. A result is written whatever
// happens after the command line was understood.
func (c *evaluateCmd) Run(ctx context.Context, env *cli.Env) error {
	start := time.Now()
	if err := clearResult(c.Out); err != nil {
		return err
	}
	log := logger{env.Stdout}
	result := c.evaluate(ctx, env, log, start)
	if err := writeResult(c.Out, result); err != nil {
		return &cli.ExitError{Status: exitMachine, Err: err}
	}
	log.verdict(result)
	if err := publish(ctx, env, c.Out, result); err != nil {
		return &cli.ExitError{Status: exitMachine, Err: err}
	}
	if status := result.Outcome.ExitStatus(); status != 0 {
		return &cli.ExitError{Status: status, Err: fmt.Errorf("%s: %s", result.Outcome.Name, plain(result.Outcome.Text))}
	}
	return nil
}

func (c *evaluateCmd) evaluate(ctx context.Context, env *cli.Env, log logger, start time.Time) *schema.Result {
	payload, err := c.payload(env)
	if err == nil {
		err = c.checkRunID(env)
	}
	if err != nil {
		result := &schema.Result{RunID: c.RunID, System: schema.SystemInfo{DeviceCount: 1}}
		result.Outcome = schema.NewOutcome(schema.OutcomeBadPayload, err.Error())
		result.Error = result.Outcome.Text
		return result
	}
	log.start(c.RunID, payload)
	read, hide := c.paths(env)
	return runner.Evaluate(ctx, runner.Job{
		Sandbox: c.level(), SandboxRead: read, SandboxHide: hide,
		Payload:  payload,
		RunID:    c.RunID,
		Environ:  env.Environ(),
		WorkDir:  env.Getenv("TMPDIR"),
		Deadline: c.deadline(env, start),
		Progress: log.phase,
	})
}

func (c *evaluateCmd) payload(env *cli.Env) (*schema.Payload, error) {
	if c.PayloadFile == "" {
		encoded, err := schema.FindPayload(env.LookupEnv)
		if err != nil {
			return nil, err
		}
		return schema.DecodePayload(encoded)
	}
	in := env.Stdin
	if c.PayloadFile != "-" {
		f, err := os.Open(c.PayloadFile)
		if err != nil {
			return nil, fmt.Errorf("reading the payload: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxPayloadFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the payload: %w", err)
	case len(data) > maxPayloadFile:
		return nil, fmt.Errorf("payload file: more than %d bytes", maxPayloadFile)
	case strings.HasPrefix(strings.TrimSpace(string(data[:min(len(data), 100)])), "{"):
		return schema.ParsePayload(data)
	}
	return schema.DecodePayload(string(data))
}

// checkRunID refuses a run id that could not name an annotation and a meta-data
// key, and a job without one: its result could not be told from another's.
func (c *evaluateCmd) checkRunID(env *cli.Env) error {
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

// deadline is when the evaluation must end; zero when nothing says so.
func (c *evaluateCmd) deadline(env *cli.Env, start time.Time) time.Time {
	if c.Deadline > 0 {
		return start.Add(c.Deadline)
	}
	minutes, err := strconv.Atoi(env.Getenv("BUILDKITE_TIMEOUT")) // "false" without a timeout
	if err != nil || minutes < 1 {
		return time.Time{}
	}
	return start.Add(time.Duration(minutes)*time.Minute - deadlineMargin)
}

// clearResult removes an older result, which must not pass for this run's.
func clearResult(out string) error {
	info, err := os.Lstat(out)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && info.IsDir() {
		return cli.Usagef("--out: %s is a directory, want a file", out)
	}
	if err := os.Remove(out); err != nil {
		return &cli.ExitError{Status: exitMachine, Err: fmt.Errorf("removing the older result: %w", err)}
	}
	return nil
}

// writeResult writes the whole result under another name and then renames it.
func writeResult(out string, result *schema.Result) error {
	data, err := result.Encode()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(out), ".result-*")
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = rename(f.Name(), out)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// rename puts the result in place. A directory there was none when kbrun
// started: the submission made it.
func rename(from, to string) error {
	if os.Rename(from, to) == nil {
		return nil
	}
	if info, err := os.Lstat(to); err == nil && info.IsDir() {
		os.RemoveAll(to) // the rename tells when it did not work
	}
	return os.Rename(from, to)
}
