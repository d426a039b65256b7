package main

import (
	"context"
	"fmt"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
)

// exitChanges is kbnode plan's status when there is something to do.
const exitChanges = 2

// planCmd says what apply would do.
type planCmd struct {
	target
	JSON bool `name:"json" help:"print one JSON document; schema: schema/published/node-plan.json"`
}

func (c *planCmd) Run(ctx context.Context, env *cli.Env) error {
	token, err := c.token(env, false)
	if err != nil {
		return public(err)
	}
	p, err := c.target.target().Plan(ctx, token, logger(env))
	if err != nil {
		return public(err)
	}
	if c.JSON {
		err = cli.PrintJSON(env.Stdout, p.Document())
	} else {
		err = p.Write(env.Stdout)
	}
	if err == nil && len(p.Actions)+len(p.Missing) > 0 {
		return &cli.ExitError{Status: exitChanges}
	}
	return err
}

// progress prints what is done while it is done.
func progress(env *cli.Env) func(string) {
	return func(line string) { fmt.Fprintf(env.Stderr, "%s\n", line) }
}
