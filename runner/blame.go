package runner

import (
	"context"
	"errors"
	"os"

	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

// blame finds out whose fault it is that a harness came to no verdict: it runs
// the harness once more, in the same sandbox, with the task's own solution in
// place of the submission, and lets the judge compare. It is made once for a
// job, and never for one whose phases all came to a verdict.
//
// The submission's processes are gone by now, and the control's directories are
// its own, so that nothing the submission did to its own reaches into it. What
// outlives both is the machine: who breaks its GPU for good is told that the
// machine is at fault.
//
// Errors: the job was canceled, or the machine cannot run the control. Neither
// is the submission's fault.
func (r *phaseRun) blame(ctx context.Context, v *judge.Judgment) error {
	if r.control == nil {
		control, err := r.runControl(ctx)
		if err != nil {
			return err
		}
		if control == nil {
			return nil
		}
		r.control = control
	}
	judge.Blame(r.p, &r.seen, v, r.control)
	return nil
}

// runControl makes the control run of r's phase; nil when there is none to make,
// or no time left for it.
func (r *phaseRun) runControl(ctx context.Context) (*judge.Control, error) {
	p := plan.Control(r.job.Payload, r.machine, r.p)
	if p == nil || ctx.Err() != nil {
		return nil, nil
	}
	control := &phaseRun{evaluation: r.evaluation, p: p}
	// The submission may have filled the disk, or a directory of this name.
	if r.p.Profile == nil { // what a profiler left is still to be packed
		if err := sandbox.RemoveTree(r.p.Dir); err != nil {
			return nil, err
		}
	}
	if err := sandbox.RemoveTree(p.Dir); err != nil {
		return nil, err
	}
	defer sandbox.RemoveTree(p.Dir) // what stays is the job's, and removed with it
	if err := makeDirectories(p.Directories); err != nil {
		return nil, err
	}
	if err := errors.Join(control.write(), writeCases(p.CasesFile(), p.Cases)); err != nil {
		return nil, err
	}
	seen, err := control.command(ctx, p.Test)
	if err != nil {
		return nil, err
	}
	r.result.Timing.Phases = append(r.result.Timing.Phases, schema.PhaseTiming{Name: p.Name, Write: control.writing.Seconds(), Run: used(seen)})
	if seen.How == judge.Canceled {
		return nil, stopped(ctx)
	}
	reached := func(name string) bool {
		_, err := os.Lstat(p.ControlFile(name))
		return err == nil
	}
	return &judge.Control{
		Phase: p, Process: seen,
		Called: reached(plan.ControlCalled), Solution: reached(plan.ControlSolution), Answered: reached(plan.ControlAnswered),
	}, nil
}
