package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gpu-mode/kbgen/runner/capture"
	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/runner/sandbox"
)

const (
	// killLimit is how long killed processes may take to go; beyond it the
	// machine is at fault.
	killLimit = 10 * time.Second
)

// toldLimit is what is kept of harness.py's own words, in bytes.
const toldLimit = 4 << 10

// runCommand runs the command in a sandbox, waits for the process itself (its
// pipes may be held open by others), kills everything that it left behind, and
// returns what was written until then. It reads output all the while, and keeps
// the beginning only.
//
// sweep ends what is left where the kernel does not, and is given how long that
// may take.
//
// Errors: *sandbox.WeakError and *sandbox.StartError, when nothing ran; any
// other is a fault of the machine: the process cannot be started, or one of its
// descendants cannot be killed.
func runCommand(ctx context.Context, sb *sandbox.Sandbox, dirs sandbox.Directories, c *plan.Command, sweep func(time.Duration) error) (*judge.Process, error) {
	path, err := LookPath(c.Argv[0], c.Environ)
	if err != nil {
		return nil, err
	}
	stdout, stderr := &capture.Capture{Limit: capture.OutputHead, Watch: c.Watch}, &capture.Capture{Limit: capture.OutputHead}
	report, shared := &capture.Capture{Limit: judge.ReportLimit}, &capture.Capture{Limit: toldLimit}
	call := sandbox.Command{Path: path, Args: args(c), Env: environ(c), Dir: c.Dir, Directories: dirs}
	var pipes capture.Pipes
	defer pipes.Close()
	call.Stdout, call.Stderr = pipes.Open(capture.OpenPipe, stdout), pipes.Open(capture.OpenPipe, stderr)
	if c.Report {
		call.Files = append(call.Files, pipes.Open(func() (r, w *os.File, err error) { return reportChannel(c) }, report))
	}
	if c.Harness {
		call.Files = append(call.Files, pipes.Open(os.Pipe, shared))
	}
	if pipes.Err != nil {
		return nil, pipes.Err
	}
	process, err := sb.Start(call)
	if err != nil {
		return nil, err
	}
	pipes.Started()
	if c.More {
		sb.Ready()
	}
	seen := &judge.Process{}
	if err := wait(ctx, process, c.Limit, seen); err != nil {
		sb.Survived(err)
		return nil, err
	}
	pipes.HangUp()
	if !process.Sealed() {
		if err := sweep(killLimit); err != nil {
			sb.Survived(err)
			return nil, err
		}
	}
	pipes.Finish()
	seen.Stdout, seen.Stderr, seen.Report = stdout.Stream, stderr.Stream, report.Stream
	seen.Marked = stdout.Seen
	seen.Shared, seen.Worker = judge.Told(shared.Head)
	return seen, nil
}

// wait returns when the process itself is gone, killing it when its limit or
// ctx says so, and enters how it ended and what it used.
func wait(ctx context.Context, process *sandbox.Process, limit time.Duration, seen *judge.Process) error {
	start := time.Now()
	var state sandbox.State
	gone := make(chan error, 1)
	go func() { // ends with the process
		var err error
		state, err = process.Wait()
		gone <- err
	}()
	var timeout <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeout = timer.C
	}
	used := func() { seen.User, seen.System, seen.Peak = state.User, state.System, state.MaxRSS }
	select {
	case err := <-gone:
		used()
		seen.ExitCode, seen.Duration, seen.OutOfMemory = state.Exit, state.Wall, state.OutOfMemory || state.OOMKills > 0
		return err
	case <-timeout:
		seen.How = judge.TimedOut
	case <-ctx.Done():
		seen.How = judge.Canceled
		if errors.Is(context.Cause(ctx), errOutOfTime) {
			seen.How = judge.OutOfTime
		}
	}
	seen.Duration = time.Since(start)
	if seen.How == judge.TimedOut {
		seen.Duration = judge.ShownLimit(limit)
	}
	seen.ExitCode = judge.ExitTimeout
	process.Kill()
	select {
	case err := <-gone:
		used()
		return err
	case <-time.After(killLimit):
		return fmt.Errorf("process %d is still there %s after it was killed", process.PID(), killLimit)
	}
}
