package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/gpu-mode/kbgen/runner/sandbox"
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
	if err := ph.checkIncludeDirs(); err != nil {
		return err
	}
	files := slices.Concat(ph.p.Sources, ph.p.Headers)
	if err := ph.write(files); err != nil {
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
	return ph.test(ctx, builtProgram)
}

// builtProgram is what the compiler makes, as it is called.
const builtProgram = "./eval.out"

// notStarted is how a phase ends whose compiled program the kernel refuses: the
// compiler does as the submission's source says. Other errors are returned.
func (ph *phase) notStarted(c command, err error) error {
	var start *sandbox.StartError
	if c.argv[0] != builtProgram || !errors.As(err, &start) {
		return err
	}
	switch start.Errno {
	case syscall.ENOENT, syscall.ENOEXEC, syscall.EACCES, syscall.EPERM, syscall.EINVAL, syscall.ELIBBAD, syscall.ELOOP, syscall.ENOTDIR, syscall.EISDIR:
		ph.result.Run = &schema.RunResult{Command: c.text(), ExitCode: 126} // as a shell has it
		return endf(schema.OutcomeCrashed, "the compiled program cannot be started: %s", start.Errno)
	}
	return err
}

// checkIncludeDirs wants every directory to be there for the compiler, which
// runs in the work directory. Only the machine's own can differ elsewhere.
func (ph *phase) checkIncludeDirs() error {
	for _, dir := range ph.p.IncludeDirs {
		path := dir
		if !filepath.IsAbs(dir) {
			path = filepath.Join(ph.work, dir)
		}
		info, err := os.Stat(path)
		switch {
		case !filepath.IsAbs(dir) && (err != nil || !info.IsDir() || !filepath.IsLocal(dir)):
			return endf(schema.OutcomeBadPayload, "payload: include_dirs: got %q, want an absolute path, or one beside the sources", shorten(dir, 100))
		case err != nil || !info.IsDir():
			return endf(schema.OutcomeMachine, "include directory %q does not exist on this machine", dir)
		}
	}
	return nil
}

// compile calls the machine's compiler: nvcc, or hipcc where the GPUs are AMD's.
// A failure leaves a stand-in run beside the compilation: Kernelbot's store
// cannot take a run that is null.
func (ph *phase) compile(ctx context.Context) error {
	name, args := "nvcc", ph.nvccArgs
	if ph.system.Runtime == runtimeROCm {
		name, args = "hipcc", ph.hipccArgs
		if a := ph.p.Arch; a != nil && !strings.HasPrefix(*a, "gfx") {
			return endf(schema.OutcomeUnsupported, "arch %q is not one of AMD's, want gfx… or none on this machine", shorten(*a, 20))
		}
	}
	path, err := lookPath(name, ph.environ)
	if err != nil {
		ph.notCompiled(&schema.CompileResult{Command: "which " + name, ExitCode: 1})
		return endf(schema.OutcomeNoCompiler, "the machine has no %s", name)
	}
	version, err := ph.tool(ctx, path, "--version")
	if err != nil {
		return err
	}
	if version.exitCode != 0 {
		ph.notCompiled(&schema.CompileResult{
			Command: name + " --version", Stdout: version.stdout.text(), Stderr: version.stderr.text(), ExitCode: version.exitCode,
		})
		return endf(schema.OutcomeNoCompiler, "%s --version ends with status %d", name, version.exitCode)
	}
	ph.compiler = name + ": " + shorten(lastLine(version.stdout.decoded()), 200)
	argv := args(path)
	done, err := ph.tool(ctx, argv...)
	if err != nil {
		return err
	}
	ph.timing.Compile = used(done)
	compiled := &schema.CompileResult{
		NvccFound: true, NvccVersion: version.stdout.text(), Success: done.how == exited && done.exitCode == 0,
		Command: shellJoin(argv), Stdout: done.stdout.text(), Stderr: done.stderr.text(), ExitCode: done.exitCode,
	}
	if !compiled.Success {
		ph.notCompiled(compiled)
		return compileEnding(name, done)
	}
	ph.result.Compilation = compiled
	return nil
}

// tool runs the compiler, which reads the submission and is watched like it.
func (ph *phase) tool(ctx context.Context, argv ...string) (*ended, error) {
	done, err := ph.run(ctx, command{argv: argv, dir: ph.work, environ: ph.environ, limit: schema.CompileLimit, more: true})
	var start *sandbox.StartError
	switch {
	case errors.As(err, &start) && start.Errno == syscall.E2BIG:
		return nil, endf(schema.OutcomeBadPayload, "payload: the compiler's command line, of defines, libraries and file names, is longer than a system takes")
	case err == nil && (done.how == killedCanceled || done.how == killedOutOfTime):
		err = stopped(ctx)
	}
	return done, err
}

func compileEnding(name string, done *ended) error {
	if done.how == killedTimeout {
		return endf(schema.OutcomeCompileTime, "%s passed its limit of %s", name, schema.CompileLimit)
	}
	return endf(schema.OutcomeCompileFailed, "%s ends with status %d", name, done.exitCode)
}

func (ph *phase) notCompiled(c *schema.CompileResult) {
	ph.result.Compilation = c
	ph.result.Run = &schema.RunResult{Command: c.Command, ExitCode: c.ExitCode}
}

// nvccArgs is nvcc's call: flags, directories, libraries, defines, sources in
// their order, architecture, output.
func (ph *phase) nvccArgs(nvcc string) []string {
	arch := "-arch=native"
	if ph.p.Arch != nil {
		arch = fmt.Sprintf("-gencode=arch=compute_%[1]s,code=sm_%[1]s", *ph.p.Arch)
	}
	return ph.compilerArgs(nvcc, cudaFlags(), arch)
}

// hipFlags are hipcc's fixed options: cudaFlags, as far as clang has them.
func hipFlags() []string {
	return strings.Fields("--std=c++20 -DNDEBUG -Wno-psabi -fno-strict-aliasing -O3 -x hip")
}

// hipccArgs is hipcc's call. Kernelbot has none: it refuses lang cu on AMD.
func (ph *phase) hipccArgs(hipcc string) []string {
	arch := "--offload-arch=native"
	if ph.p.Arch != nil {
		arch = "--offload-arch=" + *ph.p.Arch
	}
	return ph.compilerArgs(hipcc, hipFlags(), arch)
}

func (ph *phase) compilerArgs(compiler string, flags []string, arch string) []string {
	argv := append([]string{compiler}, flags...)
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
	return append(argv, arch, "-o", "eval.out")
}
