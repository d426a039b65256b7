package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
)

// cudaFlags returns nvcc's fixed options, made anew for every call.
func cudaFlags() []string {
	return strings.Fields(`--std=c++20 -DNDEBUG -Xcompiler=-Wno-psabi -Xcompiler=-fno-strict-aliasing
		--expt-extended-lambda --expt-relaxed-constexpr -forward-unknown-to-host-compiler -O3
		-Xnvlink=--verbose -Xptxas=--verbose -Xptxas=--warn-on-spills`)
}

// cuda is the flow for lang cu: files, nvcc, files away, the binary. The
// binary never sees the sources: they hold the reference.
func (ph *phase) cuda(ctx context.Context) error {
	if err := checkIncludeDirs(ph.p.IncludeDirs); err != nil {
		return err
	}
	files := slices.Concat(ph.p.Sources, ph.p.Headers)
	if err := writeFiles(ph.work, files); err != nil {
		return err
	}
	err := ph.compile(ctx)
	for _, f := range files {
		if rmErr := os.RemoveAll(filepath.Join(ph.work, f.Name)); err == nil && rmErr != nil {
			err = fmt.Errorf("removing the sources: %w", rmErr)
		}
	}
	if err != nil {
		return err
	}
	return ph.test(ctx, "./eval.out")
}

func checkIncludeDirs(dirs []string) error {
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return endf(schema.OutcomeMachine, "include directory %q does not exist on this machine", dir)
		}
	}
	return nil
}

// compile calls nvcc. A failure leaves a stand-in run beside the compilation:
// Kernelbot's store cannot take a run that is null.
func (ph *phase) compile(ctx context.Context) error {
	nvcc, err := lookPath("nvcc", ph.environ)
	if err != nil {
		ph.notCompiled(&schema.CompileResult{Command: "which nvcc", ExitCode: 1})
		return endf(schema.OutcomeNoCompiler, "the machine has no nvcc")
	}
	version, err := ph.tool(ctx, nvcc, "--version")
	if err != nil {
		return err
	}
	if version.exitCode != 0 {
		ph.notCompiled(&schema.CompileResult{
			Command: "nvcc --version", Stdout: version.stdout.text(), Stderr: version.stderr.text(), ExitCode: version.exitCode,
		})
		return endf(schema.OutcomeNoCompiler, "nvcc --version ends with status %d", version.exitCode)
	}
	argv := ph.nvccArgs(nvcc)
	done, err := ph.tool(ctx, argv...)
	if err != nil {
		return err
	}
	compiled := &schema.CompileResult{
		NvccFound: true, NvccVersion: version.stdout.text(), Success: done.how == exited && done.exitCode == 0,
		Command: shellJoin(argv), Stdout: done.stdout.text(), Stderr: done.stderr.text(), ExitCode: done.exitCode,
	}
	if !compiled.Success {
		ph.notCompiled(compiled)
		return compileEnding(done)
	}
	ph.result.Compilation = compiled
	return nil
}

// tool runs the compiler, which reads the submission and is watched like it.
func (ph *phase) tool(ctx context.Context, argv ...string) (*ended, error) {
	done, err := run(ctx, command{argv: argv, dir: ph.work, environ: ph.environ, limit: compileLimit})
	if err == nil && (done.how == killedCanceled || done.how == killedOutOfTime) {
		err = stopped(ctx)
	}
	return done, err
}

func compileEnding(done *ended) error {
	if done.how == killedTimeout {
		return endf(schema.OutcomeCompileFailed, "the compiler passed its limit of %s", compileLimit)
	}
	return endf(schema.OutcomeCompileFailed, "nvcc ends with status %d", done.exitCode)
}

func (ph *phase) notCompiled(c *schema.CompileResult) {
	ph.result.Compilation = c
	ph.result.Run = &schema.RunResult{Command: c.Command, ExitCode: c.ExitCode}
}

// nvccArgs is the call: flags, directories, libraries, defines, sources in
// their order, architecture, output.
func (ph *phase) nvccArgs(nvcc string) []string {
	argv := append([]string{nvcc}, cudaFlags()...)
	for _, dir := range ph.p.IncludeDirs {
		argv = append(argv, "-I"+dir)
	}
	for _, lib := range ph.p.Libraries {
		argv = append(argv, "-l"+lib)
	}
	for _, d := range ph.p.Defines {
		if d.Value == nil {
			argv = append(argv, "-D"+d.Name)
		} else {
			argv = append(argv, "-D"+d.Name+"="+*d.Value)
		}
	}
	for _, f := range ph.p.Sources {
		argv = append(argv, f.Name)
	}
	arch := "-arch=native"
	if ph.p.Arch != nil {
		arch = fmt.Sprintf("-gencode=arch=compute_%[1]s,code=sm_%[1]s", *ph.p.Arch)
	}
	return append(argv, arch, "-o", "eval.out")
}
