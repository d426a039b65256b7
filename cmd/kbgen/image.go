package main

import (
	"context"
	"fmt"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/templates"
)

// imageCmd prints the Dockerfile of a runner image, or what it is built on.
type imageCmd struct {
	Kind string `arg:"" enum:"cuda,rocm"`
	Base bool
}

func (c *imageCmd) Run(_ context.Context, env *cli.Env) error {
	r, err := templates.NewRunner(templates.RunnerKind(c.Kind))
	if err != nil {
		return err
	}
	if c.Base {
		fmt.Fprintln(env.Stdout, r.Base)
		return nil
	}
	r.Version = cli.Version()
	text, err := r.Dockerfile()
	if err != nil {
		return err
	}
	_, err = env.Stdout.Write(text)
	return err
}
