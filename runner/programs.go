package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/harness"
	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

// A build is what the compiler made of a C++ task for the isolated harness.
type build struct {
	version, submission *judge.Process    // nil: it did not get as far
	programs            map[string]string // files by name
	notMade             string            // why there is no library although the compiler said that all went well
}

// maxProgram bounds what is kept of a compilation, in bytes.
const maxProgram = 2 << 30

// compiled makes the programs, with the first phase, and opens the session. It
// reports whether the phase can go on: otherwise what was seen says why not.
//
// Errors: the task's own files do not compile, or the machine's compiler does
// not work; those of openSession.
func (r *phaseRun) compiled(ctx context.Context) (bool, error) {
	if r.p.Refused != nil {
		return false, nil
	}
	first := r.build == nil
	if first {
		r.build = &build{programs: map[string]string{}}
		if err := r.makePrograms(ctx); err != nil {
			return false, err
		}
	}
	r.seen.Version, r.seen.Compile, r.reused = r.build.version, r.build.submission, !first
	switch {
	case r.build.submission == nil || r.build.submission.Failed():
		return false, nil
	case r.build.notMade != "":
		r.seen.Test = &judge.Process{NotStarted: r.build.notMade}
		return false, nil
	case r.session != nil:
		return true, nil
	}
	return true, r.openSession(ctx, plan.Environ(r.job.Environ))
}

// makePrograms compiles one program after the other, in a sandbox that is gone
// when it returns: nothing that the compiler was made to leave is there when the
// harness begins.
func (r *phaseRun) makePrograms(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.closeCompilers()) }()
	if err := makeDirectories(r.p.Directories); err != nil {
		return err
	}
	if r.build.version, err = r.tool(ctx, r.p.Version); err != nil || r.build.version.Failed() {
		return err
	}
	for i := range r.p.Builds {
		b := &r.p.Builds[i]
		seen, err := r.compileProgram(ctx, b)
		if err == nil && seen.Failed() {
			err = compileFault(r.p, b, seen)
		}
		if b.Name == plan.BuildSubmission {
			r.build.submission = seen
		}
		if err != nil || seen.Failed() {
			return err
		}
	}
	return nil
}

// compileFault is whose fault it is that a program of ours, or the task's
// reference, does not compile; nil for the submission, about which the phase's
// verdict is.
func compileFault(p *plan.Phase, b *plan.Build, seen *judge.Process) error {
	words := judge.CompileWords(p.Compiler, b.Compile, seen)
	switch b.Name {
	case plan.BuildLauncher:
		return fmt.Errorf("%s does not compile a program of our own: %s", p.Compiler, words)
	case plan.BuildJudge:
		return outcomef(schema.OutcomeHarness, "the task's own files do not compile: %s", words)
	}
	return nil
}

// compileProgram runs one compilation and keeps what it made.
func (r *phaseRun) compileProgram(ctx context.Context, b *plan.Build) (*judge.Process, error) {
	if err := makeDirectories(b.Directories); err != nil {
		return nil, err
	}
	defer sandbox.RemoveTree(b.Dir) // what stays is the job's, and removed with it
	if err := writeFiles(b.Work, slices.Concat(b.Files, harness.Sources(b.Name))); err != nil {
		return nil, err
	}
	phase := *r
	phase.p = &plan.Phase{Directories: b.Directories}
	seen, err := phase.tool(ctx, b.Compile)
	if err != nil || seen.Failed() {
		return seen, err
	}
	kept := filepath.Join(r.root, b.Name)
	why, err := keepProgram(kept, b.Work)
	switch {
	case err != nil:
		return nil, err
	case why != nil && b.Name != plan.BuildSubmission:
		return nil, fmt.Errorf("%s made no %s: %w", r.p.Compiler, b.Name, why)
	}
	if r.build.programs[b.Name] = kept; why != nil {
		r.build.notMade = why.Error()
	}
	return seen, sandbox.RemoveTree(b.Dir)
}

// keepProgram copies what a compiler left in dir; why says that it left no file.
func keepProgram(to, dir string) (why, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("looking for what the compiler made: %w", err)
	}
	defer root.Close()
	in, why := openRegular(root, plan.BuiltFile)
	if why != nil {
		if errno, ok := errors.AsType[syscall.Errno](why); ok {
			why = errno
		}
		return why, nil
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("keeping what the compiler made: %w", err)
	}
	n, err := io.Copy(out, io.LimitReader(in, maxProgram+1))
	if err == nil && n > maxProgram {
		return unix.EFBIG, errors.Join(out.Close(), os.Remove(to))
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return nil, fmt.Errorf("keeping what the compiler made: %w", err)
	}
	return nil, nil
}

// closeCompilers ends the sandbox of the compilers and keeps its report.
func (e *evaluation) closeCompilers() error {
	err := e.sandbox.Close()
	if err != nil {
		e.sandbox.Survived(err)
	}
	e.compilers, e.sandbox = e.sandbox.Report(), nil
	return err
}
