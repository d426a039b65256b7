package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/sandbox"
)

const (
	// outputHead is what is kept of stdout and of stderr, in bytes: more than
	// the 16,384 characters that a result shows, however they are encoded.
	outputHead = 256 << 10
	// reportLimit is the longest report a tester may write, in bytes.
	reportLimit = 1 << 20
	// killLimit is how long killed processes may take to go; beyond it the
	// machine is at fault.
	killLimit = 10 * time.Second
	// outputGrace is how long pipes are read on after every process has gone.
	// They end at once unless a descriptor was smuggled out of the tree.
	outputGrace = 500 * time.Millisecond
	// reportFD is the number of the report's descriptor in the child. What
	// harness.py has to say goes by the next.
	reportFD = 3
)

// A command is one process of the submission or of its toolchain.
type command struct {
	argv    []string
	dir     string
	environ []string
	limit   time.Duration // wall time; 0 means none
	seed    *int64        // POPCORN_SEED; nil leaves it unset
	report  bool          // give it a way for its report, POPCORN_FD
	harness bool          // a tester in Python: argv is run by harness.py, which hides the seed
	watch   string        // text to look for on stdout, beyond what is kept
	more    bool          // another command follows: its box is built meanwhile
}

func (c *command) text() string { return shellJoin(c.argv) }

// how a process ended.
type how int

const (
	exited how = iota
	killedTimeout
	killedOutOfTime
	killedCanceled
)

// exitTimeout is Kernelbot's code for a process that passed its limit.
const exitTimeout = 114

// ended is what is known of a process whose whole tree is gone.
type ended struct {
	how            how
	exitCode       int // negative: the signal's number; exitTimeout when killed
	duration       time.Duration
	usage          usage
	outOfMemory    bool // something of it was killed at the sandbox's limit
	stdout, stderr *capture
	report         *capture
	shared         *capture // a harness's word that the submission came into its process
}

// run starts the command in a box, waits for the process itself (its pipes may
// be held open by others), kills everything that it left behind, and returns
// what was written until then. Output is drained all the while and memory
// stays flat.
//
// Errors: *sandbox.WeakError, when nothing ran; any other is a fault of the
// machine: the process cannot be started, or one of its descendants cannot be
// killed.
func run(ctx context.Context, box *sandbox.Box, place sandbox.Place, c command) (*ended, error) {
	path, err := lookPath(c.argv[0], c.environ)
	if err != nil {
		return nil, err
	}
	out := &ended{
		stdout: &capture{limit: outputHead, watch: c.watch},
		stderr: &capture{limit: outputHead},
		report: &capture{limit: reportLimit},
		shared: &capture{limit: 1},
	}
	call := sandbox.Command{Path: path, Args: c.args(), Env: c.childEnviron(), Dir: c.dir, Place: place}
	var drains drains
	defer drains.close()
	if call.Stdout, err = drains.open(openPipe, out.stdout); err != nil {
		return nil, err
	}
	if call.Stderr, err = drains.open(openPipe, out.stderr); err != nil {
		return nil, err
	}
	if c.report {
		w, err := drains.open(c.reportChannel, out.report)
		if err != nil {
			return nil, err
		}
		call.Files = append(call.Files, w)
	}
	if c.harness {
		w, err := drains.open(os.Pipe, out.shared)
		if err != nil {
			return nil, err
		}
		call.Files = append(call.Files, w)
	}
	process, err := box.Start(call)
	if err != nil {
		return nil, err
	}
	drains.started()
	if c.more {
		box.Ready()
	}
	if err := out.wait(ctx, process, c.limit); err != nil {
		box.Survived(err)
		return nil, err
	}
	drains.hangUp()
	if !process.Sealed() {
		if err := endDescendants(killLimit); err != nil {
			box.Survived(err)
			return nil, err
		}
	}
	drains.finish()
	return out, nil
}

func (c *command) childEnviron() []string {
	env := append([]string(nil), c.environ...)
	env = append(env, "USER=submission", "LOGNAME=submission") // programs ask for a name, and the id has none
	if c.report {
		env = append(env, "POPCORN_FD="+strconv.Itoa(reportFD))
	}
	if c.seed != nil && !c.harness {
		env = append(env, "POPCORN_SEED="+strconv.FormatInt(*c.seed, 10))
	}
	return env
}

// wait returns when the process itself is gone, killing it when its limit or
// ctx says so.
func (e *ended) wait(ctx context.Context, process *sandbox.Process, limit time.Duration) error {
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
	select {
	case err := <-gone:
		e.exitCode, e.duration, e.usage, e.outOfMemory = state.Exit, state.Wall, usageOf(state), state.OutOfMemory
		return err
	case <-timeout:
		e.how = killedTimeout
	case <-ctx.Done():
		e.how = killedCanceled
		if errors.Is(context.Cause(ctx), errOutOfTime) {
			e.how = killedOutOfTime
		}
	}
	e.duration = time.Since(start)
	if e.how == killedTimeout {
		e.duration = shownLimit(limit)
	}
	e.exitCode = exitTimeout
	process.Kill()
	select {
	case err := <-gone:
		e.usage = usageOf(state)
		return err
	case <-time.After(killLimit):
		return fmt.Errorf("process %d is still there %s after it was killed", process.PID(), killLimit)
	}
}

// shownLimit is a limit as people wrote it: 0 is run as a nanosecond, for 0
// means none there.
func shownLimit(limit time.Duration) time.Duration { return limit.Truncate(time.Microsecond) }

// drains copies a process's pipes into captures, one goroutine each. They end
// at the pipe's end or, after finish, outputGrace later.
type drains struct {
	readers, writers []*os.File
	sinks            []io.Writer
	group            sync.WaitGroup
}

func (d *drains) open(pair func() (r, w *os.File, err error), sink io.Writer) (*os.File, error) {
	r, w, err := pair()
	if err != nil {
		return nil, fmt.Errorf("opening a pipe: %w", err)
	}
	d.readers, d.writers, d.sinks = append(d.readers, r), append(d.writers, w), append(d.sinks, sink)
	return w, nil
}

// started closes the ends that the child now has and begins to read.
func (d *drains) started() {
	for _, w := range d.writers {
		w.Close()
	}
	for i := range d.readers {
		r, sink := d.readers[i], d.sinks[i]
		d.group.Go(func() { drain(r, sink) })
	}
}

// hangUp ends the report for those who outlive the tester: what was written is
// still read, and whoever writes now is told that nobody listens. Pipes know
// no such thing; nothing rests on them.
func (d *drains) hangUp() {
	for _, r := range d.readers {
		if c, err := r.SyscallConn(); err == nil {
			c.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_RD) })
		}
	}
}

func (d *drains) finish() {
	for _, r := range d.readers {
		r.SetReadDeadline(time.Now().Add(outputGrace))
	}
	d.group.Wait()
}

// close ends whatever an error left open.
func (d *drains) close() {
	for _, f := range append(d.readers, d.writers...) {
		f.Close()
	}
	d.group.Wait()
}
