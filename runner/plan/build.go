package plan

import (
	"path/filepath"
	"slices"

	"github.com/gpu-mode/kbgen/schema"
)

// The files of a C++ task in the form that the isolated harness takes.
const (
	SubmissionCUDA = "submission.cu"
	ReferenceCUDA  = "reference.cuh"
	TaskHeader     = "task.h"
)

// The programs that are made of it, in this order: the first has nothing of the
// task, so that the compiler is at fault when it fails, and the second nothing of
// the submission.
const (
	BuildLauncher   = "launcher"
	BuildJudge      = "judge"
	BuildSubmission = "submission"
)

// Our own sources, one for each, beside the task's files.
const (
	LauncherSource = "kbrun_launcher.cu"
	JudgeSource    = "kbrun_judge.cu"
	CallSource     = "kbrun_call.cu"
)

// BuiltFile is what every compilation leaves in its work directory.
const BuiltFile = "eval.out"

// A Build is one compilation for the isolated harness, in directories of its own:
// no other program's source is there.
type Build struct {
	Name string // one of the programs
	Directories
	Files   schema.Files // of the payload's; our own come beside them
	Compile *Command
}

// IsolatedCUDA reports whether a payload asks for the isolated harness and is in
// C++.
func IsolatedCUDA(p *schema.Payload) bool {
	return p.Lang == schema.LangCUDA && p.Harness == schema.HarnessIsolated
}

// isolatedCUDA plans for lang cu under the isolated harness: two programs of our
// own, a library with the submission, and no command that runs them. They are
// made once for all phases.
func (b *builder) isolatedCUDA() {
	b.ph.Isolated, b.ph.Cases = true, b.cases()
	if b.ph.Refused = b.badIncludeDir(); b.ph.Refused != nil {
		return
	}
	if b.ph.Refused = b.compiler(); b.ph.Refused != nil {
		return
	}
	b.ph.Builds = []Build{
		b.build(BuildLauncher, nil, LauncherSource, "-ldl"),
		b.build(BuildJudge, []string{TaskHeader, ReferenceCUDA}, JudgeSource),
		b.build(BuildSubmission, []string{TaskHeader, SubmissionCUDA}, CallSource, SubmissionCUDA, "-shared", "-fPIC", "-Xlinker", "--no-undefined"),
	}
	b.ph.Files, b.ph.Compile = b.ph.Builds[2].Files, b.ph.Builds[2].Compile
	b.test("kbrun-harness")
}

// build plans one compilation. words are its sources and further options; the
// payload's own options are for what is the payload's.
func (b *builder) build(name string, files []string, words ...string) Build {
	p := *b.p
	if p.Sources = nil; len(files) == 0 {
		p.IncludeDirs, p.Libraries, p.Defines = nil, nil, nil
	}
	for _, word := range words {
		p.Sources = append(p.Sources, schema.File{Name: word})
	}
	own := builder{p: &p, m: b.m, ph: Phase{Directories: directories(filepath.Join(b.m.Root, "build-"+name))}}
	own.setEnviron()
	w := Build{Name: name, Directories: own.ph.Directories}
	w.Compile = own.command(schema.CompileLimit, nil, own.args(b.ph.Compiler, b.m.Programs[b.ph.Compiler])...)
	w.Compile.More = name != BuildSubmission
	for _, f := range slices.Concat(b.p.Sources, b.p.Headers) {
		if slices.Contains(files, f.Name) {
			w.Files = append(w.Files, f)
		}
	}
	return w
}
