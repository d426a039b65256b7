package sandbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/schema"
)

// setupLimit bounds the building of one sandbox.
const setupLimit = 30 * time.Second

// A Command is one program to run in a sandbox.
type Command struct {
	Path        string // absolute, or relative to Dir; "": report the guards, and end
	Args        []string
	Env         []string // all that the program gets
	Dir         string
	Directories Directories // that it may write
	Stdout      *os.File    `json:"-"` // nil: thrown away
	Stderr      *os.File    `json:"-"`
	Files       []*os.File  `json:"-"` // the program's descriptors from 3 on, three at most

	received []int // by the sandbox's first process: the descriptors of Stdout, Stderr and Files
}

// A Process is a running sandbox.
type Process struct {
	cmd      *exec.Cmd
	sandbox  *Sandbox
	requests *os.File
	status   *os.File
	lines    *json.Decoder
	begun    time.Time
	inside   bool  // the program has a process above it in its sandbox
	oom      int64 // killed for want of memory before it began
}

// A State is how a program ended.
type State struct {
	Exit         int           // exit status, or the negative number of the signal
	Wall         time.Duration // from the program's start, not the sandbox's
	User, System time.Duration // with the children it waited for
	MaxRSS       int64         // bytes, of the largest process
	OutOfMemory  bool          // something in the sandbox was killed for want of memory, or at its limit
	OOMKills     int64         // processes killed for want of memory meanwhile, see [Sandbox.OOMKills]
}

// A StartError says that the sandbox was built and its program cannot be
// started.
type StartError struct {
	Text  string
	Errno syscall.Errno // what the kernel said; 0: nothing
}

func (e *StartError) Error() string { return e.Text }

// errSetup marks a means that this machine refuses.
type errSetup struct{ why string }

func (e *errSetup) Error() string { return e.why }

// Ready begins to build the sandbox of the next [Sandbox.Start], while the
// program of the last one runs or the caller does something else. It does
// nothing where a process of the runner's would wait within reach of a
// submission's: without namespaces, and when an ordinary user's sandbox has no
// /proc of its own. Whether the sandbox could be built, Start says.
func (s *Sandbox) Ready() {
	if s.spare != nil || len(s.untried) == 0 || s.untried[0] == schema.MeansProcess {
		return
	}
	if s.report != nil && !slices.Contains(s.report.Held, schema.GuardProcesses) {
		return // it sees the runner in /proc, and opened lets it read there
	}
	s.spare, _ = s.launch(s.untried[0])
}

// Start builds a sandbox and starts the program in it, by the strongest means
// that works. It returns when the program is running.
//
// Errors: *[WeakError] when no sandbox of the level asked for can be had, and
// *[StartError]; nothing of the program ran then. Any other is the machine's.
func (s *Sandbox) Start(c Command) (*Process, error) {
	var weak *schema.Sandbox
	for len(s.untried) > 0 {
		means := s.untried[0]
		p, got, err := s.try(means, c)
		refused, isRefused := errors.AsType[*errSetup](err)
		switch {
		case isRefused && s.report != nil:
			// It worked before: an accident must not lead to a weaker sandbox.
			return nil, fmt.Errorf("building a sandbox by %s once more: %s", means, refused.why)
		case isRefused:
			s.why = append(s.why, means+": "+refused.why)
		case err != nil:
			return nil, err
		case p == nil:
			weak = strongest(weak, got)
		default:
			s.report = s.report.Join(got)
			return p, nil
		}
		s.untried = s.untried[1:]
	}
	return nil, &WeakError{Minimum: s.o.Minimum, Best: weak, Why: s.why}
}

func strongest(a, b *schema.Sandbox) *schema.Sandbox {
	if a == nil || b.AtLeast(a.Level) && a.Level != b.Level {
		return b
	}
	return a
}

// try builds a sandbox by one means. Without an error and a process, the
// sandbox was built, and left because it is too weak or because there is
// nothing to run.
func (s *Sandbox) try(means string, c Command) (*Process, *schema.Sandbox, error) {
	if p := s.spare; p != nil {
		s.spare = nil
		got, err := p.enter(means, c)
		if _, refused := errors.AsType[*errSetup](err); !refused { // refused: the last program may have starved it; build it again
			return p.unless(got, err, c)
		}
		p.abandon()
	}
	p, err := s.launch(means)
	if err != nil {
		return nil, nil, err
	}
	got, err := p.enter(means, c)
	return p.unless(got, err, c)
}

// unless returns the process, and abandons it when it does not run the program.
func (p *Process) unless(got *schema.Sandbox, err error, c Command) (*Process, *schema.Sandbox, error) {
	if err == nil && c.Path != "" && got.AtLeast(p.sandbox.o.Minimum) {
		return p, got, nil
	}
	p.abandon()
	return nil, got, err
}

// enter has the sandbox run the program, if it has the level that it must have.
func (p *Process) enter(means string, c Command) (*schema.Sandbox, error) {
	p.begun = time.Now()
	p.oom, _ = p.sandbox.OOMKills()
	err := sendRequest(p.requests, c)
	p.requests.Close()
	var first message
	if err == nil {
		first, err = p.next(time.Now().Add(setupLimit))
	}
	switch {
	case first.Setup != "":
		return nil, &errSetup{first.Setup}
	case err != nil:
		return nil, &errSetup{fmt.Sprintf("its first process said nothing: %v", err)}
	case first.Exec != "":
		return nil, &StartError{first.Exec, first.Errno}
	}
	if why, ok := first.Missing[schema.GuardProcesses]; ok && len(p.sandbox.why) > 0 {
		first.Missing[schema.GuardProcesses] = why + " (" + strings.Join(p.sandbox.why, "; ") + ")"
	}
	got := schema.NewSandbox(means, first.Missing)
	if p.inside || c.Path == "" || !got.AtLeast(p.sandbox.o.Minimum) {
		return got, nil
	}
	// A successful exec closes the pipe without a message.
	second, err := p.next(time.Now().Add(setupLimit))
	if err == nil || !errors.Is(err, io.EOF) {
		return nil, &StartError{cmp.Or(second.Exec, fmt.Sprint(err)), second.Errno}
	}
	p.begun = time.Now()
	return got, nil
}

// launch starts the sandbox's first process, in the job's control group if it can.
func (s *Sandbox) launch(means string) (*Process, error) {
	p, err := s.launchOnce(means)
	if err == nil || s.group.fd == nil {
		return p, err
	}
	s.group.leave(err)
	return s.launchOnce(means)
}

func (s *Sandbox) launchOnce(means string) (*Process, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("opening a pipe: %w", err)
	}
	defer w.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("opening a pair of sockets: %w", err)
	}
	requests, theirs := os.NewFile(uintptr(pair[0]), "requests"), os.NewFile(uintptr(pair[1]), "requests")
	defer theirs.Close()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{initName}, Env: append([]string{"GOMAXPROCS=1"}, detectorEnviron...), // fewer threads to start
		ExtraFiles: []*os.File{w, theirs}, SysProcAttr: s.attributes(means),
	}
	p := &Process{cmd: cmd, sandbox: s, requests: requests, status: r, lines: json.NewDecoder(r), inside: means != schema.MeansProcess}
	if group := s.group.fd; group != nil { // of version 2
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
	}
	if means == schema.MeansUserNamespace {
		defer opened()()
	}
	if err := cmd.Start(); err != nil {
		r.Close()
		requests.Close()
		return nil, &errSetup{err.Error()}
	}
	if err := send(requests, s.plan(means)); err != nil { // made while that process comes to life
		p.abandon()
		return nil, &errSetup{fmt.Sprintf("handing its first process the plan: %v", err)}
	}
	return p, nil
}

// opened makes this process readable to others of its user until the returned
// function is called: the kernel lets nobody but root write the user map of a
// child that is still a copy of an undumpable process. A process of a submission
// that lives at that time is in a user namespace below this one, and the kernel
// lets no process read one above its own namespace.
func opened() (again func()) {
	was, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil || was != 0 {
		return func() {}
	}
	unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	return func() { unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
}

func (s *Sandbox) attributes(means string) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	switch means {
	case schema.MeansNamespaces:
		attr.Cloneflags = namespaces
	case schema.MeansUserNamespace:
		attr.Cloneflags = namespaces | unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: s.id.UID, HostID: s.id.UID, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: s.id.GID, HostID: s.id.GID, Size: 1}}
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP}
	}
	return attr
}

func (p *Process) next(deadline time.Time) (message, error) {
	var m message
	p.status.SetReadDeadline(deadline)
	err := p.lines.Decode(&m)
	return m, err
}

// abandon ends a sandbox that is not going to be used.
func (p *Process) abandon() {
	p.Kill()
	p.cmd.Wait()
	p.status.Close()
	p.requests.Close()
}

// Kill ends everything in the sandbox, or, without a process namespace, the
// program's process group. [Process.Wait] returns after it.
func (p *Process) Kill() { syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

// Sealed reports whether nothing of the sandbox is left when [Process.Wait]
// returns: the kernel ends a process namespace with its first process.
func (p *Process) Sealed() bool { return p.inside }

// PID is the number of the sandbox's first process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Wait returns when the program has ended; with namespaces, when every process
// of its sandbox is gone.
//
// Error: the sandbox broke down while the program ran.
func (p *Process) Wait() (State, error) {
	p.cmd.Wait() // what it says is in ProcessState
	wall := time.Since(p.begun)
	defer p.status.Close()
	if p.cmd.ProcessState == nil { // somebody else waited for it
		return State{}, errors.New("the system tells nothing about an ended process")
	}
	used, _ := p.cmd.ProcessState.SysUsage().(*syscall.Rusage)
	ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || used == nil {
		return State{}, errors.New("the system tells nothing about an ended process")
	}
	s := stateOf(ws, used, wall)
	kills, alone := p.sandbox.OOMKills()
	s.OOMKills = kills - p.oom
	s.OutOfMemory = alone && s.OOMKills > 0
	if !p.inside {
		return s, nil
	}
	m, err := p.next(time.Now().Add(time.Second)) // the writer is dead: this does not wait
	switch {
	case err == nil && m.Ended != nil:
		m.Ended.OutOfMemory = m.Ended.OutOfMemory || s.OutOfMemory
		m.Ended.OOMKills = s.OOMKills
		return *m.Ended, nil
	case err == nil && m.Exec != "":
		return s, errors.New(m.Exec)
	case !ws.Signaled() && s.Exit == 0:
		s.Exit = -int(syscall.SIGKILL) // the first process was killed before it could report
	}
	return s, nil
}

func stateOf(ws syscall.WaitStatus, used *syscall.Rusage, wall time.Duration) State {
	s := State{Exit: ws.ExitStatus(), Wall: wall, User: time.Duration(used.Utime.Nano()), System: time.Duration(used.Stime.Nano()), MaxRSS: used.Maxrss << 10}
	if ws.Signaled() {
		s.Exit = -int(ws.Signal())
	}
	return s
}

// Words describes a report in one line, for a log.
func Words(s *schema.Sandbox) string {
	text := s.Level + ", by " + s.Means
	if len(s.Missing) == 0 {
		return text
	}
	var missing []string
	for _, m := range s.Missing {
		missing = append(missing, m.Name)
	}
	return text + "; missing: " + strings.Join(missing, ", ")
}
