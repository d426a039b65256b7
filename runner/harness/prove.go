package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Prove finds out whether this harness can be relied on for memory on this machine's GPU,
// in one language: C++ if the options have programs, which must be those of [NativeProof],
// and Python otherwise. It judges kernels of known work and kernels that cheat, and
// compares the outcomes with the expected ones. It ignores the options' payload. The
// caller must fill in the fields of the proof that name kbrun, the GPU and its software.
//
// Errors: the context's cause; any other means that this machine cannot judge at all.
func Prove(ctx context.Context, o Options) (*schema.Proof, error) {
	o.Payload, o.Variant = proofPayload(o.standIn), ""
	kernels := proofKernels
	if o.Programs != nil {
		o.Payload, kernels = NativeProof(), nativeProofKernels
	}
	proof := &schema.Proof{}
	begun := time.Now()
	note := func(name string, ok bool, format string, args ...any) {
		proof.Checks = append(proof.Checks, schema.ProofCheck{
			Lang: o.Payload.Lang, Name: name, OK: ok, Seconds: float64(time.Since(begun).Milliseconds()) / 1000, Text: text.Line(fmt.Sprintf(format, args...), 500),
		})
		begun = time.Now()
	}
	s, err := Open(ctx, o)
	if cannot, ok := errors.AsType[*UnsupportedError](err); ok {
		note("channel", false, "%s", cannot.What)
		return proof, nil
	}
	if err != nil {
		return nil, err
	}
	if !s.onDevice {
		note("channel", false, "the inputs do not lie on the GPU")
		return proof, s.Close()
	}
	note("channel", true, "judge and worker see what the other has written on the GPU")
	for _, k := range kernels(o.standIn) {
		mode, us := schema.ModeTest, []int{10}
		if k.us != nil {
			mode, us = schema.ModeBenchmark, k.us
		}
		limit, cases := schema.Seconds(cmp.Or(k.limit, proofLimit)), proofCases(us...)
		if s.native() { // all kernels are in one library
			cases = nativeProofCases(k.name, us...)
		}
		o.Payload.TestTimeout, o.Payload.BenchmarkTimeout, o.Payload.Tests, o.Payload.Benchmarks = limit, limit, cases, cases
		outcome, words, run, err := s.judged(ctx, mode, k.text)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		good := slices.Contains(k.outcomes, outcome)
		switch {
		case outcome != schema.OutcomePassed:
		case k.timed == nil:
			words = "" // the report of a pass
		case good:
			words, good = k.timed(proof, run)
		}
		note(k.name, good, "%s", strings.TrimSpace(outcome+" "+words))
	}
	for i := range proof.Times {
		proof.Times[i].Lang = o.Payload.Lang
	}
	proof.Sandbox = s.Report().Level
	return proof, s.Close()
}

// A proofKernel is a submission whose outcome is known.
type proofKernel struct {
	name     string
	us       []int   // how long each case's kernel works, in microseconds; nil: a test of one case
	limit    float64 // of the phase, in seconds; 0: proofLimit
	outcomes []string
	timed    func(*schema.Proof, *Run) (words string, good bool) // looks at the figures of a pass
	text     string                                              // of a submission in Python; prove.cu knows the name
}

// proofLimit bounds one phase of a proof, in seconds.
const proofLimit = 20

// judged runs the last phase of a mode with a submission, and returns what it came to in
// words: of a pass, its report.
//
// Error: the machine's or the task's.
func (s *Session) judged(ctx context.Context, mode, submission string) (outcome, words string, run *Run, err error) {
	s.o.Payload.Mode, s.o.Payload.Sources[0].Text = mode, submission
	phases := plan.New(s.o.Payload, plan.Machine{Root: s.o.Dir, Environ: s.o.Environ, Programs: map[string]string{"nvcc": ""}}) // it has compiled
	phase := phases[len(phases)-1]
	if run, err = s.Phase(ctx, &phase); err != nil {
		return "", "", nil, err
	}
	outcome, words = schema.OutcomePassed, string(run.Process.Report.Head)
	if run.Outcome != nil {
		outcome, words = run.Outcome.Name, run.Outcome.Text
	} else if v := judge.Phase(&phase, &judge.Seen{Test: &run.Process}); v.Outcome != nil {
		outcome, words = v.Outcome.Name, v.Outcome.Text+"\n"+words
	}
	return outcome, words, run, nil
}

func proofCases(us ...int) (cases []schema.Case) {
	for i, n := range us {
		cases = append(cases, schema.Case{{Name: "us", Value: schema.IntValue(int64(n))}, {Name: "seed", Value: schema.IntValue(int64(i + 1))}})
	}
	return cases
}

// nativeProofCases also name the check that the kernel of prove.cu is to do.
func nativeProofCases(check string, us ...int) []schema.Case {
	cases := proofCases(us...)
	for i := range cases {
		cases[i] = append(cases[i], schema.Param{Name: "check", Value: schema.StringValue(check)})
	}
	return cases
}

// proofPayload is a task with tensors on the GPU.
func proofPayload(s standIn) *schema.Payload {
	reference := proofReference
	if s.source != "" {
		reference = strings.ReplaceAll(reference, `device="cuda"`, `device="cpu"`)
	}
	return &schema.Payload{
		Lang: schema.LangPython, Mode: schema.ModeTest, Extension: schema.Extension{Harness: schema.HarnessIsolated}, RankingBy: schema.RankGeom,
		Sources: schema.Files{{Name: plan.SubmissionFile}, {Name: taskFile, Text: "import torch\n"}, {Name: referenceFile, Text: reference}},
		Tests:   proofCases(10), Benchmarks: proofCases(10),
	}
}

// NativeProof is a task in C++ with arrays on the GPU, and a submission that has all kernels
// that [Prove] tries. The caller compiles it.
func NativeProof() *schema.Payload { return nativeProof(nativeFile("prove_gpu.h")) }

func nativeProof(tools string) *schema.Payload {
	cases := nativeProofCases("", 10)
	return &schema.Payload{
		Lang: schema.LangCUDA, Mode: schema.ModeTest, Extension: schema.Extension{Harness: schema.HarnessIsolated}, RankingBy: schema.RankGeom,
		Sources: schema.Files{
			{Name: plan.SubmissionCUDA, Text: tools + nativeFile("prove.cu")},
			{Name: plan.TaskHeader, Text: nativeFile("prove_task.h")},
			{Name: plan.ReferenceCUDA, Text: nativeFile("prove_reference.cuh")},
		},
		Tests: cases, Benchmarks: cases,
	}
}

// notShorter says whether a kernel that takes us microseconds got a figure of at least
// nine tenths of that.
func notShorter(us int) func(*schema.Proof, *Run) (string, bool) {
	return func(_ *schema.Proof, run *Run) (string, bool) {
		m := run.Measurements[0]
		mean := (m.Interval[0] + m.Interval[1]) / 2
		return fmt.Sprintf("%.1f µs for work that takes %d µs", mean/1000, us), mean >= 900*float64(us)
	}
}

// A figure must be at least proofLeast times the time by the GPU's events, and at most
// proofMost times the time by the worker's clock, plus proofLaunch.
const (
	proofLeast, proofMost = 0.95, 1.05
	proofLaunch           = 60 * time.Microsecond
	// proofTurns is what kbrun, judge and worker may take more on fewer than three cores.
	proofTurns = 500 * time.Microsecond
)

// proofTimes enters the figures, and the times that the kernel itself measured and
// printed, in the proof, and compares them.
func proofTimes(proof *schema.Proof, run *Run) (words string, good bool) {
	var bad []string
	launch := proofLaunch
	if runtime.NumCPU() < 3 {
		launch += proofTurns
	}
	for line := range strings.Lines(string(run.Process.Stdout.Head)) {
		fields := strings.Fields(line)
		at := len(proof.Times)
		if len(fields) != 3 || fields[0] != "TIMES" || at >= len(run.Measurements) {
			continue
		}
		m := run.Measurements[at]
		t := schema.ProofTime{Interval: m.Interval, Calls: len(m.Samples), LeftOut: m.LeftOut}
		t.Events, _ = strconv.ParseFloat(fields[1], 64)
		t.Worker, _ = strconv.ParseFloat(fields[2], 64)
		if m.Strict != nil {
			t.Strict = *m.Strict
		}
		proof.Resolution = m.Resolution
		proof.Times = append(proof.Times, t)
		mean := (m.Interval[0] + m.Interval[1]) / 2
		if mean < proofLeast*t.Events || mean > proofMost*t.Worker+float64(launch) {
			bad = append(bad, fmt.Sprintf("%.1f µs, by events %.1f, by the worker's clock %.1f", mean/1000, t.Events/1000, t.Worker/1000))
		}
	}
	switch {
	case len(bad) > 0:
		return strings.Join(bad, "; "), false
	case len(proof.Times) != len(run.Measurements):
		return fmt.Sprintf("%d of %d kernels told their times", len(proof.Times), len(run.Measurements)), false
	}
	return "figures are as long as the GPU's own", true
}

// proofUS is how long the timed kernels work, in microseconds.
var proofUS = []int{2, 10, 100, 5000}
