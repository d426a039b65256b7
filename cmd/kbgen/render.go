package main

import (
	"context"
	"fmt"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/generator"
	"github.com/gpu-mode/kbgen/schema"
)

// renderCmd prints a pipeline.
type renderCmd struct {
	pipelineFlags
	bootstrapFlags
	Format  string `enum:"yaml,json" default:"yaml" placeholder:"FORMAT" help:"yaml or json; json is safer in a pipe, because a truncated document does not parse"`
	MaxJobs *int   `name:"max-jobs" placeholder:"N" help:"jobs in one document, further ones follow; default 500"` // nil: as many as Buildkite takes
	Static  bool   `help:"bootstrap only: one step that judges, for launchers that look for the result in a build's first job"`
}

func (c *renderCmd) Run(_ context.Context, env *cli.Env) error {
	c.bootstrap, c.static = c.bootstrapFlags, c.Static
	documents, err := c.render(env, generator.Format(c.Format), c.MaxJobs)
	if err != nil {
		return err
	}
	if c.Format == "json" && len(documents) > 1 {
		return cli.Usagef("--format json: got %d documents, and JSON has no way to part them: raise --max-jobs, or take yaml", len(documents))
	}
	if _, err := env.Stdout.Write(generator.Join(documents)); err != nil {
		return fmt.Errorf("writing the pipeline: %w", err)
	}
	return nil
}

// render returns the documents of the pipeline that is asked for.
func (f *pipelineFlags) render(env *cli.Env, format generator.Format, maxJobs *int) ([][]byte, error) {
	jobs := schema.MaxJobsPerUpload
	if maxJobs != nil {
		jobs = *maxJobs
	}
	p, err := f.find()
	if err != nil {
		return nil, err
	}
	if jobs < 1 || jobs > schema.MaxJobsPerUpload {
		return nil, cli.Usagef("--max-jobs %d: want 1 to %d, which Buildkite takes in one document", jobs, schema.MaxJobsPerUpload)
	}
	r, err := f.request(p, env)
	if err != nil {
		return nil, err
	}
	say(env, r.Notes)
	documents, err := generator.RenderParts(p, r, format, jobs)
	return documents, withStatus(err)
}
