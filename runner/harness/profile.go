package harness

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// notForkedProfile is why mode profile shares no interpreter.
const notForkedProfile = "a profiler looks at the worker's whole life"

// leaveProfile bounds what a profiler does after the program where the phase has
// no limit of its own.
const leaveProfile = 10 * time.Minute

// reportEncoding is how testers write a profile into their report.
//
// Source: gpu-mode/kernelbot, examples/eval.py.
var reportEncoding = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+*")

// profile has the kernel called once under the phase's profiler, and its output
// checked. What the profiler says is the worker's own word: no time of it is
// believed, and none is a score.
func (r *phaseRun) profile(ctx context.Context) error {
	c := r.cases[0] // a plan has one for each phase
	const prefix = "benchmark.0."
	r.report.put("benchmark-count", "1")
	r.report.put(prefix+"spec", c.spec)
	_, err := r.try(ctx, false, true, 0, c)
	err = r.lateIsForged(err)
	wrong, failed := errors.AsType[caseError](err)
	if err != nil && !failed {
		return err
	}
	if r.p.Profile.Program == "" {
		if err := r.askTable(ctx); err != nil {
			return err
		}
	}
	r.report.put(prefix+"report", reportEncoding.EncodeToString([]byte(r.run.Table)))
	if failed {
		r.fail(prefix, string(wrong))
	}
	r.check(judge.ExitFail)
	return nil
}

// askTable has the worker tell what it saw of itself.
//
// Errors: those of worker.ask; errNonsense.
func (r *phaseRun) askTable(ctx context.Context) error {
	answer, err := r.w.ask(ctx, max(r.left(), 0), []byte("Q"))
	if err != nil {
		return err
	}
	if answer[0] != 'Q' {
		return errNonsense
	}
	told, err := decodeTexts(answer[1:])
	if err != nil {
		return errNonsense
	}
	r.run.Table = text.Lines(strings.Join(told, ""))
	return nil
}

// leave lets the worker end by itself, and the profiler around it write what it
// saw.
//
// Error: errSilent, when that takes too long.
func (r *phaseRun) leave(ctx context.Context) error {
	r.w.link.hangUp()
	select {
	case <-r.s.parent.gone:
	case <-ctx.Done():
	case <-time.After(max(0, min(r.left(), leaveProfile))):
		return errSilent
	}
	return nil
}

// keepProfiler enters how the profiler ended and what it printed.
//
// Error: that of [sandboxed.close].
func (r *phaseRun) keepProfiler() error {
	err := r.s.parent.close()
	if r.p.Profile.Program != "" && r.run.Process.ExitCode == 0 {
		r.run.Process.ExitCode = r.w.state.Exit
	}
	r.run.Process.Stdout = joined(r.s.parent.output.Stream, r.run.Process.Stdout)
	return err
}

// joined is one stream after the other.
func joined(a, b judge.Stream) judge.Stream {
	both := judge.Stream{Head: a.Head, Tail: a.Tail, Size: a.Size + b.Size, Newlines: a.Newlines + b.Newlines}
	if a.Whole() {
		both.Head, both.Tail = slices.Concat(a.Head, b.Head), b.Tail
	}
	return both
}

// notProfiled is the run of a profiler that ended before there was a program
// under it; nil when that is not what happened.
func (s *Session) notProfiled(p *plan.Phase) *Run {
	if p.Profile == nil || p.Profile.Program == "" || s.parent == nil || !s.parent.ended() || s.parent.close() != nil {
		return nil
	}
	run := &Run{Process: judge.Process{ExitCode: s.parent.state.Exit, Stdout: s.parent.output.Stream}}
	if judge.ProfilerWorked(p, &run.Process) {
		run.Outcome = schema.Outcomef(schema.OutcomeNoProfiler, "%s ended with status %d and started no program", p.Profile.Program, s.parent.state.Exit)
	}
	return run
}
