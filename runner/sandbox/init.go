package sandbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/schema"
)

// initName is the first argument of a sandbox's first process. A person who types
// it gets an error about a missing descriptor.
const initName = "kbrun-sandbox"

// Descriptors of the first process, beside the standard ones.
const (
	statusFD   = 3
	requestsFD = 4
)

// setupFailed is the exit status of a first process that wrote the reason to
// its status pipe.
const setupFailed = 71

// A message is one line on the status pipe.
type message struct {
	Missing map[string]string `json:",omitempty"` // the sandbox stands; what it lacks
	Setup   string            `json:",omitempty"` // the sandbox does not stand, and why
	Exec    string            `json:",omitempty"` // the program cannot be started, and why
	Errno   syscall.Errno     `json:",omitempty"` // with Exec: what the kernel said
	Ended   *State            `json:",omitempty"`
}

// Main builds a sandbox and runs its program when this process was started for
// that, and never returns then. In any other process it does nothing.
func Main() {
	if len(os.Args) == 0 || os.Args[0] != initName {
		return
	}
	runtime.LockOSThread()                 // some of what follows holds for one thread
	inheritErr := closeInherited(statusFD) // once more: this is what the program inherits from
	// Nobody in the sandbox may look in here: the request holds the program's
	// whole environment, and with a user namespace the user is the same.
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	i := &initProcess{status: json.NewEncoder(os.NewFile(statusFD, "status"))}
	if _, err := receive(requestsFD, &i.plan); err != nil {
		fmt.Fprintf(os.Stderr, "%s: error: reading the plan: %s\n", initName, err)
		os.Exit(setupFailed)
	}
	if inheritErr != nil {
		i.status.Encode(message{Setup: "keeping open files from the program: " + inheritErr.Error()})
		os.Exit(setupFailed)
	}
	os.Exit(i.run())
}

type initProcess struct {
	plan
	lost   string // why the job's control group could not be joined
	status *json.Encoder
}

func (i *initProcess) run() int {
	o, err := i.setup()
	switch {
	case err == io.EOF:
		return 0
	case err != nil:
		i.status.Encode(message{Setup: err.Error()})
		return setupFailed
	case !schema.NewSandbox(i.Means, i.Missing).AtLeast(i.Minimum), o.Path == "":
		i.status.Encode(message{Missing: i.Missing})
		return 0
	case i.Means == schema.MeansProcess:
		err = i.become(o)
	default:
		err = i.start(o)
	}
	if err != nil {
		m := message{Exec: err.Error()}
		errors.As(err, &m.Errno)
		i.status.Encode(m)
		return setupFailed
	}
	return 0
}

// bound keeps the guard on memory where the control group does not: by counting
// where there is a process namespace, else by the machine's own limit.
func (i *initProcess) bound() {
	if i.Unbound == "" && i.lost == "" {
		return
	}
	_, shared := i.Missing[schema.GuardProcesses]
	switch {
	case i.Means != schema.MeansProcess && !shared:
		i.Watch = true
	case i.Bounded:
	default:
		i.Missing[schema.GuardMemory] = cmp.Or(i.Unbound, i.lost)
	}
}

// setup builds the sandbox around this process as far as it can without knowing
// the program, waits for the request, and finishes. A step that fails and costs
// no more than a guard is noted in Missing.
//
// Errors: io.EOF when there is nothing to run; otherwise there is no sandbox.
func (i *initProcess) setup() (*Command, error) {
	i.join()
	if i.Means == schema.MeansProcess {
		r, err := receiveRequest(requestsFD)
		if err != nil {
			return nil, err
		}
		i.Mounts = append(i.Mounts, r.Directories.mounts()...) // they are Landlock's rules
		return r, i.close()
	}
	unix.Sethostname([]byte("localhost")) // a name that can be resolved
	// Without the capability for it, in some containers, the rest still holds.
	if err := loopbackUp(); err != nil && i.TCP {
		return nil, err
	}
	if err := i.mountAll(); err != nil {
		return nil, err
	}
	r, err := receiveRequest(requestsFD)
	if err != nil {
		return nil, err
	}
	if err := i.moveIn(r.Directories.mounts()); err != nil {
		return nil, err
	}
	return r, i.close()
}

// close takes from this process what a program of the sandbox must not have.
func (i *initProcess) close() error {
	i.bound()
	if err := i.limit(); err != nil {
		return err
	}
	if i.Means != schema.MeansProcess {
		return i.confine()
	}
	if i.ID.Own {
		if err := i.changeUser(); err != nil {
			return err
		}
	}
	i.landlock()
	if err := i.confine(); err != nil {
		return err
	}
	i.checkSecrets()
	return nil
}

// join enters the job's control group with this thread and what it starts.
// Under version 2 the process was started there.
func (i *initProcess) join() {
	for _, file := range i.Groups {
		if err := writeSelf(file); err != nil {
			i.lost = fmt.Sprintf("joining the control group: %v", err)
		}
	}
}

func writeSelf(file string) error {
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte("0")) // by this thread, which package os does not promise
	return err
}

// limit sets the resource limits, which all processes of the sandbox inherit.
func (i *initProcess) limit() error {
	processes := uint64(i.Limits.Processes)
	if i.Means == schema.MeansProcess && !i.ID.Own {
		processes *= 4 // the kernel counts those of the user, whom others share
	}
	limits := map[int]uint64{
		unix.RLIMIT_CORE:   0,
		unix.RLIMIT_FSIZE:  uint64(i.Limits.FileSize),
		unix.RLIMIT_NOFILE: uint64(i.Limits.OpenFiles),
		unix.RLIMIT_NPROC:  processes,
	}
	if i.Means == schema.MeansProcess {
		limits[unix.RLIMIT_MSGQUEUE] = 0 // see ipc.go
	}
	for resource, value := range limits {
		var now syscall.Rlimit
		if err := syscall.Getrlimit(resource, &now); err != nil {
			return fmt.Errorf("reading resource limit %d: %w", resource, err)
		}
		value = min(value, now.Max)
		// Package syscall's, for unix's would have the old limit on open files
		// put back at the exec.
		if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: value, Max: value}); err != nil {
			return fmt.Errorf("setting resource limit %d: %w", resource, err)
		}
	}
	if i.ID.UID == 0 && !i.Grouped {
		i.Missing[schema.GuardLimits] = "the number of root's processes has no limit without a control group"
	}
	return nil
}

// changeUser makes this process the submission's user, for good.
func (i *initProcess) changeUser() error {
	if err := errors.Join(syscall.Setgroups(i.ID.Groups), syscall.Setresgid(i.ID.GID, i.ID.GID, i.ID.GID)); err != nil {
		return fmt.Errorf("changing the group: %w", err)
	}
	if err := syscall.Setresuid(i.ID.UID, i.ID.UID, i.ID.UID); err != nil {
		return fmt.Errorf("changing the user: %w", err)
	}
	// Changing the user makes a process readable again, and the kernel forgets
	// that it should die with the runner.
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	if os.Getppid() != i.Runner {
		return errors.New("the runner is gone")
	}
	return nil
}

// become turns this process into the program.
func (i *initProcess) become(r *Command) error {
	i.status.Encode(message{Missing: i.Missing})
	os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) // the runner should live
	if err := os.Chdir(r.Dir); err != nil {
		return err
	}
	// The program's descriptors may stand in each other's places, so all of them
	// move away first. So does the status pipe, which reports a failed exec.
	status, err := moveAway(statusFD)
	if err != nil {
		return err
	}
	i.status = json.NewEncoder(os.NewFile(uintptr(status), "status"))
	for n, fd := range r.received {
		if r.received[n], err = moveAway(fd); err != nil {
			return err
		}
	}
	for n, fd := range r.received {
		if err := unix.Dup3(fd, n+1, 0); err != nil {
			return err
		}
	}
	return fmt.Errorf("starting %s: %w", r.Path, whileBusy(func() error { return syscall.Exec(r.Path, r.Args, r.Env) }))
}

// busyTime bounds how long a program may be busy.
const busyTime = 5 * time.Second

// whileBusy tries again what fails because a program is open for writing. It was
// just written, and a process that was forked meanwhile holds it until it executes.
func whileBusy(try func() error) error {
	for begun := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		if err := try(); err != syscall.ETXTBSY || time.Since(begun) > busyTime {
			return err
		}
	}
}

// moveAway returns a copy of fd with a number beyond the program's own.
func moveAway(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 16) }

// start runs the program as a child. From then on this process only reaps dead
// processes, and ends the sandbox when the program ends.
func (i *initProcess) start(o *Command) error {
	if !i.ID.Own {
		// The program may signal its own user's first process. Caught, not
		// ignored, because children inherit what is ignored.
		signal.Notify(make(chan os.Signal, 1))
	}
	attr := &syscall.ProcAttr{Dir: o.Dir, Env: o.Env, Files: []uintptr{0}, Sys: &syscall.SysProcAttr{Setsid: true}}
	for _, fd := range o.received {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	if i.ID.Own {
		groups := make([]uint32, len(i.ID.Groups))
		for n, g := range i.ID.Groups {
			groups[n] = uint32(g)
		}
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(i.ID.UID), Gid: uint32(i.ID.GID), Groups: groups}
	}
	begun := time.Now()
	var pid int
	err := whileBusy(func() (err error) {
		pid, err = syscall.ForkExec(o.Path, o.Args, attr)
		return err
	})
	if err != nil {
		return fmt.Errorf("starting %s: %w", o.Path, err)
	}
	i.status.Encode(message{Missing: i.Missing})
	os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte("1000"), 0) // before this process
	watch := memoryWatch{limit: i.Limits.Memory}
	if i.Watch {
		go watch.run() // ends with this process
	}
	for {
		var wait syscall.WaitStatus
		var used syscall.Rusage
		switch got, err := syscall.Wait4(-1, &wait, 0, &used); {
		case err == syscall.EINTR:
		case err != nil:
			return fmt.Errorf("waiting for %s: %w", o.Path, err)
		case got == pid:
			state := stateOf(wait, &used, time.Since(begun))
			state.OutOfMemory = watch.over.Load()
			i.status.Encode(message{Ended: &state})
			return nil
		}
	}
}
