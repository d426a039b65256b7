package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

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

	// Deadline ends the evaluation with the outcome out-of-time. Zero: none.
	Deadline time.Time

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
	result := &schema.Result{Success: true, RunID: job.RunID, System: schema.SystemInfo{DeviceCount: 1}}
	err := evaluate(ctx, job, result)
	var end *ending
	switch {
	case err == nil:
		result.Outcome = schema.NewOutcome(schema.OutcomePassed, "")
	case errors.As(err, &end):
		result.Outcome = schema.NewOutcome(end.outcome, end.text)
	default:
		result.Outcome = schema.NewOutcome(schema.OutcomeMachine, err.Error())
	}
	if result.Outcome.ExitStatus() != 0 {
		result.Success, result.Error = false, result.Outcome.Text
	}
	return result
}

// An ending stops the evaluation with an outcome of its own; any other error
// is a fault of the machine.
type ending struct{ outcome, text string }

func (e *ending) Error() string { return e.text }

func endf(outcome, format string, args ...any) error {
	return &ending{outcome, fmt.Sprintf(format, args...)}
}

func evaluate(ctx context.Context, job Job, result *schema.Result) (err error) {
	if err := supported(job.Payload); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the reaper of the submission's processes: %w", err)
	}
	root, err := os.MkdirTemp(job.WorkDir, "kbrun-")
	if err != nil {
		return fmt.Errorf("making the work directory: %w", err)
	}
	defer func() {
		if rmErr := removeTree(root); err == nil && rmErr != nil {
			err = rmErr
		}
	}()
	if !job.Deadline.IsZero() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadlineCause(ctx, job.Deadline, errOutOfTime)
		defer stop()
	}
	e := &evaluation{job: job, p: job.Payload, root: root}
	result.System = systemInfo(ctx, Environ(job.Environ))
	return e.all(ctx, result)
}

// all runs the phases until one did not pass. A tester that says "pass" and
// then crashes has passed, and still decides the outcome.
func (e *evaluation) all(ctx context.Context, result *schema.Result) (last error) {
	for _, phase := range phases(e.p.Mode) {
		err := e.do(ctx, phase, result)
		if err != nil {
			last = err
		}
		done := result.Runs.Get(phase)
		if done == nil || !done.Run.Passed {
			break
		}
	}
	return last
}

// supported refuses what no machine with this runner could do.
func supported(p *schema.Payload) error {
	switch {
	case p.Mode == schema.ModeProfile:
		return endf(schema.OutcomeUnsupported, "mode profile is not supported by this runner")
	case p.MultiGPU:
		return endf(schema.OutcomeUnsupported, "multi_gpu is not supported by this runner")
	case p.Mode != schema.ModeTest && p.RankingBy == schema.RankLast && len(p.Benchmarks) == 0:
		return endf(schema.OutcomeBadPayload, `payload: benchmarks: got none, want at least one with ranking_by "last"`)
	}
	return nil
}

// phases lists the tester modes of a payload's mode, in order. Each is also
// the key of its run.
func phases(mode string) []string {
	if mode == schema.ModeLeaderboard || mode == schema.ModePrivate {
		return []string{schema.ModeTest, schema.ModeBenchmark, schema.ModeLeaderboard}
	}
	return []string{mode}
}

type evaluation struct {
	job  Job
	p    *schema.Payload
	root string
}

// do runs one phase and adds it to the result; the error says how it ended
// when it is no plain pass.
func (e *evaluation) do(ctx context.Context, name string, result *schema.Result) error {
	if err := stopped(ctx); err != nil {
		return err
	}
	if e.job.Progress != nil {
		e.job.Progress(name, nil)
	}
	ph, err := e.newPhase(name)
	if err != nil {
		return err
	}
	ph.result.Start = time.Now()
	flow := ph.python
	if e.p.Lang == schema.LangCUDA {
		flow = ph.cuda
	}
	err = flow(ctx)
	ph.result.End = time.Now()
	if ph.result.Run != nil {
		result.Runs = append(result.Runs, schema.Run{Name: name, EvalResult: ph.result})
		if e.job.Progress != nil {
			e.job.Progress(name, &ph.result)
		}
	}
	if rmErr := removeTree(ph.dir); err == nil && rmErr != nil {
		err = rmErr
	}
	var end *ending
	if errors.As(err, &end) {
		return endf(end.outcome, "%s: %s", name, end.text)
	}
	return err
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
	mode            string // the tester's
	dir             string
	work, home, tmp string
	environ         []string
	result          schema.EvalResult
}

func (e *evaluation) newPhase(mode string) (*phase, error) {
	dir := filepath.Join(e.root, mode)
	ph := &phase{
		evaluation: e, mode: mode, dir: dir,
		work: filepath.Join(dir, "work"), home: filepath.Join(dir, "home"), tmp: filepath.Join(dir, "tmp"),
	}
	for _, d := range []string{dir, ph.work, ph.home, ph.tmp} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, fmt.Errorf("making the directory of phase %s: %w", mode, err)
		}
	}
	ph.environ = append(Environ(e.job.Environ),
		"HOME="+ph.home, "TMPDIR="+ph.tmp,
		// What the warm-up leaves in HOME must not be imported by the tester.
		"PYTHONNOUSERSITE=1",
	)
	return ph, nil
}

// limit is the tester's time in this phase; 0 means none.
func (ph *phase) limit() time.Duration {
	t := ph.p.BenchmarkTimeout
	switch ph.mode {
	case schema.ModeTest:
		t = ph.p.TestTimeout
	case schema.ModeLeaderboard:
		t = ph.p.RankedTimeout
	}
	d, limited := t.Limit()
	if limited {
		return max(d, time.Nanosecond)
	}
	return 0
}

// cases is the text of the file that the tester reads.
func (ph *phase) cases() string {
	if ph.mode == schema.ModeTest {
		return schema.CasesText(ph.p.Tests, false)
	}
	return schema.CasesText(ph.p.Benchmarks, ph.p.RankingBy == schema.RankLast)
}

// writeCases creates the file that the tester reads and returns its path.
func (ph *phase) writeCases(text string) (string, error) {
	f, err := os.CreateTemp(ph.tmp, "cases-*.txt")
	if err != nil {
		return "", fmt.Errorf("writing the cases: %w", err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
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
		limit: ph.limit(), seed: ph.p.Seed, report: true,
		harness: ph.p.Lang == schema.LangPython && ph.mode != schema.ModeProfile, // profilers look into it
	}
	done, err := run(ctx, c)
	if err != nil {
		return err
	}
	if done.how == killedCanceled {
		return stopped(ctx)
	}
	run, err := judge(c, newAsked(ph.mode, text), done)
	ph.result.Run = run
	return err
}
