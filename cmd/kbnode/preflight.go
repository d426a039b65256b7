package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node/doctor"
	"github.com/gpu-mode/kbgen/node/facts"
)

// preflightCmd checks a machine before it is set up.
type preflightCmd struct {
	Endpoint string `placeholder:"URL" help:"the URL of the agent API; default Buildkite's"`
	JSON     bool   `name:"json" help:"print one JSON document; schema: schema/published/node-doctor.json"`
	Root     string `default:"/" placeholder:"DIR" help:"read the files below DIR, and ask no program; for tests"`
}

func (c *preflightCmd) Run(ctx context.Context, env *cli.Env) error {
	m := doctor.Host()
	if c.Root != "/" {
		files := facts.Host(c.Root)
		m.Root, m.Run, m.Look = files.Root, files.Run, files.Look
		m.Engine = func(context.Context, string, string, url.Values, any) error {
			return errors.New("not asked, for --root")
		}
	}
	d, err := doctor.Preflight(ctx, m, c.Endpoint)
	if err != nil {
		return err
	}
	if err = printDiagnosis(env, d, c.JSON, true); err == nil && !d.OK {
		err = failed(d)
	}
	return err
}

// failed is the error of a diagnosis that is not OK.
func failed(d *doctor.Diagnosis) error {
	return fmt.Errorf("%d of %d checks failed", d.Count(doctor.Failure), len(d.Checks))
}
