package main

import (
	"context"
	"fmt"
	"io"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/runner/doctor"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

const helpDoctor = `Say how this machine can isolate a submission. Nothing is changed.

Usage:
  kbrun doctor [options]

Options:
{options}

Stdout: the machine, each means of building a sandbox here, what it lacks, and
the one that evaluate would take.

Exit status:
  0   the level needed can be had
  64  wrong usage
  75  it cannot

Example:
  kbrun doctor --sandbox full
`

type doctorCmd struct {
	JSON bool `help:"print JSON"`
	sandboxFlags
	exposed error
}

// Run builds a sandbox by every means and prints what came of it.
func (c *doctorCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.exposed != nil {
		return &cli.ExitError{Status: schema.ExitTempFail, Err: c.exposed}
	}
	read, hide := c.paths(env)
	d, err := doctor.Examine(sandbox.Options{Dir: env.Getenv("TMPDIR"), Environ: env.Environ(), Read: read, Hide: hide, Minimum: c.level()})
	if err != nil {
		return &cli.ExitError{Status: schema.ExitTempFail, Err: err}
	}
	if c.JSON {
		err = cli.PrintJSON(env.Stdout, d)
	} else {
		_, err = io.WriteString(env.Stdout, d.Text())
	}
	if err != nil {
		return err
	}
	if !d.OK {
		return cli.WithHint(&cli.ExitError{Status: schema.ExitTempFail, Err: fmt.Errorf("want a sandbox of level %q", d.Needed)},
			"allow user namespaces to this user, run as root, or use a kernel with Landlock")
	}
	return nil
}
