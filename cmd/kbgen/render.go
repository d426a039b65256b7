package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/pipelines"
)

// renderEvaluate prints the pipeline.
type renderEvaluate struct {
	evaluateFlags
	Format string `enum:"yaml,json" default:"yaml"`
}

func (c *renderEvaluate) Run(_ context.Context, env *cli.Env) error {
	out, err := c.render(env, c.Format == "json")
	if err != nil {
		return err
	}
	if _, err := env.Stdout.Write(out); err != nil {
		return fmt.Errorf("writing the pipeline: %w", err)
	}
	return nil
}

// listGPUs prints the table of GPU types for people.
type listGPUs struct{}

func (c *listGPUs) Run(_ context.Context, env *cli.Env) error {
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tQUEUE\tVENDOR\tARCH\tGPUS\tCPUS\tMEMORY\tPLATFORM\tTIMEOUT\tSTATE")
	for _, g := range pipelines.Fleet {
		arch, state := g.Arch, "on"
		if arch == "" {
			arch = "-"
		}
		if g.Off != "" {
			state = "off: " + g.Off
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d GiB\t%s\t%.0f min\t%s\n",
			g.Name, g.Queue, g.Vendor, arch, g.GPUs, g.CPUs, g.MemoryGiB, g.Platform, g.Timeout.Minutes(), state)
	}
	return w.Flush()
}
