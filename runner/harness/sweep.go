package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/runner/sandbox"
)

// freeze stops every process of the worker's and waits until it stands.
func (w *worker) freeze() ([]int, error) {
	deadline := time.Now().Add(killLimit)
	for {
		pids := w.s.foreign()
		if !slices.Contains(pids, w.pid) {
			return nil, io.EOF
		}
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGSTOP)
		}
		for range 200 { // it takes microseconds
			if stopped(pids) {
				break
			}
			time.Sleep(20 * time.Microsecond)
		}
		if again := w.s.foreign(); len(again) == len(pids) && stopped(again) { // none was made meanwhile
			return again, nil
		}
		if time.Now().After(deadline) {
			defer thaw(pids)
			if slices.Contains(threadStates(pids), 'D') && !killed(pids) {
				return nil, fmt.Errorf("the worker's processes cannot be stopped: one waits for a device")
			}
			return nil, errWentOn
		}
	}
}

// killed kills processes that cannot be stopped, and reports whether that ended them. One
// that waits for a device stays.
func killed(pids []int) bool {
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	for deadline := time.Now().Add(killLimit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if !slices.ContainsFunc(threadStates(pids), func(s byte) bool { return s != 0 && !dead(s) }) {
			return true
		}
	}
	return false
}

// errWentOn is a worker that does not stand still when it is stopped: only its
// own timers can send it the signal to go on.
var errWentOn = errors.New("it went on when it was stopped")

// turns says how often each thread that stands has been put on a core so far.
func turns(pids []int) map[string]string {
	found := map[string]string{}
	for _, pid := range pids {
		tasks := "/proc/" + strconv.Itoa(pid) + "/task/"
		threads, _ := os.ReadDir(tasks)
		for _, t := range threads {
			if s := state(tasks + t.Name()); s == 'T' || s == 't' {
				found[tasks+t.Name()] = slicesOf(tasks + t.Name())
			}
		}
	}
	return found
}

// wentOn reports whether one of them has gone on, while the worker lives.
func (w *worker) wentOn(stood map[string]string) bool {
	if !w.alive() {
		return false // it was killed, which is told elsewhere
	}
	for thread, before := range stood {
		if s := state(thread); s != 'T' && s != 't' || slicesOf(thread) != before {
			return true
		}
	}
	return false
}

// alive reports whether there is more of the worker than its entry in /proc.
func (w *worker) alive() bool {
	s := sandbox.StateOf(w.pid)
	return s != 0 && !dead(s)
}

// state is the letter of a thread in its directory in /proc, 0 when there is none.
func state(dir string) byte {
	data, err := os.ReadFile(dir + "/stat") // "7 (a name) S 1 …"
	if at := bytes.LastIndexByte(data, ')'); err == nil && at > 0 && at+2 < len(data) {
		return data[at+2]
	}
	return 0
}

// slicesOf is how often a thread was put on a core, "" where nobody counts.
func slicesOf(dir string) string {
	data, _ := os.ReadFile(dir + "/schedstat")
	if fields := bytes.Fields(data); len(fields) == 3 {
		return string(fields[2])
	}
	return ""
}

// stopped reports whether every thread of the processes stands. A thread can be in a long
// system call that does not look at signals, while the first one stands.
func stopped(pids []int) bool {
	return !slices.ContainsFunc(threadStates(pids), func(s byte) bool { return s != 'T' && s != 't' && s != 0 && !dead(s) })
}

// threadStates are the states of all threads of the processes.
func threadStates(pids []int) (states []byte) {
	for _, pid := range pids {
		tasks := "/proc/" + strconv.Itoa(pid) + "/task/"
		threads, _ := os.ReadDir(tasks)
		for _, t := range threads {
			states = append(states, state(tasks+t.Name()))
		}
	}
	return states
}

func thaw(pids []int) {
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGCONT)
	}
}

// foreign lists the living processes of the worker's.
func (s *Session) foreign() (pids []int) {
	for _, d := range s.workers() {
		if !dead(d.State) {
			pids = append(pids, d.PID)
		}
	}
	return pids
}

// workers are all processes of the workers' sandbox but its first one and the
// interpreter that they come from. Where that sandbox has no process namespace,
// those that left it are below this process.
func (s *Session) workers() []sandbox.Descendant {
	first := s.parent.process.PID()
	from := os.Getpid()
	ours := map[int]bool{first: true, s.parent.pid: s.notForked == "", s.judge.process.PID(): true}
	if s.notForked != "" && !s.parent.process.Sealed() {
		ours[first] = false // it has become the worker
	}
	if s.parent.process.Sealed() {
		from = first
	} else {
		for _, d := range sandbox.Descendants(s.judge.process.PID()) {
			ours[d.PID] = true
		}
	}
	return slices.DeleteFunc(sandbox.Descendants(from), func(d sandbox.Descendant) bool { return ours[d.PID] })
}

// dead reports whether nothing of a process in this state is left but its entry in
// /proc.
func dead(state byte) bool { return state == 'Z' || state == 'X' }

// bury waits for the dead that were handed to this process: their names could be
// read as long as nobody does.
func (s *Session) bury() {
	if s.parent.process.Sealed() {
		return
	}
	for _, d := range s.workers() {
		if dead(d.State) && d.Parent == os.Getpid() && d.PID != s.parent.process.PID() { // for which somebody waits
			unix.Wait4(d.PID, nil, unix.WNOHANG|unix.WALL, nil)
		}
	}
}

// end ends the worker and everything that it left, and learns how it ended.
//
// Error: something cannot be killed, or the parent is gone.
func (w *worker) end(ctx context.Context) error {
	w.starved = w.atStart.waited(w.accounts()).waitForOthers() > time.Since(w.begun)/3
	if w.link.poll()&unix.POLLHUP != 0 || w.left() { // it is about to be gone by itself: let it
		w.learn(context.WithoutCancel(ctx), leaveLimit)
	}
	lived := !w.ended && w.alive()
	w.link.hangUp()
	err := w.s.EndStrangers(killLimit)
	w.learn(context.WithoutCancel(ctx), killLimit)
	w.swept = lived && w.state.Exit == -int(syscall.SIGKILL)
	w.state.OutOfMemory = w.wantedMemory()
	w.release()
	w.s.used = w.s.used || !w.s.clean(ctx)
	return err
}

// leaveLimit is how long a worker that hung up may take to end by itself, so that
// its own status is told.
const leaveLimit = 2 * time.Second

// learn asks the parent how the worker ended, which must have.
func (w *worker) learn(ctx context.Context, limit time.Duration) {
	if w.ended {
		return
	}
	if w.s.notForked != "" { // it was the sandbox's own program
		select {
		case <-w.s.parent.gone:
			w.ended, w.state = true, w.s.parent.state
		case <-time.After(limit):
		}
		return
	}
	raw, _, err := w.s.parent.link.receive(ctx, limit)
	if err != nil || len(raw) == 0 || raw[0] != 'E' {
		w.state.Exit = -int(syscall.SIGKILL)
		return
	}
	w.ended = true
	if told, err := decodeTexts(raw[1:]); err == nil && len(told) == 4 {
		w.state.Exit, _ = strconv.Atoi(told[0])
		user, _ := strconv.ParseInt(told[1], 10, 64)
		system, _ := strconv.ParseInt(told[2], 10, 64)
		w.state.User, w.state.System = time.Duration(user), time.Duration(system)
		w.state.MaxRSS, _ = strconv.ParseInt(told[3], 10, 64)
	}
}

// EndStrangers ends every process below this one that is not of the judge's or of
// the workers' parent, as sandbox.EndDescendants does it: it kills what foreign
// lists, again until there is none.
//
// Error: some are still there after limit.
func (s *Session) EndStrangers(limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		pids := s.foreign()
		if len(pids) == 0 {
			s.bury()
			if s.parent.pid > 0 {
				syscall.Kill(s.parent.pid, syscall.SIGCONT) // they may have stopped it
			}
			return nil
		}
		for _, pid := range pids { // stopped first, so that none forks while the others die
			syscall.Kill(pid, syscall.SIGSTOP)
		}
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if time.Now().After(deadline) {
			err := fmt.Errorf("processes of the submission cannot be killed: %d", pids)
			s.parent.sandbox.Survived(err)
			return err
		}
		time.Sleep(wait)
	}
}

// reopen replaces the parent by a new one; with a profile, by one that the
// profiler starts, in these directories.
func (s *Session) reopen(ctx context.Context, profile *plan.Profile, dirs sandbox.Directories) error {
	err := s.parent.close()
	if s.parent != nil {
		s.reported = s.reported.Join(s.parent.sandbox.Report())
	}
	s.parent = nil
	if err != nil {
		return err
	}
	return s.openParent(ctx, imports(s.o.Payload), profile, dirs)
}

// clean has the parent empty what all workers could write, and reports whether nothing
// stays. Otherwise the parent's sandbox must not be used again.
func (s *Session) clean(ctx context.Context) bool {
	for _, dir := range []string{s.parent.dirs.Work, s.parent.dirs.Home, s.parent.dirs.Temp} {
		if emptyDirectory(dir) != nil {
			return false
		}
	}
	if now, ok := standingOf(s.parent.pid); !ok || now != s.standing {
		return false
	}
	s.parent.sandbox.Sweep()
	directories := []string{}
	if s.parent.process.Sealed() { // else they are the machine's
		directories = []string{"/tmp", "/dev/shm"}
	}
	answer, err := s.parent.ask(context.WithoutCancel(ctx), time.Minute, map[string]any{"op": "clean", "directories": directories, "keep": s.parent.dirs.Dir}, nil)
	if err != nil {
		return false
	}
	told, err := decodeTexts(answer[1:])
	return err == nil && answer[0] == 'C' && len(told) == 1 && told[0] == "0"
}

// A standing is what a process of the same user can change of another, and what a
// fork then has from its parent: on which cores it may run, and how urgently. The
// sandbox refuses the rest (limits).
type standing struct {
	cores    unix.CPUSet
	priority string // nice, real-time priority and policy
	io       uintptr
}

// standingOf returns that of a process, ok false when it is gone.
func standingOf(pid int) (s standing, ok bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:])) // from the third on
	if err != nil || len(fields) < 39 || unix.SchedGetaffinity(pid, &s.cores) != nil {
		return s, false
	}
	s.priority = strings.Join([]string{fields[16], fields[37], fields[38]}, " ")
	const ofProcess = 1
	s.io, _, _ = unix.Syscall(unix.SYS_IOPRIO_GET, ofProcess, uintptr(pid), 0)
	return s, true
}

// emptyDirectory removes everything in a directory.
func emptyDirectory(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, sandbox.RemoveTree(filepath.Join(dir, e.Name())))
	}
	return err
}

// wantedMemory reports whether the kernel, or the sandbox where no control group
// counts, ended the worker for want of memory. A count with strangers in it says
// nothing of a worker that the sweep has ended.
func (w *worker) wantedMemory() bool {
	if w.state.Exit != -int(syscall.SIGKILL) {
		return false
	}
	if n, alone := w.s.parent.sandbox.OOMKills(); n > w.killed && (alone || !w.swept) {
		return true
	}
	return w.s.parent.ended() && w.s.parent.state.OutOfMemory
}
