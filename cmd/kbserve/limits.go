package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/text"
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
		limits, err := s.Limits(ctx, c.Board)
		if err != nil {
			return err
		}
		return cli.PrintList(env.Stdout, c.JSON, limits, "SUBMISSIONS\tGPU\tAN HOUR", func(l store.Limit) string {
			return fmt.Sprintf("%s\t%s\t%d", l.Category, cmp.Or(text.Line(l.GPU, 100), "all"), l.PerHour)
		})
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
