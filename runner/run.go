package runner

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

// A phaseRun is a planned phase under way, and what was seen of it so far.
type phaseRun struct {
	*evaluation
	p     *plan.Phase
	seen  judge.Seen
	table string // what a worker says that looked at itself

	verdict judge.Judgment    // what it came to, once it has ended
	eval    schema.EvalResult // the same under Kernelbot's keys

	writing   time.Duration // of files
	reused    bool          // an earlier phase's compilation
	ambiguous []string      // what disturbed its times
	free      int64         // bytes, of the disk when the phase began
}

// run does what is planned for the phase, in the order that [plan.Phase] says,
// until something fails. What was seen so far is in r beside an error.
func (r *phaseRun) run(ctx context.Context) error {
	if err := makeDirectories(r.p.Directories); err != nil {
		return err
	}
	r.free = freeBytes(r.p.Dir)
	err := r.commands(ctx)
	if isDiskFull(err) {
		err = r.diskFull(err)
	}
	return err
}

func (r *phaseRun) commands(ctx context.Context) error {
	if err := r.write(); err != nil {
		return err
	}
	if r.p.WarmUp != nil {
		if err := r.warmUp(ctx); err != nil {
			return err
		}
	}
	if r.p.Compile != nil {
		compiled, err := r.compile(ctx)
		removeErr := removeFiles(r.p.Work, r.p.Files)
		if err != nil || !compiled {
			return err
		}
		if removeErr != nil {
			return removeErr
		}
	}
	if r.p.Test != nil {
		return r.test(ctx)
	}
	return nil
}

// write puts the files in place and counts the time.
func (r *phaseRun) write() error {
	start := time.Now()
	err := writeFiles(r.p.Work, r.p.Files)
	r.writing += time.Since(start)
	return err
}

// warmUp lets the submission fill its build caches, and then takes away
// whatever it did to the files.
func (r *phaseRun) warmUp(ctx context.Context) (err error) {
	if r.seen.WarmUp, err = r.command(ctx, r.p.WarmUp); err != nil {
		return err
	}
	if err := stopped(ctx); err != nil {
		return err
	}
	if err := renew(r.p.Work); err != nil {
		return err
	}
	return r.write()
}

// compile asks the compiler for its version and lets it work, and reports
// whether it did. It reads the submission and is watched like it.
func (r *phaseRun) compile(ctx context.Context) (done bool, err error) {
	if r.seen.Version, err = r.tool(ctx, r.p.Version); err != nil || r.seen.Version.Failed() {
		return false, err
	}
	r.seen.Compile, err = r.tool(ctx, r.p.Compile)
	return err == nil && !r.seen.Compile.Failed(), err
}

func (r *phaseRun) tool(ctx context.Context, c *plan.Command) (*judge.Process, error) {
	seen, err := r.command(ctx, c)
	var start *sandbox.StartError
	switch {
	case errors.As(err, &start) && start.Errno == syscall.E2BIG:
		return nil, outcomef(schema.OutcomeBadPayload, "payload: the compiler's command line, of defines, libraries and file names, is longer than a system takes")
	case err == nil && (seen.How == judge.Canceled || seen.How == judge.OutOfTime):
		return nil, stopped(ctx)
	}
	return seen, err
}

// test runs the harness, watching the devices while it measures times, and
// lets a profiler say what it found.
func (r *phaseRun) test(ctx context.Context) error {
	if err := writeCases(r.p.CasesFile(), r.p.Cases); err != nil {
		return err
	}
	if r.p.Profile != nil {
		if err := openDirectory(r.p.Profile.Dir); err != nil {
			return err
		}
	}
	if r.p.Timed() {
		r.watch.Begin()
	}
	seen, err := r.command(ctx, r.p.Test)
	if r.p.Timed() {
		r.ambiguous = r.watch.End(context.WithoutCancel(ctx), r.p.Name)
	}
	if err != nil {
		return err
	}
	r.seen.Test = seen
	if seen.How == judge.Canceled {
		return stopped(ctx)
	}
	return r.readProfile(ctx)
}

// readProfile makes text of what a profiler left.
func (r *phaseRun) readProfile(ctx context.Context) (err error) {
	if r.p.Profile == nil || r.p.Profile.Import == nil || !judge.ProfilerWorked(r.p, r.seen.Test) {
		return nil
	}
	if r.sandbox == nil { // the worker's is not for what reads its words
		if err := r.openSandbox(); err != nil {
			return err
		}
	}
	if r.seen.Import, err = r.command(ctx, r.p.Profile.Import); err == nil && r.seen.Import.Failed() {
		err = stopped(ctx)
	}
	return err
}

// diskFull is how a phase ends that has no room for the runner's files: it is
// the submission's doing when its own take most of what was free.
func (r *phaseRun) diskFull(err error) error {
	var held int64
	for _, dir := range []string{r.p.Work, r.p.Home, r.p.Temp} {
		held += heldBytes(dir)
	}
	if r.free < enoughDisk || held < r.free/4*3 {
		return err
	}
	return outcomef(schema.OutcomeOutOfDisk, "the submission filled the disk: its files take %d of the %d MiB that were free", held>>20, r.free>>20)
}

// enoughDisk is how much a machine must have free when a phase begins, in
// bytes; with less it is the machine's doing that there is no room.
const enoughDisk = 256 << 20
