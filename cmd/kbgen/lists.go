package main

import (
	"cmp"
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/pipelines"
)

// listGPUs prints the table of GPU types.
type listGPUs struct {
	JSON bool `help:"print JSON"`
}

func (c *listGPUs) Run(_ context.Context, env *cli.Env) error {
	if c.JSON {
		return cli.PrintJSON(env.Stdout, gpuTypesAsJSON(pipelines.Fleet))
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tQUEUE\tVENDOR\tARCH\tGPUS\tCPUS\tMEMORY\tPLATFORM\tTIMEOUT\tSTATE")
	for _, g := range pipelines.Fleet {
		gpus := fmt.Sprint(g.GPUs)
		if g.Slice != "" {
			gpus += " × " + g.Slice
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d GiB\t%s\t%.0f min\t%s\n",
			g.Name, g.Queue, g.Vendor, cmp.Or(g.Arch, "-"), gpus, g.CPUs, g.MemoryGiB, g.Platform, g.Timeout.Minutes(), state(g))
	}
	return w.Flush()
}

func state(g pipelines.GPUType) string {
	if g.Off != "" {
		return "off: " + g.Off
	}
	return "on"
}

// listKinds prints the step kinds and the pipelines made of them.
type listKinds struct {
	JSON bool `help:"print JSON"`
}

func (c *listKinds) Run(_ context.Context, env *cli.Env) error {
	if c.JSON {
		return cli.PrintJSON(env.Stdout, kindsAsJSON())
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KIND\tWHAT A STEP OF IT DOES")
	for _, k := range pipelines.Kinds {
		fmt.Fprintf(w, "%s\t%s\n", k.Name, k.About)
	}
	fmt.Fprintln(w, "\t\nPIPELINE\tWHAT IT IS FOR")
	for _, p := range pipelines.Pipelines {
		fmt.Fprintf(w, "%s\t%s\n", p.Name, p.About)
	}
	return w.Flush()
}

// A queue is one that steps are sent to.
type queue struct {
	Queue    string             `json:"queue"`
	Serves   string             `json:"serves" jsonschema:"GPU type, or the helper machine"`
	Platform pipelines.Platform `json:"platform"`
	Off      string             `json:"off,omitempty" jsonschema:"why nothing may be sent there now"`
}

// listQueues prints every queue that some pipeline sends steps to.
type listQueues struct {
	JSON bool `help:"print JSON"`
}

func (c *listQueues) Run(_ context.Context, env *cli.Env) error {
	var queues []queue
	for _, table := range []pipelines.Table{pipelines.ServiceQueues, pipelines.Fleet} {
		for _, g := range table {
			queues = append(queues, queue{g.Queue, g.Name, g.Platform, g.Off})
		}
	}
	return cli.PrintList(env.Stdout, c.JSON, queues, "QUEUE\tSERVES\tPLATFORM\tSTATE", func(q queue) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s", q.Queue, q.Serves, q.Platform, state(pipelines.GPUType{Off: q.Off}))
	})
}
