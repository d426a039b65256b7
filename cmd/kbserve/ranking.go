package main

import (
	"context"
	"fmt"
	"strconv"
	"text/tabwriter"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/listing"
	"github.com/gpu-mode/kbgen/store"
)

type showCmd struct {
	place `embed:""`
	Name  string `arg:""`
	GPU   string `name:"gpu" placeholder:"NAME" help:"only this GPU type"`
	Limit int    `default:"20" placeholder:"N" help:"so many entries of each GPU type; 0 for all"`
	JSON  bool   `name:"json" help:"print a list, one object for each GPU type"`
}

func (c *showCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.Limit < 0 {
		return cli.Usagef("--limit: got %d, want 0 for all, or more", c.Limit)
	}
	return c.with(ctx, func(s *store.Store) error {
		all, err := listing.Rankings(ctx, s, c.Name, c.GPU, c.Limit)
		if err != nil {
			return err
		}
		if c.JSON {
			return cli.PrintJSON(env.Stdout, all)
		}
		for i, r := range all {
			if i > 0 {
				fmt.Fprintln(env.Stdout)
			}
			fmt.Fprintf(env.Stdout, "%s on %s: %d ranked\n", text.Line(c.Name, 100), text.Line(r.GPU, 100), r.Total)
			w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
			for _, e := range r.Entries {
				rank := strconv.Itoa(e.Rank)
				if e.Tied {
					rank += "="
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\n", rank, text.Line(e.UserName, 60), text.Line(e.UserID, 20), format.Score(e.Score), e.Time.Format("2006-01-02 15:04"), e.Submission)
			}
			if err := w.Flush(); err != nil {
				return err
			}
		}
		return nil
	})
}
