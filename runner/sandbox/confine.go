package sandbox

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/schema"
)

// confine takes every way to gain privileges from this thread and what it
// starts.
func (i *initProcess) confine() error {
	for c := uintptr(0); unix.Prctl(unix.PR_CAPBSET_READ, c, 0, 0, 0) == nil; c++ {
		// A process without CAP_SETPCAP may not, and has no capability to lose.
		unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
	}
	unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	if err := dropCapabilities(i.Means == schema.MeansProcess); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up new privileges: %w", err)
	}
	shared := i.Means == schema.MeansProcess && !i.ID.Own
	if err := filterCalls(shared); err != nil && shared { // otherwise no guard depends on it
		i.Missing[schema.GuardSurvivors] = fmt.Sprintf("System V objects cannot be refused: %v", err)
	}
	return nil
}

// makingCalls make System V objects, see ipc.go.
var makingCalls = []uint32{unix.SYS_SHMGET, unix.SYS_SEMGET, unix.SYS_MSGGET}

// dropCapabilities gives up all of them, or, where this process has to go on,
// those that its children would inherit.
func dropCapabilities(all bool) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	err := unix.Capget(&header, &caps[0])
	for n := range caps {
		caps[n].Inheritable = 0
		if all {
			caps[n] = unix.CapUserData{}
		}
	}
	if err == nil {
		err = unix.Capset(&header, &caps[0])
	}
	if err != nil {
		return fmt.Errorf("giving up capabilities: %w", err)
	}
	return nil
}

// refusedCalls are system calls that no kernel submission needs, and through
// which programs have broken into the kernel or out of a namespace.
var refusedCalls = []uint32{
	unix.SYS_UNSHARE, unix.SYS_SETNS,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_BPF, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_KEXEC_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN,
	unix.SYS_SWAPON, unix.SYS_REBOOT, unix.SYS_ACCT, unix.SYS_QUOTACTL,
}

// unknownCalls answer ENOSYS, upon which programs fall back to older ones.
var unknownCalls = []uint32{unix.SYS_CLONE3, unix.SYS_IO_URING_SETUP}

// filterCalls installs the seccomp filter. Calls of a foreign architecture
// (32-bit, x32) are refused: their numbers mean something else. shared: so is
// making what outlives the program.
func filterCalls(shared bool) error {
	arch := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if arch == 0 {
		return fmt.Errorf("no filter for %s", runtime.GOARCH)
	}
	refused := refusedCalls
	if shared {
		refused = slices.Concat(refused, makingCalls)
	}
	filter := callFilter(arch, refused)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
	runtime.KeepAlive(filter)
	return err
}

// callFilter is the filter's program over struct seccomp_data: the call's
// number at 0, the architecture at 4, the first argument's low half at 16.
func callFilter(arch uint32, refused []uint32) []unix.SockFilter {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		least = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		anyOf = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		give  = unix.BPF_RET | unix.BPF_K
		x32   = 0x40000000
	)
	const (
		allow   = unix.SECCOMP_RET_ALLOW
		refuse  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		unknown = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	)
	f := []unix.SockFilter{
		{Code: load, K: 4},
		{Code: equal, Jt: 1, K: arch}, {Code: give, K: refuse},
		{Code: load, K: 0},
		{Code: least, Jf: 1, K: x32}, {Code: give, K: refuse},
	}
	for _, call := range refused {
		f = append(f, unix.SockFilter{Code: equal, Jf: 1, K: call}, unix.SockFilter{Code: give, K: refuse})
	}
	for _, call := range unknownCalls {
		f = append(f, unix.SockFilter{Code: equal, Jf: 1, K: call}, unix.SockFilter{Code: give, K: unknown})
	}
	for _, call := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		f = append(f,
			unix.SockFilter{Code: equal, Jf: 4, K: call},
			unix.SockFilter{Code: load, K: 16},
			// To the machine's host, past every namespace.
			unix.SockFilter{Code: equal, Jf: 1, K: unix.AF_VSOCK},
			unix.SockFilter{Code: give, K: refuse},
			unix.SockFilter{Code: give, K: allow},
		)
	}
	return append(f,
		unix.SockFilter{Code: equal, Jf: 4, K: unix.SYS_CLONE},
		unix.SockFilter{Code: load, K: 16},
		unix.SockFilter{Code: anyOf, Jf: 1, K: unix.CLONE_NEWUSER},
		unix.SockFilter{Code: give, K: refuse},
		unix.SockFilter{Code: give, K: allow},
		// Another process's limits, of the same user: the runner's, or those of
		// the sandbox's first process, which watches over the memory.
		unix.SockFilter{Code: equal, Jf: 2, K: unix.SYS_PRLIMIT64},
		unix.SockFilter{Code: load, K: 16},
		unix.SockFilter{Code: equal, Jf: 1, K: 0},
		unix.SockFilter{Code: give, K: allow},
		unix.SockFilter{Code: give, K: refuse},
	)
}

// checkSecrets tries, from inside of the finished sandbox, to read the
// environment of what started it: the payload may be there.
func (i *initProcess) checkSecrets() {
	for pid := os.Getppid(); pid > 0; {
		name := strconv.Itoa(pid)
		if data, err := os.ReadFile("/proc/" + name + "/environ"); err == nil && len(data) > 0 {
			i.Missing[schema.GuardSecrets] = "the environment of process " + name + " can be read"
		}
		process, _ := readProcess(pid, make([]byte, 512))
		pid = process.Parent // 0 at the top
	}
}
