package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/near"
	"github.com/gpu-mode/kbgen/schema/pipeline"
	"github.com/gpu-mode/kbgen/schema/published"
	"github.com/gpu-mode/kbgen/schema/queuefile"
)

// listGPUs prints the table of GPU types.
type listGPUs struct {
	JSON bool `help:"print JSON"`
}

func (c *listGPUs) Run(_ context.Context, env *cli.Env) error {
	return cli.PrintList(env.Stdout, c.JSON, gpuTypes(), "NAME\tQUEUE\tVENDOR\tARCH\tGPUS\tCPUS\tMEMORY\tPLATFORM\tTIMEOUT\tSTATE", func(g gpuTypeJSON) string {
		gpus := fmt.Sprint(g.GPUs)
		if g.Slice != "" {
			gpus += " × " + g.Slice
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%d GiB\t%s\t%d min\t%s",
			g.Name, g.Queue, g.Vendor, cmp.Or(g.Arch, "-"), gpus, g.CPUs, g.MemoryGiB, g.Platform, g.TimeoutSeconds/60, state(g.Off))
	})
}

func state(off string) string {
	if off != "" {
		return "off: " + off
	}
	return "on"
}

// listKinds prints the step kinds and the pipelines made of them.
type listKinds struct {
	JSON bool `help:"print JSON"`
}

func (c *listKinds) Run(_ context.Context, env *cli.Env) error {
	if c.JSON {
		return cli.PrintJSON(env.Stdout, kindsJSON{pipelines.Kinds, pipelines.Pipelines})
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
		return fmt.Sprintf("%s\t%s\t%s\t%s", q.Queue, q.Serves, q.Platform, state(q.Off))
	})
}

// What --json prints, one type each; kbgen schema publishes their schemas. Names
// are in snake case and carry their unit.
type (
	gpuTypeJSON struct {
		Name           string              `json:"name" jsonschema:"as submitters write it, H100_BK"`
		Vendor         pipelines.Vendor    `json:"vendor" jsonschema:"none, nvidia, amd or google"`
		Arch           string              `json:"arch,omitempty" jsonschema:"what nvcc is given after sm_, 90a; NVIDIA only"`
		Queue          string              `json:"queue"`
		GPUs           int                 `json:"gpus" jsonschema:"devices that one job gets"`
		Slice          string              `json:"slice,omitempty" jsonschema:"part of one GPU, as MIG names it"`
		CPUs           int                 `json:"cpus" jsonschema:"whole cores that one job gets"`
		MemoryGiB      int                 `json:"memory_gib" jsonschema:"host memory that one job gets"`
		Platform       pipelines.Platform  `json:"platform" jsonschema:"host, docker or kubernetes"`
		Image          string              `json:"image,omitempty" jsonschema:"of the runner; none on a host"`
		Isolation      pipelines.Isolation `json:"isolation" jsonschema:"node or step: who gives a job its devices and limits"`
		Sandbox        string              `json:"sandbox" jsonschema:"the least sandbox that a submission runs in: none, partial or full"`
		TimeoutSeconds int                 `json:"timeout_seconds" jsonschema:"of one job, from start to finish"`
		Device         *schema.DeviceType  `json:"device,omitempty" jsonschema:"how each device is known"`
		Off            string              `json:"off,omitempty" jsonschema:"why nothing may be sent there now"`
	}
	kindsJSON struct {
		Kinds     []pipelines.Kind     `json:"kinds"`
		Pipelines []pipelines.Pipeline `json:"pipelines"`
	}
)

func gpuTypes() (rows []gpuTypeJSON) {
	for _, g := range pipelines.Fleet {
		row := gpuTypeJSON{
			Name: g.Name, Vendor: g.Vendor, Arch: g.Arch, Queue: g.Queue, GPUs: g.GPUs, Slice: g.Slice, CPUs: g.CPUs, MemoryGiB: g.MemoryGiB,
			Platform: g.Platform, Image: g.Image, Isolation: g.Isolation, Sandbox: g.LeastSandbox(), TimeoutSeconds: int(g.Timeout.Seconds()), Off: g.Off,
		}
		if len(g.Device.Names) > 0 {
			row.Device = &g.Device
		}
		rows = append(rows, row)
	}
	return rows
}

// schemaCmd prints a JSON Schema.
type schemaCmd struct {
	Name string `arg:"" optional:"" name:"document" default:"pipeline"`
	List bool   `help:"list all documents that have a schema"`
}

// checkedFormats are the schemas that kbgen itself checks by.
var checkedFormats = map[string]func() []byte{"pipeline": pipeline.Schema, "queue-file": func() []byte { return queuefile.Schema }}

// schemaNames lists every schema there is.
func schemaNames() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(checkedFormats)), published.Names()...)))
}

func (c *schemaCmd) Run(_ context.Context, env *cli.Env) error {
	if c.List {
		return c.list(env)
	}
	text, known := schemaOf(c.Name)
	if !known {
		return cli.WithHint(cli.Usagef("no schema of %q%s", c.Name, near.Clause(c.Name, schemaNames())), "kbgen schema --list")
	}
	_, err := env.Stdout.Write(text)
	return err
}

func schemaOf(name string) ([]byte, bool) {
	if get, ok := checkedFormats[name]; ok {
		return get(), true
	}
	return published.Get(name)
}

func (c *schemaCmd) list(env *cli.Env) error {
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	for _, name := range schemaNames() {
		text, _ := schemaOf(name)
		var head struct{ Title string }
		if err := json.Unmarshal(text, &head); err != nil {
			return fmt.Errorf("the schema of %s: %w", name, err)
		}
		fmt.Fprintf(w, "%s\t%s\n", name, head.Title)
	}
	return w.Flush()
}
