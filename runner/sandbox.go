package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

// openSandbox finds out how submissions can be isolated here, and begins to
// build the first sandbox.
func (e *evaluation) openSandbox() error {
	dir := filepath.Join(e.root, "sandbox")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("making the sandbox's directory: %w", err)
	}
	opened, err := sandbox.Open(e.sandboxOptions(dir))
	if err != nil {
		return err
	}
	e.sandbox = opened
	opened.Ready()
	return nil
}

// sandboxOptions are those of every sandbox of the job.
func (e *evaluation) sandboxOptions(dir string) sandbox.Options {
	p := e.job.Payload
	relative := func(path string) bool { return !filepath.IsAbs(path) }
	return sandbox.Options{
		Dir:     dir,
		Environ: e.job.Environ,
		Read:    slices.Concat(e.job.SandboxRead, slices.DeleteFunc(slices.Clone(p.IncludeDirs), relative)),
		Hide:    e.job.SandboxHide,
		TCP:     p.MultiGPU || p.Mode == schema.ModeProfile, // processes of one job meet there
		Minimum: e.job.Sandbox,
	}
}

// close makes sure that no process is left, removes the job's files, and enters
// in the result what isolated the submission.
func (e *evaluation) close() error {
	var sandboxErr error
	if e.session != nil { // first: the other way round its processes would be ended as strangers
		sandboxErr = e.session.Close()
	}
	if e.sandbox != nil {
		sandboxErr = errors.Join(sandboxErr, e.sandbox.Close())
	}
	if e.session != nil || e.sandbox != nil {
		sandboxErr = errors.Join(sandboxErr, sandbox.EndDescendants(killLimit))
	}
	err := errors.Join(sandbox.RemoveTree(e.root), sandboxErr)
	if e.sandbox != nil {
		if err != nil {
			e.sandbox.Survived(err)
		}
		e.result.Sandbox = e.sandbox.Report()
	}
	e.result.Sandbox = e.result.Sandbox.Join(e.compilers)
	if e.session != nil {
		e.result.Sandbox = e.session.Report().Join(e.result.Sandbox)
	}
	return err
}

// command runs one of the phase's commands in a sandbox of its own, see
// runCommand.
func (r *phaseRun) command(ctx context.Context, c *plan.Command) (*judge.Process, error) {
	dirs := sandbox.Directories(r.p.Directories)
	if err := r.sandbox.Prepare(dirs); err != nil {
		return nil, err
	}
	sweep := sandbox.EndDescendants
	if r.session != nil { // whose judge is one of them
		sweep = r.session.EndStrangers
	}
	seen, err := runCommand(ctx, r.sandbox, dirs, c, sweep)
	var weak *sandbox.WeakError
	var start *sandbox.StartError
	switch {
	case errors.As(err, &weak):
		return nil, outcomef(schema.OutcomeWeakSandbox, "%s", weak)
	case c.Built && errors.As(err, &start) && refusedProgram(start.Errno):
		return &judge.Process{NotStarted: start.Errno.Error()}, nil
	}
	return seen, err
}

// refusedProgram reports whether the kernel did not accept a file as a program.
// What the compiler writes follows from the submission's source.
func refusedProgram(errno syscall.Errno) bool {
	return slices.Contains([]syscall.Errno{
		syscall.ENOENT, syscall.ENOEXEC, syscall.EACCES, syscall.EPERM, syscall.EINVAL, syscall.ELIBBAD, syscall.ELOOP, syscall.ENOTDIR, syscall.EISDIR,
	}, errno)
}
