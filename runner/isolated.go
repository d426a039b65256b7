package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/runner/harness"
	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

// open makes ready what is going to judge: the isolated harness where it can,
// else the sandbox that the task's own harness runs in.
func (e *evaluation) open(ctx context.Context, env []string) error {
	h, err := harness.Choose(e.job.Payload)
	if err != nil {
		return outcomef(schema.OutcomeBadPayload, "payload: harness: %s", err)
	}
	h.Inputs, h.Evidence = e.job.Payload.Inputs, e.job.Payload.Evidence
	e.result.Harness = h
	if v := e.job.Requirements.Vendor; h.Name == schema.HarnessIsolated && e.job.Payload.Harness == "" && (v == device.NVIDIA || v == device.AMD) {
		// The task's inputs lie on the GPU: this saves finding it out.
		if why := e.proved(ctx, env); why != "" {
			h.Name, h.Why = schema.HarnessLegacy, why
		}
	}
	if plan.IsolatedCUDA(e.job.Payload) {
		return e.openSandbox() // for its compilers; the session comes with the first phase
	}
	if h.Name == schema.HarnessIsolated {
		err := e.openSession(ctx, env)
		cannot, ok := errors.AsType[*harness.UnsupportedError](err)
		if !ok {
			return err
		}
		if e.job.Payload.Harness == schema.HarnessIsolated {
			return noChannel(cannot)
		}
		h.Name, h.Why, h.Proof = schema.HarnessLegacy, cannot.Error(), nil
	}
	return e.openSandbox()
}

// noChannel is how a task ends that asks for the isolated harness and whose
// inputs cannot go through its channel: what asks for it is judged by nothing
// weaker.
func noChannel(cannot *harness.UnsupportedError) error {
	outcome := schema.OutcomeHarness
	if cannot.Machine {
		outcome = schema.OutcomeMachine
	}
	return outcomef(outcome, "the task asks for the isolated harness, and %s", cannot)
}

// openSession starts the isolated harness.
func (e *evaluation) openSession(ctx context.Context, env []string) error {
	o, err := e.sessionOptions(env)
	if err != nil {
		return err
	}
	o.Variant = e.result.Harness.Variant
	s, err := harness.Open(ctx, o)
	var broken *harness.TaskError
	var weak *sandbox.WeakError
	switch {
	case errors.As(err, &broken):
		return outcomef(schema.OutcomeHarness, "%s", broken)
	case errors.As(err, &weak):
		return outcomef(schema.OutcomeWeakSandbox, "%s", weak)
	case err != nil:
		return err
	}
	e.session = s
	e.result.Harness.Preloaded, e.result.Harness.NotPreloaded = s.Preloaded()
	return nil
}

// sessionOptions returns the options of the isolated harness, and makes its directory.
func (e *evaluation) sessionOptions(env []string) (harness.Options, error) {
	dir := filepath.Join(e.root, "harness")
	err := os.Mkdir(dir, 0o755)
	if err == nil && sandbox.OwnUser() {
		err = os.Chmod(e.root, 0o711) // judge and worker pass through it
	}
	if err != nil {
		return harness.Options{}, fmt.Errorf("making the harness's directory: %w", err)
	}
	o := harness.Options{
		Payload: e.job.Payload, Sandbox: e.sandboxOptions(""), Dir: dir, Environ: env, Fresh: e.job.FreshInterpreters,
		Unproved: func(ctx context.Context) string { return e.proved(ctx, env) },
	}
	if e.build != nil {
		o.Programs = e.build.programs
		return o, nil
	}
	o.Python, err = LookPath("python3", env)
	return o, err
}

// isolated has the isolated harness judge a phase.
func (r *phaseRun) isolated(ctx context.Context) (judge.Judgment, error) {
	if r.p.Test == nil { // machine or payload do not allow it
		return judge.Phase(r.p, &r.seen), nil
	}
	if r.p.Isolated {
		goesOn, err := r.compiled(ctx)
		if cannot, ok := errors.AsType[*harness.UnsupportedError](err); ok {
			err = noChannel(cannot)
		}
		if err != nil {
			return judge.Judgment{}, err
		}
		if !goesOn {
			return judge.Phase(r.p, &r.seen), nil
		}
	}
	if r.p.Timed() {
		r.watch.Begin()
	}
	run, err := r.session.Phase(ctx, r.p)
	if r.p.Timed() {
		r.ambiguous = r.watch.End(context.WithoutCancel(ctx), r.p.Name)
	}
	if broken, ok := errors.AsType[*harness.TaskError](err); ok {
		err = outcomef(schema.OutcomeHarness, "%s", broken)
	}
	if err != nil {
		return judge.Judgment{}, err
	}
	if run.Load.Marked {
		r.seen.WarmUp = &run.Load
	}
	r.seen.Test, r.table = &run.Process, run.Table
	if err := r.readProfile(ctx); err != nil {
		return judge.Judgment{}, err
	}
	own := *r.p
	own.Variant = nil // its main file does not run
	v := judge.Phase(&own, &r.seen)
	if o := v.Outcome; run.Outcome != nil && (o == nil || o.Name != schema.OutcomeNoProfiler) {
		v.Outcome, v.Run.Passed = run.Outcome, false
	}
	e := r.evaluation
	for _, m := range run.Measurements {
		if e.job.Payload.Seed != nil { // hundreds of exact times could tell of the inputs
			m.Samples = []float64{}
		}
		e.result.Measurements = append(e.result.Measurements, m)
	}
	if run.Explanation != nil {
		v.Explanation = run.Explanation
	}
	return v, nil
}
