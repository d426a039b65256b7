package harness

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/runner/capture"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/runner/sandbox"
)

var (
	//go:embed channel.py
	channelPy string
	//go:embed device.py
	devicePy string
	//go:embed judge.py
	judgePy string
	//go:embed worker.py
	workerPy string
)

const (
	// importLimit bounds the import of the task's heavy modules, on the slowest
	// disk and the busiest machine.
	importLimit = 4 * time.Minute
	// killLimit is how long killed processes may take to go.
	killLimit = 10 * time.Second
)

// A sandboxed program is a program in a sandbox that obeys messages: an interpreter, or
// for C++ what the compiler made.
type sandboxed struct {
	name    string
	sandbox *sandbox.Sandbox
	process *sandbox.Process
	link    *link
	pipes   capture.Pipes
	output  *capture.Capture // both streams: trusted programs, for their last words
	dirs    sandbox.Directories
	pid     int // of the program; 0: it has not spoken yet

	closed bool
	gone   chan struct{} // closed when its processes are gone
	state  sandbox.State // then
}

// directories are those below dir.
func directories(dir string) sandbox.Directories {
	return sandbox.Directories{Dir: dir, Work: filepath.Join(dir, "work"), Home: filepath.Join(dir, "home"), Temp: filepath.Join(dir, "tmp")}
}

// openSandboxed starts the file native, or without one python's text in an interpreter,
// by way of a profiler when profile says so.
func (s *Session) openSandboxed(name, python, native string, judge bool, profile *plan.Profile, dirs sandbox.Directories) (*sandboxed, error) {
	b := &sandboxed{name: name, output: &capture.Capture{Limit: capture.OutputHead}, gone: make(chan struct{}), dirs: dirs}
	walls := filepath.Join(s.o.Dir, name+"-sandbox")
	for _, d := range []string{dirs.Dir, dirs.Work, dirs.Home, dirs.Temp, walls} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return nil, fmt.Errorf("making the %s's directories: %w", name, err)
		}
	}
	o := s.o.Sandbox
	o.Dir, o.Judge = walls, judge
	var err error
	if b.sandbox, err = sandbox.Open(o); err != nil {
		return nil, err
	}
	if err := errors.Join(b.sandbox.Prepare(b.dirs), b.start(s, python, native, profile)); err != nil {
		b.sandbox.Close()
		return nil, err
	}
	return b, nil
}

func (b *sandboxed) start(s *Session, python, native string, profile *plan.Profile) (err error) {
	ours, theirs, err := newLink()
	if err != nil {
		return err
	}
	defer theirs.Close()
	defer func() {
		if err != nil {
			ours.close()
			b.pipes.Close()
		}
	}()
	out := b.pipes.Open(capture.OpenPipe, b.output)
	if b.pipes.Err != nil {
		return b.pipes.Err
	}
	env := append(s.o.Environ[:len(s.o.Environ):len(s.o.Environ)],
		"HOME="+b.dirs.Home, "TMPDIR="+b.dirs.Temp, "USER=submission", "LOGNAME=submission",
		"OPENBLAS_NUM_THREADS=1") // its threads would begin at the import, and a process with threads cannot be forked
	program := channelPy + devicePy + s.o.standIn.source + python
	path, args := s.o.Python, []string{s.o.Python, "-I", "-c", program}
	if native != "" {
		path = filepath.Join(b.dirs.Work, "program")
		args = []string{path}
		if err := putProgram(path, native); err != nil {
			return err
		}
	}
	if profile != nil && profile.Program != "" { // profiles show the command line
		file, err := b.profiled(profile, program)
		if err != nil {
			return err
		}
		path, args, env = profile.Path, slices.Concat(profile.Argv, []string{s.o.Python, "-I", file}), append(env, profile.Environ...)
	}
	b.process, err = b.sandbox.Start(sandbox.Command{
		Path: path, Args: args, Env: env, Dir: b.dirs.Work, Directories: b.dirs, Stdout: out, Stderr: out, Files: []*os.File{theirs},
	})
	if err != nil {
		return err
	}
	b.link = ours
	b.pipes.Started()
	go func() { // ends with the sandbox
		b.state, _ = b.process.Wait()
		close(b.gone)
	}()
	return nil
}

// profiled makes what a profiler needs: where it writes, and the program as a
// file, which the submission cannot write.
func (b *sandboxed) profiled(profile *plan.Profile, program string) (file string, err error) {
	file = filepath.Join(b.dirs.Dir, "kbrun-harness")
	if err = os.WriteFile(file, []byte(program), 0o644); err == nil {
		err = os.Mkdir(profile.Dir, 0o700)
	}
	for _, dir := range []string{b.dirs.Work, profile.Dir} { // the profiler writes into both
		if err == nil {
			err = b.sandbox.Give(dir, 0o700)
		}
	}
	if err != nil {
		return "", fmt.Errorf("preparing the profiler: %w", err)
	}
	return file, nil
}

// ended reports whether its processes are gone, so that state says how.
func (b *sandboxed) ended() bool {
	select {
	case <-b.gone:
		return true
	default:
		return false
	}
}

// close ends the sandbox and waits for its end.
//
// Error: something of it cannot be killed.
func (b *sandboxed) close() error {
	if b == nil || b.closed {
		return nil
	}
	b.closed = true
	b.process.Kill()
	b.link.close()
	var err error
	select {
	case <-b.gone:
	case <-time.After(killLimit):
		err = fmt.Errorf("the %s's process %d is still there %s after it was killed", b.name, b.process.PID(), killLimit)
		b.sandbox.Survived(err)
	}
	b.pipes.Finish()
	b.pipes.Close()
	return errors.Join(err, b.sandbox.Close())
}

// ask sends an order and returns the answer, whose first byte says what it is.
func (b *sandboxed) ask(ctx context.Context, limit time.Duration, order any, body []byte, files ...*os.File) (answer []byte, err error) {
	head, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	if body != nil {
		head = append(append(head, '\n'), body...)
	}
	if err := b.link.send(ctx, head, files...); err != nil {
		return nil, b.broke(err)
	}
	answer, sender, err := b.link.receive(ctx, limit)
	if err != nil {
		return nil, b.broke(err)
	}
	if b.pid == 0 {
		b.pid = sender
	}
	return answer, nil
}

// noAnswer is the brokenError.why of a process that still runs.
const noAnswer = "did not answer in time"

// A brokenError says that one of our own processes did not do its work.
type brokenError struct{ name, why string }

func (e *brokenError) Error() string { return "the " + e.name + " " + e.why }

// broke turns an error of the link into words about the process behind it.
func (b *sandboxed) broke(err error) error {
	switch {
	case errors.Is(err, errSilent):
		return &brokenError{b.name, noAnswer}
	case errors.Is(err, io.EOF):
		select {
		case <-b.gone:
			return &brokenError{b.name, fmt.Sprintf("ended with status %d", b.state.Exit)}
		case <-time.After(killLimit):
			return &brokenError{b.name, "hung up"}
		}
	}
	return err
}
