package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/generator"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema/format"
)

// planCmd prints what a pipeline would start, and what that may cost.
type planCmd struct {
	pipelineFlags
	JSON bool `help:"print JSON (kbgen schema plan)"`
}

func (c *planCmd) Run(_ context.Context, env *cli.Env) error {
	p, r, err := c.wanted(env)
	if err != nil {
		return err
	}
	plan, err := generator.Plan(p, r)
	if err != nil {
		return withStatus(err)
	}
	if c.JSON {
		return cli.PrintJSON(env.Stdout, plan)
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tQUEUE\tGPU TYPE\tTIMEOUT\tTRIES\tGPU-MINUTES\tIMAGE")
	total, skipped := 0, 0
	for _, s := range plan {
		key := s.Key
		if s.Skip != "" {
			key += " (skipped)"
			skipped++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d min\t%d\t%d\t%s\n", key, s.Queue, s.GPU, s.Minutes, s.Tries, s.GPUMinutes, cmp.Or(s.Image, "-"))
		total += s.GPUMinutes
	}
	if err := w.Flush(); err != nil {
		return err
	}
	jobs := format.Count(len(plan), "job")
	if skipped > 0 {
		jobs = fmt.Sprintf("%d of %s", len(plan)-skipped, jobs)
	}
	fmt.Fprintf(env.Stdout, "%s, %d GPU-minutes in the worst case (devices × timeout × tries)\n", jobs, total)
	return nil
}

// explainCmd says where the values of a step come from.
type explainCmd struct {
	Step string `arg:""`
	requestFlags
}

func (c *explainCmd) Run(_ context.Context, env *cli.Env) error {
	key, field, _ := strings.Cut(c.Step, ".")
	c.IncludeOff = true
	values, err := c.values(env, key)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FIELD\tVALUE\tDECIDED BY\tWHERE")
	found := false
	var fields []string
	for _, v := range values {
		top, _, _ := strings.Cut(v.Path, ".")
		top, _, _ = strings.Cut(top, "[")
		fields = append(fields, top)
		rest, within := strings.CutPrefix(v.Path, field)
		if !within || field != "" && rest != "" && rest[0] != '.' && rest[0] != '[' {
			continue
		}
		found = true
		text, more, cut := strings.Cut(v.Text, "\n")
		if cut {
			text += fmt.Sprintf(" … and %d lines", strings.Count(more, "\n")+1)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", v.Path, text, v.Origin.Layer, v.Origin.Why)
	}
	if !found {
		return asUsage(pipelines.Unknown("field of "+key, field, unique(fields)))
	}
	return w.Flush()
}

// values finds the step in every pipeline, on the rows asked for or on all.
func (c *explainCmd) values(env *cli.Env, key string) ([]generator.Value, error) {
	var keys []string
	if _, err := c.selection(env); err != nil {
		return nil, err
	}
	for _, p := range pipelines.Pipelines {
		f := c.requestFlags
		if len(f.GPU) == 0 && (p.NeedsGPUs || p.Serves != nil) {
			f.GPU = []string{pipelines.All}
		}
		r, err := f.request(p, env)
		if err != nil {
			return nil, err
		}
		if r.Secret == nil {
			r.Secret = &pipelines.Run{ID: "secret"}
		}
		requests := []pipelines.Request{r}
		if len(c.GPU) == 0 && len(r.GPUs) > 0 { // one row each, as a build has it
			requests = nil
			for _, g := range r.GPUs {
				r.GPUs = pipelines.Table{g}
				requests = append(requests, r)
			}
		}
		for _, r := range requests {
			values, found, err := generator.Explain(p, r, key)
			if err != nil || values != nil {
				return values, err
			}
			keys = append(keys, found...)
		}
	}
	return nil, asUsage(pipelines.Unknown("step", key, unique(keys)))
}

// stepKeys lists the steps of all pipelines on all GPU types, for completion.
func stepKeys() []string {
	unset := &cli.Env{LookupEnv: func(string) (string, bool) { return "", false }}
	var keys []string
	for _, p := range pipelines.Pipelines {
		f := requestFlags{IncludeOff: true}
		if p.NeedsGPUs || p.Serves != nil {
			f.GPU = []string{pipelines.All}
		}
		r, err := f.request(p, unset)
		if err != nil {
			continue // a pipeline that needs more of a build than there is
		}
		plan, err := generator.Plan(p, r)
		if err != nil {
			continue
		}
		for _, s := range plan {
			keys = append(keys, s.Key)
		}
	}
	return unique(keys)
}

// unique drops names that came before, and keeps the order.
func unique(list []string) []string {
	var out []string
	for _, name := range list {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
