package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/gpu-mode/kbgen/cmd/internal/agent"
	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node/broker/client"
	"github.com/gpu-mode/kbgen/node/gate"
	"github.com/gpu-mode/kbgen/node/plan"
	"github.com/gpu-mode/kbgen/schema"
)

// gateCmd decides about a job, in the hook pre-bootstrap.
type gateCmd struct {
	Root string `default:"/" placeholder:"DIR" help:"the config and /sys lie below DIR; for tests"`
}

func (c *gateCmd) Run(_ context.Context, env *cli.Env) error {
	config, s, err := gate.OwnSlot(c.Root, env.Getenv(gate.SlotVariable))
	if err != nil {
		return err
	}
	err = gate.Admit(c.Root, config, s, env.Getenv(gate.JobVariable))
	if err != nil && gate.BootsHere(c.Root, config, s) {
		// The job's log shows what its bootstrap says, and nothing of a hook's.
		fmt.Fprintf(env.Stderr, "kbnode: left to kbnode bootstrap: %v\n", err)
		return nil
	}
	return statusOf(err)
}

// statusOf gives an error the exit status by which Buildkite's retry rules tell a
// job that is refused from a slot that is not fit for it.
func statusOf(err error) error {
	var refusal *gate.Refusal
	var unfit *gate.UnfitError
	switch {
	case errors.As(err, &refusal):
		return &cli.ExitError{Status: schema.ExitConfig, Err: err}
	case errors.As(err, &unfit):
		return &cli.ExitError{Status: schema.ExitTempFail, Err: err}
	}
	return err
}

// bootstrapCmd becomes the agent's bootstrap.
type bootstrapCmd struct {
	Root string `default:"/" placeholder:"DIR" help:"the config and the slot lie below DIR; for tests"`
}

func (c *bootstrapCmd) Run(ctx context.Context, env *cli.Env) error {
	config, s, err := gate.OwnSlot(c.Root, env.Getenv(gate.SlotVariable))
	if err != nil {
		return err
	}
	if err := gate.Admit(c.Root, config, s, env.Getenv(gate.JobVariable)); err != nil {
		return statusOf(err)
	}
	if err := gate.OfferPlugin(s, c.Root, env.Getenv("BUILDKITE_AGENT_NAME")); err != nil {
		return statusOf(err)
	}
	environ := gate.Environ(config, s, c.Root, env.Environ())
	if s.Platform == plan.Docker {
		token := func(ctx context.Context, environ []string) (string, error) {
			a := agent.Agent{Path: config.Agent.Path, Environ: schema.WithoutPayload(slices.Clone(environ))}
			return a.Token(ctx, gate.UnsealLimit, client.Audience, client.TokenClaims()...)
		}
		if environ, err = gate.Unseal(ctx, filepath.Join(c.Root, client.Socket), environ, token); err != nil {
			fmt.Fprintf(env.Stderr, "kbnode: the payload stays sealed: %v\n", err)
		}
	}
	if err := ctx.Err(); err != nil { // cancelled: the agent's bootstrap would not hear of it
		return err
	}
	err = syscall.Exec(config.Agent.Path, []string{config.Agent.Path, "bootstrap", "--no-job-api"}, environ)
	return fmt.Errorf("starting %s: %w", config.Agent.Path, err)
}
