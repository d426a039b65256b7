// Package task reads task.yml, the definition of a competition's problem, and
// builds payloads from it as Kernelbot's own Python does. It knows files and
// YAML 1.1; it does not know machines, builds or who submits.
//
// A task is a folder in any [fs.FS], or on disk. What Kernelbot would accept
// and then trip over later is refused here, with file and line.
//
// Source: gpu-mode/kernelbot, src/libkernelbot/task.py; PyYAML's safe_load.
package task

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
)

// SubmissionMark is the source of the file that a submission takes the place
// of.
const SubmissionMark = "@SUBMISSION@"

// A Task is one task.yml with every file it names.
type Task struct {
	Files       []File
	Lang        string // one of schema.Languages
	Config      Config
	Description string
	Templates   []Template

	Tests      []schema.Case
	Benchmarks []schema.Case

	TestTimeout      schema.Timeout
	BenchmarkTimeout schema.Timeout
	RankedTimeout    schema.Timeout

	RankingBy string // one of schema.Rankings
	MultiGPU  bool
	Seed      *int64
	Libraries []string // without effect: Kernelbot drops them
	GPUs      []string // GPU types, used where the competition names none

	// The extension's keys stand in task.yml, which Kernelbot's own loader then
	// refuses, or in [ExtensionFile] beside it.
	schema.Extension
}

// A File is created under Name where the task runs.
type File struct {
	Name       string
	Text       string
	Submission bool // Text is empty; the submission's comes here
}

// Config is the part that depends on the language.
type Config struct {
	Main string // py: the tester

	Sources      []string // cu: files given to nvcc; the others are headers
	IncludeDirs  []string
	Defines      []schema.Define
	CompileFlags []string
}

// A Template is what participants may begin from.
type Template struct {
	Language string // CUDA, Python, Triton, HIP or CuteDSL
	Text     string
}

// Extensions are those a submission's file name may have.
func Extensions() []string { return []string{".py", ".cu", ".cuh", ".cpp"} }

// Payload puts the submission into the task's files and returns the payload
// for one evaluation. The submission's own name is checked for its extension
// and not used. arch is nvcc's suffix, nil for native; a seed that is not nil
// takes the place of the task's.
//
// Order and content are Kernelbot's: files as listed, of a cu task those in
// config.sources as sources and the others as headers; libraries, templates,
// description and GPUs are dropped.
func (t *Task) Payload(submission schema.File, mode string, arch *string, seed *int64) (*schema.Payload, error) {
	if ext := path.Ext(submission.Name); !slices.Contains(Extensions(), ext) {
		return nil, fmt.Errorf("submission %q: got extension %q, want one of %q", path.Base(submission.Name), ext, Extensions())
	}
	p := &schema.Payload{
		Main: t.Config.Main, Lang: t.Lang, Arch: arch, Mode: mode,
		Tests: t.Tests, Benchmarks: t.Benchmarks,
		TestTimeout: t.TestTimeout, BenchmarkTimeout: t.BenchmarkTimeout, RankedTimeout: t.RankedTimeout,
		RankingBy: t.RankingBy, Seed: t.Seed, MultiGPU: t.MultiGPU, Extension: t.Extension,
	}
	if seed != nil {
		p.Seed = seed
	}
	for _, f := range t.Files {
		text := f.Text
		if f.Submission {
			text = strings.ToValidUTF8(submission.Text, "\uFFFD")
		}
		if t.Lang == schema.LangCUDA && !slices.Contains(t.Config.Sources, f.Name) {
			p.Headers = append(p.Headers, schema.File{Name: f.Name, Text: text})
		} else {
			p.Sources = append(p.Sources, schema.File{Name: f.Name, Text: text})
		}
	}
	if t.Lang == schema.LangCUDA {
		p.Defines, p.IncludeDirs, p.CompileFlags = t.Config.Defines, t.Config.IncludeDirs, t.Config.CompileFlags
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}
