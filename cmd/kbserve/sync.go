package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/server/competition"
	"github.com/gpu-mode/kbgen/store"
)

type syncCmd struct {
	place  `embed:""`
	Files  []string `arg:"" name:"file"`
	Force  bool     `help:"also change what makes earlier results incomparable"`
	DryRun bool     `help:"print what would change"`
}

func (c *syncCmd) Run(ctx context.Context, env *cli.Env) error {
	var boards []store.Board
	var faults []error
	for _, name := range c.Files {
		more, err := competition.Read(name)
		boards = append(boards, more...)
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	return c.with(ctx, func(s *store.Store) error {
		changes, err := s.SaveBoards(ctx, boards, store.SaveOptions{Force: c.Force, DryRun: c.DryRun})
		if err != nil {
			return err
		}
		for _, change := range changes {
			fmt.Fprintf(env.Stdout, "%s %s", change.What, change.Board)
			if len(change.Parts) > 0 {
				fmt.Fprintf(env.Stdout, ": %s", strings.Join(change.Parts, ", "))
			}
			fmt.Fprintln(env.Stdout)
		}
		if c.DryRun {
			fmt.Fprintln(env.Stderr, "kbserve: note: nothing was changed")
		}
		return nil
	})
}
