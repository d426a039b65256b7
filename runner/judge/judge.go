// Package judge says what a phase came to: what was planned and what was seen
// in; the outcome and Kernelbot's keys out. It is pure: no file, clock, process
// or environment is touched, and the same input gives the same verdict.
//
// The submission is not trusted. A report that says "pass" must answer what was
// asked, agree with itself and fit the clock; see docs/attacks.md.
//
// Source of the rules: gpu-mode/kernelbot, src/libkernelbot/run_eval.py.
package judge

import (
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A Judgment is what the judge makes of one phase: its run, its outcome, its explanation.
type Judgment struct {
	Compilation *schema.CompileResult // nil: nothing was compiled
	Run         *schema.RunResult     // nil: the harness did not run to an end
	Outcome     *schema.Outcome       // nil: a plain pass, or not decided here

	Compiler string // the compiler's version, "nvcc: …"; "" when it told none
	// Profiled: a profiler worked, and the harness under it reached a verdict.
	// What it left is worth keeping.
	Profiled bool
	// Explanation is what the submitter is told beyond the outcome; nil: nothing.
	Explanation *schema.Explanation
	// SharedJudge: the submission's code came into the process that reports on
	// it, or could.
	SharedJudge bool
	// SelfChecked: the run passed, by its own word.
	SelfChecked bool
}

// Phase judges what was seen of a phase. A run that was ended from outside has
// no verdict: the caller knows why.
//
// With a secret seed, it holds nothing that could tell it; see withhold.
func Phase(p *plan.Phase, s *Seen) (v Judgment) {
	defer func() { v.withhold(p, s.Test) }()
	switch {
	case p.Compile != nil:
		if v.compile(p, s); v.Outcome != nil {
			return v
		}
	case s.WarmUp != nil && s.WarmUp.Marked:
		v.Compilation = &schema.CompileResult{
			NvccFound: true, Success: true, Command: p.WarmUp.Text(),
			Stdout: s.WarmUp.Stdout.Text(), Stderr: s.WarmUp.Stderr.Text(), ExitCode: s.WarmUp.ExitCode,
		}
	}
	switch {
	case p.Refused != nil:
		v.Outcome = p.Refused
		if p.Refused.Name == schema.OutcomeNoCompiler {
			v.notCompiled(&schema.CompileResult{Command: "which " + p.Compiler, ExitCode: 1})
		}
	case s.Test == nil || s.Test.How == Canceled:
	case s.Test.NotStarted != "":
		v.Run = &schema.RunResult{Command: p.Test.Text(), ExitCode: 126} // as a shell has it
		v.Outcome = schema.Outcomef(schema.OutcomeCrashed, "the compiled program cannot be started: %s", s.Test.NotStarted)
	default:
		// A C++ harness of a task's own is linked with the submission; every known
		// one in Python runs it itself or loads its pickles.
		v.SharedJudge = p.Compile != nil && !p.Isolated || s.Test.Shared || p.Variant != nil
		v.Run, v.Outcome = verdict(p, s.Test)
		v.Outcome = exact(p, s.Test, v.Run, v.Outcome)
		v.Explanation = explanation(p, s.Test, v.Outcome)
		v.SelfChecked = v.SharedJudge && v.Run.Passed
		v.profile(p, s)
	}
	return v
}

// compile judges the compiler. A failure leaves a stand-in run beside the
// compilation: Kernelbot's store cannot take a run that is null.
func (v *Judgment) compile(p *plan.Phase, s *Seen) {
	if s.Version == nil {
		return
	}
	if s.Version.ExitCode != 0 {
		v.notCompiled(&schema.CompileResult{
			Command: p.Compiler + " --version", Stdout: s.Version.Stdout.Text(), Stderr: s.Version.Stderr.Text(), ExitCode: s.Version.ExitCode,
		})
		v.Outcome = schema.Outcomef(schema.OutcomeNoCompiler, "%s --version ends with status %d", p.Compiler, s.Version.ExitCode)
		return
	}
	v.Compiler = p.Compiler + ": " + text.Shorten(lastLine(s.Version.Stdout.Decoded()), 200)
	if s.Compile == nil {
		return
	}
	compiled := &schema.CompileResult{
		NvccFound: true, NvccVersion: s.Version.Stdout.Text(), Success: !s.Compile.Failed(), Command: p.Compile.Text(),
		Stdout: s.Compile.Stdout.Text(), Stderr: s.Compile.Stderr.Text(), ExitCode: s.Compile.ExitCode,
	}
	switch {
	case compiled.Success:
		v.Compilation = compiled
		return
	case s.Compile.How == TimedOut:
		v.Outcome = schema.Outcomef(schema.OutcomeCompileTime, "%s passed its limit of %s", p.Compiler, p.Compile.Limit)
	default:
		v.Outcome = schema.Outcomef(schema.OutcomeCompileFailed, "%s ends with status %d", p.Compiler, s.Compile.ExitCode)
		v.Explanation = compileExplanation(p, s.Compile.Stderr.Decoded())
	}
	v.notCompiled(compiled)
}

func (v *Judgment) notCompiled(c *schema.CompileResult) {
	v.Compilation = c
	v.Run = &schema.RunResult{Command: c.Command, ExitCode: c.ExitCode}
}
