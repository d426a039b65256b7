package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/server/diagnosis"
	"github.com/gpu-mode/kbgen/store"
)

type doctorCmd struct {
	place     `embed:""`
	buildkite `embed:""`
	Age       time.Duration `default:"30m" placeholder:"TIME" help:"report submissions that have waited for at least so long"`
	JSON      bool          `name:"json" help:"print JSON"`
}

func (c *doctorCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.Age < 0 {
		return cli.Usagef("--age: got %v, want 0 or more", c.Age)
	}
	return c.with(ctx, func(s *store.Store) error {
		o := diagnosis.Options{Store: s, Fleet: pipelines.Fleet, Age: c.Age}
		if env.Getenv(varToken) == "" {
			fmt.Fprintf(env.Stderr, "kbserve: note: no %s: whether the queues have agents is not looked at\n", varToken)
		} else {
			var err error
			if o.Launcher, err = c.client(env, "", 0, nil); err != nil {
				return err
			}
		}
		d, err := diagnosis.Run(ctx, o)
		if err != nil {
			return err
		}
		if c.JSON {
			err = cli.PrintJSON(env.Stdout, d)
		} else {
			printDiagnosis(env, d)
		}
		if err == nil && !d.OK {
			err = fmt.Errorf("found: %d", len(d.Found))
		}
		return err
	})
}

func printDiagnosis(env *cli.Env, d *diagnosis.Diagnosis) {
	for _, f := range d.Found {
		fmt.Fprintf(env.Stdout, "%s: %s\n  to do: %s\n", f.Kind, f.Text, f.ToDo)
	}
	if d.OK {
		fmt.Fprintln(env.Stdout, "nothing is stuck, and the standings are what the runs say")
	}
}
