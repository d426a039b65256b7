package main

import (
	"context"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/pipeline"
)

// schemaCmd prints the JSON Schema of the step format that is checked.
type schemaCmd struct{}

func (c *schemaCmd) Run(_ context.Context, env *cli.Env) error {
	_, err := env.Stdout.Write(pipeline.Schema())
	return err
}
