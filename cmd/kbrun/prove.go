package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/runner"
	"github.com/gpu-mode/kbgen/schema"
)

const helpProve = `Find out whether the isolated harness works with this machine's GPU. It judges
kernels of known work and kernels that cheat, in Python and, if nvcc or hipcc is
there, in C++. That takes up to two minutes. If every check in Python passes,
kbrun evaluate uses the isolated harness for tasks with tensors on this GPU,
until the GPU, driver, torch or kbrun changes. Tasks in C++ get it only if they
say harness: isolated. Run kbrun prove as root, because evaluate accepts only
proofs that belong to root.

Usage:
  kbrun prove [options]

Options:
{options}

Stdout: a line for each check.

Exit status:
  0   it works; the proof is written
  64  wrong usage
  75  it does not work, and the proof says which check failed; or there is no
      proof, for example because there is no GPU

Example:
  sudo kbrun prove
`

type proveCmd struct {
	Out string `placeholder:"FILE" help:"where to write the proof; default /var/lib/kbrun/proofs/UUID.json, by the GPU's UUID, where evaluate looks for it"`
	sandboxFlags
}

// Run proves the machine's first GPU.
func (c *proveCmd) Run(ctx context.Context, env *cli.Env) error {
	job := runner.Job{Environ: env.Environ(), WorkDir: env.Getenv("TMPDIR"), Sandbox: c.level(), Devices: machine(), Version: cli.Version()}
	job.SandboxRead, job.SandboxHide = c.paths(env)
	proof, err := runner.Prove(ctx, job)
	if err != nil {
		return &cli.ExitError{Status: schema.ExitTempFail, Err: err}
	}
	for _, check := range proof.Checks {
		word := "ok  "
		if !check.OK {
			word = "FAIL"
		}
		fmt.Fprintf(env.Stdout, "%s %s (%.1f s): %s\n", word, check.Title(), check.Seconds, check.Text)
	}
	if proof.NotTried != "" {
		fmt.Fprintf(env.Stdout, "C++ was not tried: %s\n", proof.NotTried)
	}
	out := c.Out
	if out == "" {
		out = filepath.Join(schema.ProofDir, filepath.Base(proof.UUID)+".json")
		if err := os.MkdirAll(schema.ProofDir, 0o755); err != nil {
			return &cli.ExitError{Status: schema.ExitTempFail, Err: err}
		}
	}
	text, err := json.MarshalIndent(proof, "", "  ")
	if err == nil {
		err = renameio.WriteFile(out, append(text, '\n'), 0o644, renameio.WithTempDir(filepath.Dir(out)), renameio.IgnoreUmask())
	}
	if err != nil {
		return &cli.ExitError{Status: schema.ExitTempFail, Err: err}
	}
	if failed := proof.Failed(); failed != "" {
		return &cli.ExitError{Status: schema.ExitTempFail, Err: fmt.Errorf("the isolated harness cannot be relied on here: %s", failed)}
	}
	fmt.Fprintf(env.Stdout, "proved for %s (%s); %s\n", proof.Device, proof.UUID, out)
	return nil
}
