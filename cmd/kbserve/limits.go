package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/listing"
	"github.com/gpu-mode/kbgen/store"
)

type limitsCmd struct {
	Show limitsShowCmd `cmd:""`
	Set  limitsSetCmd  `cmd:""`
}

type limitsShowCmd struct {
	place `embed:""`
	Board string `arg:""`
	JSON  bool   `name:"json" help:"print JSON"`
}

func (c *limitsShowCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		limits, err := listing.Limits(ctx, s, c.Board)
		if err != nil {
			return err
		}
		if c.JSON {
			return cli.PrintJSON(env.Stdout, limits)
		}
		w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "SUBMISSIONS\tGPU\tAN HOUR")
		for _, l := range limits {
			gpu := "all"
			if l.GPU != "" {
				gpu = text.Line(l.GPU, 100)
			}
			fmt.Fprintf(w, "%s\t%s\t%d\n", l.Category, gpu, l.PerHour)
		}
		return w.Flush()
	})
}

type limitsSetCmd struct {
	place  `embed:""`
	Board  string   `arg:""`
	Limits []string `arg:"" optional:"" name:"limit"`
}

func (c *limitsSetCmd) Run(ctx context.Context, env *cli.Env) error {
	var limits []store.Limit
	for _, l := range c.Limits {
		limit, err := parseLimit("limit", l)
		if err != nil {
			return err
		}
		limits = append(limits, limit)
	}
	return c.with(ctx, func(s *store.Store) error { return s.SetLimits(ctx, c.Board, limits) })
}
