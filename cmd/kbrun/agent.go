package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/runner"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/verdict"
)

const (
	uploadLimit = 60 * time.Second
	tellLimit   = 15 * time.Second
	// canceledLimit replaces both when the job is being ended: the agent kills
	// it about ten seconds after the signal.
	canceledLimit = 4 * time.Second
)

// publish hands the result to Buildkite when this is a job that can do so
// itself: the artifact first, since annotation and meta-data only point to it.
// It is called when no process of the submission is left, because these calls
// have the job's token.
//
// Error: the artifact could not be uploaded. Anything else is a warning.
func publish(ctx context.Context, env *cli.Env, clock clock, out string, result *schema.Result) error {
	if env.Getenv("BUILDKITE_JOB_ID") == "" || env.Getenv("BUILDKITE_AGENT_ACCESS_TOKEN") == "" {
		return nil
	}
	upload, tell := uploadLimit, tellLimit
	if ctx.Err() != nil {
		upload, tell = canceledLimit, canceledLimit
	}
	ctx = context.WithoutCancel(ctx)
	upload = clock.left(upload)
	a, err := findAgent(env)
	if err != nil {
		return err
	}
	name := filepath.Base(out)
	if !slices.Contains(strings.Split(env.Getenv("BUILDKITE_ARTIFACT_PATHS"), ";"), name) {
		if err := a.call(ctx, upload, filepath.Dir(out), "", "artifact", "upload", name); err != nil {
			return err
		}
	}
	if result.RunID == "" {
		return nil
	}
	tell = clock.left(tell)
	var group sync.WaitGroup
	var annotated, set error
	group.Go(func() {
		v := verdict.Of(result)
		annotated = a.call(ctx, tell, "", v.Markdown(), "annotate", "--style", v.Style(), "--context", "kbrun-"+result.RunID)
	})
	group.Go(func() {
		set = a.call(ctx, tell, "", "", "meta-data", "set", "outcome:"+result.RunID, result.Outcome.Name)
	})
	group.Wait()
	if err := errors.Join(annotated, set); err != nil {
		fmt.Fprintf(env.Stderr, "kbrun: warning: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// agent is the buildkite-agent of the job.
type agent struct {
	path string
	env  []string
}

func findAgent(env *cli.Env) (*agent, error) {
	dirs := env.Getenv("BUILDKITE_BIN_PATH") + string(filepath.ListSeparator) + env.Getenv("PATH")
	path, err := runner.LookPath("buildkite-agent", []string{"PATH=" + dirs})
	if err != nil {
		return nil, errors.New("no buildkite-agent in BUILDKITE_BIN_PATH or on PATH: the result cannot be uploaded")
	}
	return &agent{path, withoutPayload(env.Environ())}, nil
}

// withoutPayload is the job's environment for the agent, less what only the
// evaluation needed.
func withoutPayload(env []string) []string {
	return slices.DeleteFunc(env, func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		if rest, second := strings.CutPrefix(name, schema.EnvSecretPrefix); second {
			name = schema.EnvPrefix + rest
		}
		return slices.Contains(schema.PayloadVars(), name)
	})
}

// call runs one command of the agent. Foreign text goes in by stdin: arguments
// are visible to every user of the machine.
func (a *agent) call(ctx context.Context, limit time.Duration, dir, stdin string, args ...string) error {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	cmd := exec.CommandContext(ctx, a.path, args...)
	cmd.Dir, cmd.Env = dir, a.env
	cmd.WaitDelay = limit / 4 // for what it printed to be read, also on a busy machine
	cmd.Stdin = strings.NewReader(stdin)
	output, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("not done after %s", limit)
	}
	lines := bytes.Split(bytes.TrimSpace(output), []byte("\n"))
	return fmt.Errorf("buildkite-agent %s: %w: %s", strings.Join(args[:min(2, len(args))], " "), err, shown(string(lines[len(lines)-1])))
}
