package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

// A Job is one evaluation to do.
type Job struct {
	Payload *schema.Payload
	RunID   string

	// Environ is the machine's environment, "NAME=value". Only what
	// [Environ] lets through reaches the submission.
	Environ []string

	// WorkDir is where the phases' directories are made and removed again; ""
	// means the system's temporary directory.
	WorkDir string

	// Sandbox is the level (schema.SandboxLevels) without which nothing of the
	// submission runs; "" means partial.
	Sandbox string
	// SandboxRead lists files and directories beyond the system's own that the
	// submission may read, SandboxHide what is kept from it below those.
	SandboxRead, SandboxHide []string

	// Deadline ends the evaluation with the outcome out-of-time. Zero: none.
	Deadline time.Time

	// Start is when the job began, and Decode how long its payload took to
	// find and read. Both are evidence only.
	Start  time.Time
	Decode time.Duration

	// Version names this runner and Image what it runs in; evidence only.
	Version, Image string

	// Devices says where accelerators are looked for, and Demand what must be
	// there before anything runs.
	Devices device.Machine
	Demand  device.Demand

	// Progress, when set, is called as a phase begins (result nil) and ends.
	Progress func(phase string, result *schema.EvalResult)
}

// Causes that end a phase from outside of it.
var (
	errOutOfTime = errors.New("the job's time ran out")
	errCanceled  = errors.New("the job was ended from outside")
)

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
	result := &schema.Result{Success: true, RunID: job.RunID, System: schema.SystemInfo{DeviceCount: 1}}
	result.Timing = &schema.Timing{Decode: job.Decode.Seconds(), Phases: []schema.PhaseTiming{}}
	if budget, limited := job.Payload.Budget(); limited {
		result.Timing.Budget = budget.Seconds()
	}
	result.Outcome = outcomeOf(evaluate(ctx, job, result))
	result.Timing.Total = time.Since(job.Start).Seconds()
	result.Timing.Peak = ownPeak()
	if result.Outcome.ExitStatus() != 0 {
		result.Success, result.Error = false, result.Outcome.Text
	}
	return result
}

func evaluate(ctx context.Context, job Job, result *schema.Result) (err error) {
	if err := supported(job.Payload); err != nil {
		return err
	}
	env := Environ(job.Environ)
	join := describeHost(env)
	defer func() { join(&result.System) }()
	result.Versions = versions(job, env)
	root, err := os.MkdirTemp(job.WorkDir, "kbrun-")
	if err != nil {
		return fmt.Errorf("making the work directory: %w", err)
	}
	e := &evaluation{job: job, p: job.Payload, root: root}
	defer func() {
		if endErr := e.close(result); err == nil && endErr != nil {
			err = endErr
		}
	}()
	opened := make(chan error, 1)
	go func() { opened <- e.openBox() }() // what is done meanwhile has limits
	e.watch = look(ctx, job, env, result)
	defer e.watch.Close()
	boxErr := <-opened
	e.system, e.visible = result.System, e.watch.Visible()
	if err := admit(ctx, job, e.watch, e.visible); err != nil {
		return err
	}
	if boxErr != nil {
		return boxErr
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the reaper of the submission's processes: %w", err)
	}
	if !job.Deadline.IsZero() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadlineCause(ctx, job.Deadline, errOutOfTime)
		defer stop()
	}
	err = e.all(ctx, result)
	e.after(ctx, result)
	return err
}

// all runs the phases until one did not pass; profiles do not depend on each
// other. A tester that says "pass" and then crashes has passed, and still
// decides the outcome, as the first profile that fails does.
func (e *evaluation) all(ctx context.Context, result *schema.Result) error {
	var last error
	all := steps(e.p)
	for n, s := range all {
		err := e.do(ctx, s, n+1 < len(all), result)
		if err != nil && (last == nil || s.mode != schema.ModeProfile) {
			last = err
		}
		done := result.Runs.Get(s.name)
		if done == nil || !done.Run.Passed && s.mode != schema.ModeProfile {
			break
		}
	}
	return last
}

// supported refuses what no machine with this runner could do.
func supported(p *schema.Payload) error {
	last := p.RankingBy == schema.RankLast || p.Mode == schema.ModeProfile
	if p.Mode != schema.ModeTest && last && len(p.Benchmarks) == 0 {
		return endf(schema.OutcomeBadPayload, `payload: benchmarks: got none, want at least one in mode %s with ranking_by %q`, p.Mode, p.RankingBy)
	}
	return nil
}

// A step is one phase to do.
type step struct {
	name string // the run's key
	mode string // the tester's
	only int    // the one benchmark it is about; -1: those of the mode
}

// steps lists the phases of a payload's mode, in order.
func steps(p *schema.Payload) []step {
	var all []step
	for i, phase := range p.Phases() {
		if phase == schema.ModeProfile {
			all = append(all, step{"profile." + strconv.Itoa(i), phase, i})
		} else {
			all = append(all, step{phase, phase, -1})
		}
	}
	return all
}

type evaluation struct {
	job     Job
	p       *schema.Payload
	root    string
	watch   *device.Watch
	system  schema.SystemInfo
	visible []schema.Device // to the submission
	traced  int             // bytes of profiles so far
	box     *sandbox.Box
}

// do runs one phase, after which there may be more, and adds it to the result;
// the error says how it ended when it is no plain pass.
func (e *evaluation) do(ctx context.Context, s step, more bool, result *schema.Result) error {
	if err := stopped(ctx); err != nil {
		return err
	}
	if e.job.Progress != nil {
		e.job.Progress(s.name, nil)
	}
	ph, err := e.newPhase(s)
	if err != nil {
		return err
	}
	ph.more = more
	ph.result.Start = time.Now()
	flow := ph.python
	if e.p.Lang == schema.LangCUDA {
		flow = ph.cuda
	}
	err = flow(ctx)
	ph.result.End = time.Now()
	if full(err) {
		err = ph.diskFull(err)
	}
	result.Timing.Phases = append(result.Timing.Phases, ph.timing)
	result.Ambiguous = append(result.Ambiguous, ph.ambiguous...)
	result.SharedJudge = result.SharedJudge || ph.sharedJudge
	if ph.compiler != "" {
		result.Versions.Compiler = ph.compiler
	}
	if ph.result.Run != nil {
		result.Runs = append(result.Runs, schema.Run{Name: s.name, EvalResult: ph.result})
		if e.job.Progress != nil {
			e.job.Progress(s.name, &ph.result)
		}
	}
	if rmErr := removeTree(ph.dir); err == nil && rmErr != nil {
		err = rmErr
	}
	return inPhase(s.name, err)
}

// stopped tells whether, and why, the evaluation has been ended from outside.
func stopped(ctx context.Context) error {
	switch {
	case ctx.Err() == nil:
		return nil
	case errors.Is(context.Cause(ctx), errOutOfTime):
		return endf(schema.OutcomeOutOfTime, "%s", errOutOfTime)
	}
	return endf(schema.OutcomeCanceled, "%s", errCanceled)
}

// A phase is one call of the language flow in directories of its own:
// work holds the payload's files, home and tmp are the submission's. They are
// new in every phase, so that none finds what an earlier one kept; an extension
// is therefore built once per phase, within the warm-up's limit.
type phase struct {
	*evaluation
	step
	more            bool // another phase follows unless this one fails
	dir             string
	work, home, tmp string
	environ         []string
	result          schema.EvalResult
	timing          schema.PhaseTiming
	ambiguous       []string
	sharedJudge     bool
	free            int64  // bytes, of the disk when the phase began
	compiler        string // its version
}

func (e *evaluation) newPhase(s step) (*phase, error) {
	dir := filepath.Join(e.root, s.name)
	ph := &phase{
		evaluation: e, step: s, dir: dir, timing: schema.PhaseTiming{Name: s.name},
		work: filepath.Join(dir, "work"), home: filepath.Join(dir, "home"), tmp: filepath.Join(dir, "tmp"),
	}
	for _, d := range []string{dir, ph.work, ph.home, ph.tmp} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, fmt.Errorf("making the directory of phase %s: %w", s.name, err)
		}
	}
	ph.free = freeBytes(dir)
	ph.environ = append(Environ(e.job.Environ),
		"HOME="+ph.home, "TMPDIR="+ph.tmp,
		// What the warm-up leaves in HOME must not be imported by the tester.
		"PYTHONNOUSERSITE=1",
	)
	if e.p.MultiGPU {
		ph.environ = append(ph.environ, "POPCORN_GPUS="+strconv.Itoa(len(e.visible)))
	}
	return ph, nil
}

// limit is the tester's time in this phase; 0 means none.
func (ph *phase) limit() time.Duration {
	d, limited := ph.p.Limit(ph.mode).Limit()
	if limited {
		return max(d, time.Nanosecond)
	}
	return 0
}

// cases is the text of the file that the tester reads.
func (ph *phase) cases() string {
	switch {
	case ph.mode == schema.ModeTest:
		return schema.CasesText(ph.p.Tests, false)
	case ph.only >= 0:
		return ph.p.Benchmarks[ph.only].Text()
	}
	return schema.CasesText(ph.p.Benchmarks, ph.p.RankingBy == schema.RankLast)
}

// writeCases creates the file that the tester reads and returns its path.
func (ph *phase) writeCases(text string) (string, error) {
	f, err := os.CreateTemp(ph.dir, "cases-*.txt") // where the submission cannot write
	if err != nil {
		return "", fmt.Errorf("writing the cases: %w", err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return "", fmt.Errorf("writing the cases: %w", err)
	}
	return f.Name(), nil
}

// test runs the tester under argv and judges it.
func (ph *phase) test(ctx context.Context, argv ...string) error {
	text := ph.cases()
	cases, err := ph.writeCases(text)
	if err != nil {
		return err
	}
	c := command{
		argv: append(argv, ph.mode, cases), dir: ph.work, environ: ph.environ,
		limit: ph.limit(), seed: ph.p.Seed, report: true, more: ph.more,
		harness: ph.p.Lang == schema.LangPython && ph.mode != schema.ModeProfile, // profilers look into it
	}
	if ph.mode == schema.ModeProfile {
		return ph.profile(ctx, c, newAsked(ph.mode, text))
	}
	return ph.measure(ctx, c, newAsked(ph.mode, text))
}

// measure runs the tester, watching the devices while it is timed, and judges
// it.
func (ph *phase) measure(ctx context.Context, c command, a asked) error {
	timed := ph.mode != schema.ModeTest && ph.mode != schema.ModeProfile
	if timed {
		ph.watch.Begin()
	}
	before := oomKills()
	done, err := ph.run(ctx, c)
	if timed {
		ph.ambiguous = append(ph.ambiguous, ph.watch.End(context.WithoutCancel(ctx), ph.name)...)
	}
	if err != nil {
		return ph.notStarted(c, err)
	}
	ph.timing.Run = used(done)
	if done.how == killedCanceled {
		return stopped(ctx)
	}
	if ph.p.Lang == schema.LangCUDA || done.shared.size > 0 { // a C++ harness is linked with it
		ph.sharedJudge = true
	}
	verdict, err := judge(c, a, done)
	ph.result.Run = verdict
	return ph.explain(err, done, verdict, done.outOfMemory || oomKills() > before)
}
