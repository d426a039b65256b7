package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

// openBox prepares what shuts the submission in, and begins with the first box.
func (e *evaluation) openBox() error {
	dir := filepath.Join(e.root, "box")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("making the sandbox's directory: %w", err)
	}
	box, err := sandbox.Open(sandbox.Options{
		Dir:      dir,
		Environ:  e.job.Environ,
		Read:     slices.Concat(e.job.SandboxRead, slices.DeleteFunc(slices.Clone(e.p.IncludeDirs), isRelative)),
		Hide:     e.job.SandboxHide,
		Loopback: e.p.MultiGPU || e.p.Mode == schema.ModeProfile, // processes of one job meet there
		Minimum:  e.job.Sandbox,
	})
	if err != nil {
		return err
	}
	e.box = box
	box.Ready()
	return nil
}

func isRelative(path string) bool { return !filepath.IsAbs(path) }

// close sees that no process is left, removes everything of the job and says in
// the result what it was shut in by.
func (e *evaluation) close(result *schema.Result) error {
	var boxErr error
	if e.box != nil {
		boxErr = errors.Join(e.box.Close(), endDescendants(killLimit))
	}
	err := errors.Join(removeTree(e.root), boxErr)
	if e.box != nil {
		if err != nil {
			e.box.Survived(err)
		}
		result.Sandbox = e.box.Report()
	}
	return err
}

// run runs the command in a box of its own, see run in process.go.
func (ph *phase) run(ctx context.Context, c command) (*ended, error) {
	place := sandbox.Place{Dir: ph.dir, Work: ph.work, Home: ph.home, Temp: ph.tmp}
	if err := ph.box.Prepare(place); err != nil {
		return nil, err
	}
	done, err := run(ctx, ph.box, place, c)
	var weak *sandbox.WeakError
	if errors.As(err, &weak) {
		return nil, endf(schema.OutcomeWeakSandbox, "%s", weak)
	}
	return done, err
}
