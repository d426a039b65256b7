package plan

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// badIncludeDir refuses a directory that does not exist for the compiler, which
// runs in the work directory. An absolute one may exist on another machine. Of
// the others there is only the work directory itself, as files have plain names.
func (b *builder) badIncludeDir() *schema.Outcome {
	for _, dir := range b.p.IncludeDirs {
		switch {
		case !filepath.IsAbs(dir) && (!filepath.IsLocal(dir) || filepath.Clean(dir) != "."):
			return schema.Outcomef(schema.OutcomeBadPayload, "payload: include_dirs: got %q, want an absolute path, or one beside the sources", text.Shorten(dir, 100))
		case slices.Contains(b.m.Missing, dir):
			return schema.Outcomef(schema.OutcomeMachine, "include directory %q does not exist on this machine", dir)
		}
	}
	return nil
}

// compiler chooses the machine's compiler: nvcc, or hipcc where the GPUs are
// AMD's. It plans to ask for its version.
func (b *builder) compiler() *schema.Outcome {
	b.ph.Compiler = "nvcc"
	if b.m.Runtime == RuntimeROCm {
		b.ph.Compiler = "hipcc"
		if a := b.p.Arch; a != nil && !strings.HasPrefix(*a, "gfx") {
			return schema.Outcomef(schema.OutcomeUnsupported, "arch %q is not one of AMD's, want gfx… or none on this machine", text.Shorten(*a, 20))
		}
	}
	path, ok := b.m.Programs[b.ph.Compiler]
	if !ok {
		return schema.Outcomef(schema.OutcomeNoCompiler, "the machine has no %s", b.ph.Compiler)
	}
	b.ph.Version = b.command(schema.CompileLimit, nil, path, "--version")
	b.ph.Version.More = true
	return nil
}

// cudaFlags returns nvcc's fixed options, made anew for every call.
func cudaFlags() []string {
	return strings.Fields(`--std=c++20 -DNDEBUG -Xcompiler=-Wno-psabi -Xcompiler=-fno-strict-aliasing
		--expt-extended-lambda --expt-relaxed-constexpr -forward-unknown-to-host-compiler -O3
		-Xnvlink=--verbose -Xptxas=--verbose -Xptxas=--warn-on-spills`)
}

// args is a compiler's call: flags, directories, libraries, defines, sources in
// their order, architecture, output. Kernelbot has none for hipcc, whose flags are
// cudaFlags as far as clang has them: it refuses lang cu on AMD.
func (b *builder) args(compiler, path string) []string {
	flags, arch := cudaFlags(), "-arch=native"
	if b.p.Arch != nil {
		arch = fmt.Sprintf("-gencode=arch=compute_%[1]s,code=sm_%[1]s", *b.p.Arch)
	}
	if compiler == "hipcc" {
		flags = strings.Fields("--std=c++20 -DNDEBUG -Wno-psabi -fno-strict-aliasing -O3 -x hip")
		arch = "--offload-arch=native"
		if b.p.Arch != nil {
			arch = "--offload-arch=" + *b.p.Arch
		}
	}
	argv := append([]string{path}, flags...)
	for _, dir := range b.p.IncludeDirs {
		argv = append(argv, "-I"+dir)
	}
	for _, lib := range b.p.Libraries {
		argv = append(argv, "-l"+lib)
	}
	for _, d := range b.p.Defines {
		if d.Value == nil {
			argv = append(argv, "-D"+d.Name)
		} else {
			argv = append(argv, "-D"+d.Name+"="+*d.Value)
		}
	}
	for _, f := range b.p.Sources {
		argv = append(argv, f.Name)
	}
	return append(argv, arch, "-o", BuiltFile)
}
