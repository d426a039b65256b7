package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/runner/harness"
	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

// A Job is one evaluation to do.
type Job struct {
	Payload *schema.Payload
	RunID   string

	// Environ is the machine's environment, "NAME=value". Only what
	// [plan.Environ] lets through reaches the submission.
	Environ []string

	// WorkDir is where the phases' directories are made and removed again; ""
	// means the system's temporary directory.
	WorkDir string

	// Sandbox is the level (schema.SandboxLevels) without which nothing of the
	// submission runs; "" means partial.
	Sandbox string
	// FreshInterpreters: the isolated harness starts one for each phase, instead
	// of forking one that has imported the task's modules.
	FreshInterpreters bool
	// SandboxRead lists files and directories that the submission may read
	// beside the system's own, SandboxHide what it may not read below those.
	SandboxRead, SandboxHide []string

	// Deadline ends the evaluation with the outcome out-of-time. Zero: none.
	Deadline time.Time

	// Start is when the job began, and Decode how long its payload took to
	// find and read. Both are evidence only.
	Start  time.Time
	Decode time.Duration

	// Version names this runner and Image what it runs in; evidence only.
	Version, Image string

	// ProofDir is where proofs lie, "" for [schema.ProofDir].
	ProofDir string

	// Devices says where to probe for accelerators, and Requirements what must
	// be there before anything runs.
	Devices      device.Machine
	Requirements device.Requirements

	// Progress, when set, is called as a phase begins (result nil) and ends.
	Progress func(phase string, result *schema.EvalResult)
}

// Evaluate runs every phase of the job's mode and returns the result, whatever
// happens. No process of the submission is alive when it returns; if one could
// not be killed, the outcome is "machine" and says so.
//
// Canceling ctx ends the evaluation with the outcome canceled and without the
// phase that was under way.
func Evaluate(ctx context.Context, job Job) *schema.Result {
	if job.Start.IsZero() {
		job.Start = time.Now()
	}
	e := &evaluation{job: job, result: newResult(job)}
	finish(e.result, job.Start, e.evaluate(ctx))
	if job.Payload.Seed != nil {
		withholdNames(e.result)
	}
	return e.result
}

// An evaluation is a job under way.
type evaluation struct {
	job     Job
	result  *schema.Result
	root    string           // directory of everything that the job writes
	sandbox *sandbox.Sandbox // of the task's own harness, of compilers, and of what reads a profile
	session *harness.Session // the isolated harness; nil with sandbox
	build   *build           // what was compiled for it; nil before, and for Python
	// compilers is what isolated them, once their sandbox is gone.
	compilers *schema.Sandbox
	watch     *device.Watch
	probed    chan struct{} // closed when watch is there
	machine   plan.Machine
	control   *judge.Control // made once, for the first phase that needs it
	traced    int            // bytes of profiles so far
}

// evaluate makes the machine ready, plans and runs the phases. The error says
// how it ended when it is no plain pass.
func (e *evaluation) evaluate(ctx context.Context) (err error) {
	if refused := plan.Check(e.job.Payload); refused != nil {
		return outcomeErr(refused)
	}
	env := plan.Environ(e.job.Environ)
	join := describeHost(env)
	defer func() { join(&e.result.System) }()
	e.result.Versions = versions(e.job, env)
	if e.root, err = os.MkdirTemp(e.job.WorkDir, "kbrun-"); err != nil {
		return fmt.Errorf("making the work directory: %w", err)
	}
	defer func() {
		if closeErr := e.close(); err == nil && closeErr != nil {
			err = closeErr
		}
	}()
	e.probed = make(chan struct{})
	opened := make(chan error, 1)
	go func() { opened <- e.open(ctx, env) }() // what is done meanwhile has limits
	e.watch = probeDevices(ctx, e.job, env, e.result)
	close(e.probed)
	defer e.watch.Close()
	sandboxErr := <-opened
	visible := e.watch.Visible()
	if err := admit(ctx, e.job, e.watch, visible); err != nil {
		return err
	}
	if sandboxErr != nil {
		return sandboxErr
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the reaper of the submission's processes: %w", err)
	}
	if !e.job.Deadline.IsZero() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadlineCause(ctx, e.job.Deadline, errOutOfTime)
		defer stop()
	}
	e.machine = facts(e.job.Payload, e.root, e.job.Environ, e.result.System.Runtime, len(visible))
	e.machine.Isolated = e.session != nil
	err = e.phases(ctx, plan.New(e.job.Payload, e.machine))
	e.probeAfter(ctx)
	return err
}

// phases does one phase after the other until one did not pass; profiles do not
// depend on each other. A harness that says "pass" and then crashes has passed,
// and still decides the outcome, as the first profile that fails does.
func (e *evaluation) phases(ctx context.Context, all []plan.Phase) error {
	var last error
	for i := range all {
		p := &all[i]
		err := e.phase(ctx, p)
		if err != nil && (last == nil || p.Mode != schema.ModeProfile) {
			last = err
		}
		done := e.result.Runs.Get(p.Name)
		if done == nil || !done.Run.Passed && p.Mode != schema.ModeProfile {
			e.notRun(p.Name, all[i+1:])
			break
		}
	}
	return last
}

// phase runs one planned phase, judges what was seen and enters it in the
// result. The error says how it ended when it is no plain pass.
//
// Times that were taken while the device was disturbed are taken once more, if
// the job's time allows it; if they are disturbed again, the machine is at fault.
func (e *evaluation) phase(ctx context.Context, p *plan.Phase) error {
	if err := stopped(ctx); err != nil {
		return err
	}
	e.progress(p.Name, nil)
	done, err := e.attempt(ctx, p)
	timeLeft := e.job.Deadline.IsZero() || time.Until(e.job.Deadline) > 2*time.Since(done.eval.Start) // also for what comes after it
	if err == nil && len(done.ambiguous) > 0 && timeLeft {
		if done, err = e.attempt(ctx, p); err == nil && len(done.ambiguous) > 0 {
			err = outcomef(schema.OutcomeAmbiguous, "measured twice, and disturbed each time: %s", done.ambiguous[0])
		}
	}
	e.add(done)
	if done.eval.Run != nil {
		e.progress(p.Name, &done.eval)
	}
	return inPhase(p.Name, err)
}

// attempt runs and judges a phase, and removes what it left.
func (e *evaluation) attempt(ctx context.Context, p *plan.Phase) (*phaseRun, error) {
	done := &phaseRun{evaluation: e, p: p, eval: schema.EvalResult{Start: time.Now()}}
	var err error
	if e.result.Harness.Name == schema.HarnessIsolated {
		done.verdict, err = done.isolated(ctx)
	} else {
		err = done.run(ctx)
		done.verdict = judge.Phase(p, &done.seen)
		if err == nil && judge.NeedsControl(p, &done.seen, &done.verdict) {
			err = done.blame(ctx, &done.verdict)
		}
	}
	if err == nil {
		var packErr error
		if done.verdict.Profiled {
			done.eval.Profile, packErr = e.pack(p, done.table)
		}
		err = errors.Join(outcomeErr(done.verdict.Outcome), packErr) // the first one counts
	}
	done.eval.End, done.eval.Compilation, done.eval.Run = time.Now(), done.verdict.Compilation, done.verdict.Run
	if removeErr := sandbox.RemoveTree(p.Dir); err == nil && removeErr != nil {
		err = removeErr
	}
	return done, err
}

func (e *evaluation) progress(phase string, result *schema.EvalResult) {
	if e.job.Progress != nil {
		e.job.Progress(phase, result)
	}
}
