package main

import (
	"context"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node/facts"
)

// factsCmd prints what the machine is.
type factsCmd struct {
	Root string `placeholder:"DIR" help:"read the files below DIR, and ask no program"`
}

func (c *factsCmd) Run(ctx context.Context, env *cli.Env) error {
	f, err := facts.Read(ctx, facts.Host(c.Root))
	if err != nil {
		return err
	}
	return cli.PrintJSON(env.Stdout, f)
}
