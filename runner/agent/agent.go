// Package agent runs the buildkite-agent of the job that a command is part of:
// kbgen hands it pipelines, kbrun results. It knows nothing of either.
package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
)

// ErrNotFound is a machine on which no agent can be found.
var ErrNotFound = errors.New("no buildkite-agent in BUILDKITE_BIN_PATH or on PATH")

// An Agent is the program and the environment that it is run with, which holds
// the job's token.
type Agent struct {
	Path    string
	Environ []string
}

// Missing returns the name of a variable without which the agent cannot speak
// for a job; "" inside of a job.
func Missing(getenv func(string) string) string {
	for _, name := range []string{"BUILDKITE_JOB_ID", "BUILDKITE_AGENT_ACCESS_TOKEN"} {
		if getenv(name) == "" {
			return name
		}
	}
	return ""
}

// Find returns the path of the agent that runs this job, which lies in
// BUILDKITE_BIN_PATH, or else of the one on PATH; both as getenv says.
//
// Error: [ErrNotFound].
func Find(getenv func(string) string) (string, error) {
	for _, dir := range append([]string{getenv("BUILDKITE_BIN_PATH")}, filepath.SplitList(getenv("PATH"))...) {
		if !filepath.IsAbs(dir) {
			continue // an empty entry is the directory that the job runs in
		}
		if path, err := exec.LookPath(filepath.Join(dir, "buildkite-agent")); err == nil {
			return path, nil
		}
	}
	return "", ErrNotFound
}

// Command returns one command of the agent, not started. When ctx ends it gets
// SIGTERM, and is killed after grace.
func (a Agent) Command(ctx context.Context, grace time.Duration, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, a.Path, args...)
	cmd.Env = a.Environ
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	return cmd
}

// jobAPI is the variable without which the agent has no log to keep anything out of,
// and refuses to ask unless it is told not to.
const jobAPI = "BUILDKITE_AGENT_JOB_API_SOCKET"

// Token asks Buildkite for a token that says which job this is, within limit.
// The agent keeps it out of the log; where its job API is off, it is the caller who
// must.
func (a Agent) Token(ctx context.Context, limit time.Duration, audience string, claims ...string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	args := []string{"oidc", "request-token", "--audience", audience}
	for _, claim := range claims {
		args = append(args, "--claim", claim)
	}
	if !slices.ContainsFunc(a.Environ, func(pair string) bool { return strings.HasPrefix(pair, jobAPI+"=") }) {
		args = append(args, "--skip-redaction")
	}
	out, err := a.Command(ctx, limit/4, args...).Output()
	if exited, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, lastLine(exited.Stderr))
	}
	if err != nil {
		return "", fmt.Errorf("buildkite-agent oidc request-token: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// lastLine is the last line of what a command printed, for an error.
func lastLine(output []byte) string {
	lines := bytes.Split(bytes.TrimSpace(output), []byte("\n"))
	return text.Line(string(lines[len(lines)-1]), 300)
}

// Call runs one command to its end within limit, in dir ("" is the current
// directory). Foreign text goes in by stdin: arguments are visible to every user
// of the machine.
//
// The error names the command and holds the last line that it printed.
func (a Agent) Call(ctx context.Context, limit time.Duration, dir, stdin string, args ...string) error {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	cmd := a.Command(ctx, limit/4, args...) // grace: what it printed is read on a busy machine, too
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	output, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("not done after %s", limit)
	}
	return fmt.Errorf("buildkite-agent %s: %w: %s", strings.Join(args[:min(2, len(args))], " "), err, lastLine(output))
}
