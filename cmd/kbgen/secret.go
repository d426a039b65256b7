package main

import (
	"context"
	"fmt"
	"syscall"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
)

// secretCmd hands over to kbgen-secret. Its cryptography, linked in here, would
// make each start of kbgen take half as much processor time again.
type secretCmd struct {
	Args []string `arg:"" optional:"" passthrough:""`
}

func (c *secretCmd) Run(_ context.Context, env *cli.Env) error {
	const name = "kbgen-secret"
	path, err := findBeside(name)
	if err != nil {
		return cli.WithHint(fmt.Errorf("secret: %w", err), "go install github.com/gpu-mode/kbgen/cmd/%s, or put it beside kbgen", name)
	}
	// Nothing is left to do here: streams, signals and exit status are its own.
	return fmt.Errorf("running %s: %w", path, syscall.Exec(path, append([]string{name}, c.Args...), env.Environ()))
}
