package harness

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/gpu-mode/kbgen/runner/capture"
	"github.com/gpu-mode/kbgen/runner/explain"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/runner/sandbox"
)

// What a worker is asked to do with its inputs; worker.py has the same numbers.
const (
	modeCall  = 0
	modeEcho  = 1
	modeBatch = 2
	// Of mode profile: with the name that a profiler around the worker looks for, and
	// looked at by torch's profiler and by Python's.
	modeRange  = 3
	modeTorch  = 4
	modePython = 5
)

// A worker is one phase's process, which has the submission.
type worker struct {
	s    *Session
	link *link
	page *memory
	// judgePage is shared with the judge, for inputs on a device.
	judgePage *memory
	arenas    [2]*memory
	device    [2]*deviceMemory // that it has open
	pid       int              // as this process sees it
	number    uint32
	watch     stopwatch

	pipes          capture.Pipes
	stdout, stderr *capture.Capture

	ended   bool
	state   sandbox.State // then, but for times by the clock
	swept   bool          // then: it hung up on the judge, which ended it
	killed  int64         // for want of memory before it began, see [sandbox.Sandbox.OOMKills]
	begun   time.Time
	atStart accounts // when it began
	starved bool     // others kept it from a core for more than a third of its life
}

// startWorker forks a worker into the phase's directories. Nothing of the
// submission has run when it returns.
func (s *Session) startWorker(ctx context.Context, p *plan.Phase) (*worker, error) {
	if s.used {
		if err := s.reopen(ctx, p.Profile, sandbox.Directories(p.Directories)); err != nil {
			return nil, err
		}
	}
	w := &worker{s: s, stdout: &capture.Capture{Limit: capture.OutputHead, Watch: plan.ExtensionMark}, stderr: &capture.Capture{Limit: capture.OutputHead}}
	if err := w.start(ctx, p); err != nil {
		w.link.hangUp()
		w.release()
		return nil, err
	}
	if s.onDevice {
		if err := w.openDevice(ctx); err != nil {
			return nil, errors.Join(err, w.end(ctx))
		}
	}
	return w, nil
}

func (w *worker) start(ctx context.Context, p *plan.Phase) error {
	work, environ, err := w.s.phaseDirectories(p)
	if err != nil {
		return err
	}
	if w.page, err = newMemory("page", pageSize); err != nil {
		return err
	}
	ours, theirs, err := newLink()
	if err != nil {
		return err
	}
	w.link = ours
	defer theirs.Close()
	out, errs := w.pipes.Open(capture.OpenPipe, w.stdout), w.pipes.Open(capture.OpenPipe, w.stderr)
	if w.pipes.Err != nil {
		return w.pipes.Err
	}
	op := "fork"
	if w.s.notForked != "" {
		op, w.s.used = "become", true
	}
	message, err := json.Marshal(map[string]any{"op": op, "work": work, "environ": environ, "profiled": p.Profile != nil})
	if err != nil {
		return err
	}
	if err := w.s.parent.link.send(ctx, message, theirs, w.page.file, out, errs); err != nil {
		return w.s.parent.broke(err)
	}
	w.pipes.Started()
	theirs.Close()
	hello, pid, err := w.link.receive(ctx, importLimit)
	if err != nil || string(hello) != "H" {
		return errors.Join(err, &brokenError{"worker", "did not start"})
	}
	w.pid, w.begun = pid, time.Now()
	w.atStart = w.accounts()
	w.killed, _ = w.s.parent.sandbox.OOMKills()
	w.watch = stopwatch{release: w.page.flag(lineRelease), done: w.page.flag(lineDone), gone: func() bool { return w.link.ready() || w.left() }}
	return nil
}

// phaseDirectories makes a phase's directories below the workers' and puts the
// worker's files there; the reference and the main file are not among them.
func (s *Session) phaseDirectories(p *plan.Phase) (work string, environ map[string]string, err error) {
	s.phases++
	dirs := s.parent.dirs
	if p.Profile == nil { // else the parent's are the phase's alone
		dirs = directories(filepath.Join(dirs.Work, strconv.Itoa(s.phases)+"-"+p.Name))
		for _, d := range []string{dirs.Dir, dirs.Work, dirs.Home, dirs.Temp} {
			if err := os.Mkdir(d, 0o755); err != nil {
				return "", nil, fmt.Errorf("making the phase's directories: %w", err)
			}
		}
	}
	for _, d := range []string{dirs.Work, dirs.Home, dirs.Temp} {
		if err := s.parent.sandbox.Give(d, 0o700); err != nil {
			return "", nil, fmt.Errorf("making the phase's directories: %w", err)
		}
	}
	work = dirs.Work
	for _, name := range []string{taskFile, utilsFile, plan.SubmissionFile} {
		if text, ok := s.o.Payload.Sources.Get(name); ok && p.Name != trialPhase {
			path := filepath.Join(work, name)
			if err := errors.Join(os.WriteFile(path, []byte(text), 0o644), s.parent.sandbox.Give(path, 0o644)); err != nil {
				return "", nil, fmt.Errorf("writing the worker's files: %w", err)
			}
		}
	}
	if s.native() && p.Name != trialPhase {
		if err := putProgram(filepath.Join(work, library), s.o.Programs[plan.BuildSubmission]); err != nil {
			return "", nil, err
		}
	}
	return work, map[string]string{"HOME": dirs.Home, "TMPDIR": dirs.Temp, "PYTHONNOUSERSITE": "1"}, nil
}

// release gives back what the worker had.
func (w *worker) release() {
	w.pipes.Finish()
	w.pipes.Close()
	w.page.close()
	w.judgePage.close()
	for _, a := range w.arenas {
		a.close()
	}
}

// grow makes an arena of at least size bytes and tells whoever reads or writes
// there.
func (w *worker) grow(ctx context.Context, arena int, size uint64) error {
	if arena >= arenaDevice {
		return w.growDevice(ctx, arena, size)
	}
	if size <= uint64(w.arenas[arena].size()) && w.arenas[arena] != nil {
		return nil
	}
	m, err := newMemory("arena", int(max(size, pageSize)))
	if err != nil {
		return err
	}
	w.arenas[arena].close()
	w.arenas[arena] = m
	// The worker first: who touches the memory first is charged with it.
	message := binary.LittleEndian.AppendUint64([]byte{'A', byte(arena)}, uint64(m.size()))
	answer, err := w.ask(ctx, askLimit, message, m.file)
	if err == nil && string(answer) != "A" {
		err = errNonsense
	}
	if err != nil {
		return err
	}
	_, err = w.s.askJudge(ctx, askLimit, map[string]any{"op": "arena", "index": arena, "size": m.size()}, nil, m.file)
	return err
}

// errNonsense is a worker that does not keep to the channel's rules.
var errNonsense = errors.New("the worker's answer is malformed")

func (w *worker) ask(ctx context.Context, limit time.Duration, message []byte, files ...*os.File) ([]byte, error) {
	if err := w.link.send(ctx, message, files...); err != nil {
		return nil, err
	}
	return w.receive(ctx, limit)
}

// order has the worker do something, which it says that it has done by the message's
// first byte.
//
// Errors: *raisedError, errNonsense, those of ask.
func (w *worker) order(ctx context.Context, limit time.Duration, message []byte, files ...*os.File) error {
	answer, err := w.ask(ctx, limit, message, files...)
	switch {
	case err != nil:
		return err
	case len(answer) == 1 && answer[0] == message[0]:
		return nil
	case answer[0] == 'X':
		return raisedIn(answer[1:])
	}
	return errNonsense
}

// receive returns the worker's next message, as [link.receive] does. A process
// that it left behind may hold its end of the link: that it has ended itself is
// the parent's word.
func (w *worker) receive(ctx context.Context, limit time.Duration) ([]byte, error) {
	for deadline := time.Now().Add(limit); ; {
		answer, _, err := w.link.receive(ctx, min(lookForEnd, time.Until(deadline)))
		switch {
		case !errors.Is(err, errSilent):
			return answer, err
		case w.left():
			return nil, io.EOF
		case time.Now().After(deadline):
			return nil, errSilent
		}
	}
}

// lookForEnd is how often a worker that is waited for is looked after.
const lookForEnd = 100 * time.Millisecond

// left reports whether the worker has ended, or its parent has, and has said all
// that it will. The parent speaks unasked of nothing else.
func (w *worker) left() bool {
	if w.s.notForked != "" { // it has become the worker, and hung up
		return w.s.parent.ended() && !w.link.ready()
	}
	return w.s.parent.link.ready() && !w.link.ready()
}

// A raisedError is an exception in the submission.
type raisedError struct{ explain.Raised }

func (e *raisedError) Error() string { return e.Text() }

func raisedIn(raw []byte) error {
	raised, _ := decodeRaised(raw)
	return &raisedError{raised}
}

// decodeRaised reads channel.py's report of an exception, and the module that is
// missing if it says so. It is a stranger's word, and may be nonsense.
func decodeRaised(raw []byte) (explain.Raised, string) {
	told, err := decodeTexts(raw)
	if err != nil || len(told) < 3 {
		return explain.Raised{Type: "Exception"}, ""
	}
	r := explain.Raised{Type: told[0], Message: told[1]}
	for frame := range slices.Chunk(told[3:], 4) {
		if len(frame) == 4 {
			line, _ := strconv.Atoi(frame[1])
			r.Frames = append(r.Frames, explain.Frame{File: frame[0], Line: line, Function: frame[2]})
		}
	}
	if r.Type != "ModuleNotFoundError" {
		return r, ""
	}
	return r, told[2]
}

// load imports the submission, or opens its library.
//
// Errors: *raisedError, io.EOF when it ended its process, errSilent.
func (w *worker) load(ctx context.Context, limit time.Duration) error {
	return w.order(ctx, limit, []byte("L"))
}
