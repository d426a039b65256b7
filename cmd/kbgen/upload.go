package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
)

// uploadEvaluate renders the pipeline and hands it to the agent: the same
// bytes that render prints, for the agent to interpolate.
type uploadEvaluate struct {
	evaluateFlags
	DryRun bool   `name:"dry-run"`
	Agent  string `placeholder:"PATH"`
}

func (c *uploadEvaluate) Run(ctx context.Context, env *cli.Env) error {
	out, err := c.render(env, false)
	if err != nil {
		return err
	}
	if c.DryRun {
		_, err := env.Stdout.Write(out)
		return err
	}
	for _, name := range []string{"BUILDKITE_JOB_ID", "BUILDKITE_AGENT_ACCESS_TOKEN"} {
		if env.Getenv(name) == "" {
			return cli.WithHint(fmt.Errorf("not inside a Buildkite job: %s is not set", name),
				"kbgen upload evaluate --dry-run prints what would be uploaded")
		}
	}
	agent, err := findAgent(c.Agent, env.Getenv("BUILDKITE_BIN_PATH"))
	if err != nil {
		return err
	}
	return upload(ctx, env, agent, out)
}

// findAgent returns the agent to run: the one named, else the one that runs
// this job (binDir is where it lies), else the one on PATH.
func findAgent(named, binDir string) (string, error) {
	if named != "" {
		return exec.LookPath(named)
	}
	if binDir != "" {
		if path, err := exec.LookPath(filepath.Join(binDir, "buildkite-agent")); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("buildkite-agent")
	if err != nil {
		return "", cli.WithHint(fmt.Errorf("finding the agent: %w", err), "--agent PATH")
	}
	return path, nil
}

// upload hands pipeline to the agent on its standard input and waits. The
// agent says by itself what goes wrong; its exit status becomes kbgen's.
func upload(ctx context.Context, env *cli.Env, agent string, pipeline []byte) error {
	cmd := exec.CommandContext(ctx, agent, "pipeline", "upload", "--reject-parse-warnings")
	cmd.Stdin = bytes.NewReader(pipeline)
	cmd.Stdout, cmd.Stderr = env.Stdout, env.Stderr
	cmd.Env = env.Environ()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second // half of what the agent gives a cancelled job
	err := cmd.Run()
	var exited *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("uploading the pipeline: %w", ctx.Err())
	case errors.As(err, &exited) && exited.Exited():
		return &cli.ExitError{Status: exited.ExitCode(), Err: fmt.Errorf("uploading the pipeline: the agent ended with %w", err)}
	default:
		return fmt.Errorf("uploading the pipeline with %s: %w", agent, err)
	}
}
