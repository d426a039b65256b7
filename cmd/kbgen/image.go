package main

import (
	"context"
	"fmt"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/templates"
)

// imageCmd prints the Dockerfile of a runner image, or what it is built on.
type imageCmd struct {
	Kind string `arg:"" enum:"cuda,rocm,cpu,rootfs"`
	Base bool   `help:"print the image that it is built on"`
}

// cpuBase is what the script of kbgen image rootfs makes, as its help page has
// it imported.
const cpuBase = "kbgen-base:1"

func (c *imageCmd) Run(_ context.Context, env *cli.Env) error {
	if c.Kind == "rootfs" {
		script, err := templates.Rootfs()
		if err != nil {
			return err
		}
		_, err = env.Stdout.Write(script)
		return err
	}
	r, err := templates.NewRunner(templates.RunnerKind(c.Kind))
	if err != nil {
		return err
	}
	if r.Kind == templates.CPU {
		r.Base = cpuBase
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
