package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/doctor"
	"github.com/gpu-mode/kbgen/node/facts"
	"github.com/gpu-mode/kbgen/node/status"
)

// statusCmd says what the slots do now.
type statusCmd struct {
	JSON bool `name:"json" help:"print one JSON document, with tags, images, memory; schema: schema/published/node-status.json"`
}

func (c *statusCmd) Run(ctx context.Context, env *cli.Env) error {
	config, err := node.ReadConfig("/")
	if err != nil {
		return err
	}
	st, err := status.Read(ctx, doctor.Host(), config)
	if err != nil {
		return err
	}
	if c.JSON {
		return cli.PrintJSON(env.Stdout, st)
	}
	fmt.Fprintf(env.Stdout, "%-8s %-12s %-9s %-9s %-36s %s\n", "SLOT", "QUEUE", "STATE", "RESTARTS", "JOB", "DEVICE")
	for _, s := range st.Slots {
		fmt.Fprintf(env.Stdout, "%-8s %-12s %-9s %-9d %-36s %s\n", s.Name, s.Queue, s.State, s.Restarts, cmp.Or(s.Job, "-"), s.Device)
		if s.Reason != "" {
			fmt.Fprintf(env.Stdout, "         %s\n", s.Reason)
		}
	}
	for _, name := range st.Drift {
		fmt.Fprintf(env.Stdout, "changed by hand: %s\n", name)
	}
	return nil
}

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
