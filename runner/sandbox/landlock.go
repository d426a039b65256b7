package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/schema"
)

// Rights on files, by the version of Landlock that knows them.
const (
	landlockRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	landlockWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	// onFiles are the rights that a rule about a single file may give.
	onFiles = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// landlockRights returns every right that version abi of Landlock can hold back.
func landlockRights(abi int) uint64 {
	rights := uint64(landlockRead | landlockWrite)
	if abi >= 2 {
		rights |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		rights |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 5 {
		rights |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return rights
}

// landlockABI returns the kernel's version of Landlock, 0 without it.
func landlockABI() int {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	n, _, err := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if err != 0 {
		return 0
	}
	return int(n)
}

// landlock does for files, processes and TCP what namespaces would do, as far
// as the kernel's version of Landlock can.
func (i *initProcess) landlock() {
	// The guards that a process cannot set for itself.
	i.Missing[schema.GuardProcesses] = "no process namespace"
	if !alone() { // a container without a network has no way out
		i.Missing[schema.GuardNetwork] = "no network namespace; TCP alone can be closed"
	}
	abi := landlockABI()
	err := errors.New("the kernel has no Landlock")
	if abi > 0 {
		err = i.restrict(abi)
	}
	if err != nil {
		i.Missing[schema.GuardFiles] = err.Error()
		i.Missing[schema.GuardDevices] = err.Error()
	}
	if (err != nil || abi < 6) && !i.ID.Own { // another user cannot signal the runner anyway
		i.Missing[schema.GuardSignals] = fmt.Sprintf("the same user and no signal scope: Landlock version %d, want 6", abi)
	}
}

// alone reports whether this machine, or container, has no network device but
// the loopback.
func alone() bool {
	entries, err := os.ReadDir("/sys/class/net")
	return err == nil && !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() != "lo" })
}

func (i *initProcess) restrict(abi int) error {
	rights := landlockRights(abi)
	attr := unix.LandlockRulesetAttr{Handled_access_fs: rights}
	size := unsafe.Sizeof(attr.Handled_access_fs)
	if abi >= 4 {
		size = unsafe.Offsetof(attr.Scoped)
		if !i.TCP {
			attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		}
	}
	if abi >= 6 {
		size = unsafe.Offsetof(attr.Quiet_access_fs)
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("restricting by landlock: %w", errno)
	}
	defer unix.Close(int(fd))
	rules := rules{fd: int(fd), rights: rights}
	i.allow(&rules)
	if rules.err != nil {
		return fmt.Errorf("restricting by landlock: %w", rules.err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("restricting by landlock: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("restricting by landlock: %w", errno)
	}
	return nil
}

// allow turns the plan's mounts into rules.
func (i *initProcess) allow(r *rules) {
	for _, m := range i.Mounts {
		if m.Kind == kindHide {
			r.hidden = append(r.hidden, m.Target)
		}
	}
	const use = landlockRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	r.add("/proc", landlockRead|unix.LANDLOCK_ACCESS_FS_WRITE_FILE) // a thread's name, oom_score_adj
	r.add("/dev/shm", r.rights)
	for _, m := range i.Mounts {
		switch {
		case m.Kind == kindWrite:
			r.add(m.Source, r.rights)
		case m.Kind == kindDevice, below(m.Source, "/dev"):
			r.add(m.Source, use)
		case m.Kind == kindRead:
			r.add(m.Source, landlockRead)
		}
	}
}

// rules adds paths to a ruleset and keeps the first error.
type rules struct {
	fd     int
	rights uint64
	hidden []string
	err    error
}

// add allows rights below path, except for what is hidden there. A path that
// does not exist or is closed to this user needs no rule.
func (r *rules) add(path string, rights uint64) {
	if r.err != nil || slices.Contains(r.hidden, path) {
		return
	}
	if slices.ContainsFunc(r.hidden, func(h string) bool { return strings.HasPrefix(h, path+"/") }) {
		entries, _ := os.ReadDir(path)
		for _, e := range entries {
			if e.Type()&os.ModeSymlink != 0 {
				continue // a rule would open what it leads to
			}
			r.add(filepath.Join(path, e.Name()), rights)
		}
		return
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if r.err = unix.Fstat(fd, &st); r.err != nil {
		return
	}
	rights &= r.rights
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= onFiles
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	const pathBeneath = 1 // LANDLOCK_RULE_PATH_BENEATH
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd), pathBeneath, uintptr(unsafe.Pointer(&attr)), 0, 0, 0); errno != 0 {
		r.err = fmt.Errorf("allowing %s: %w", path, errno)
	}
}
