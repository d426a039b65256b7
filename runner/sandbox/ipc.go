package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// System V objects and POSIX message queues outlive the processes that made
// them. A sandbox of namespaces takes its own with it. Without one:
//
//   - a submission with a user of its own may make System V objects, which are
//     found by that user afterwards and removed;
//   - under the runner's user nothing tells its objects from those of the next
//     job on the machine, so it may make none;
//   - message queues of POSIX can be listed only where they are mounted, so none
//     may be made. (Semaphores and shared memory of POSIX are files in /dev/shm.)

// An ipcKind is a table of System V objects.
type ipcKind struct {
	name, table         string
	call, second, third uintptr // the system call that removes one, and what follows its number
}

var ipcKinds = []ipcKind{
	{"shared memory", "/proc/sysvipc/shm", unix.SYS_SHMCTL, unix.IPC_RMID, 0},
	{"semaphores", "/proc/sysvipc/sem", unix.SYS_SEMCTL, 0, unix.IPC_RMID},
	{"message queue", "/proc/sysvipc/msg", unix.SYS_MSGCTL, unix.IPC_RMID, 0},
}

func (k ipcKind) remove(id int) error {
	if _, _, errno := unix.RawSyscall(k.call, uintptr(id), k.second, k.third); errno != 0 {
		return errno
	}
	return nil
}

// sweepIPC removes every System V object that the user made, whose processes
// are all gone.
//
// Error: one is still there, or nobody can tell.
func sweepIPC(uid int) error {
	var faults []error
	for _, kind := range ipcKinds {
		ids, err := madeBy(kind.table, uid)
		if errors.Is(err, os.ErrNotExist) {
			continue // a kernel without them
		}
		if err == nil && len(ids) > 0 {
			err = as(uid, func() (err error) {
				for _, id := range ids {
					err = errors.Join(err, kind.remove(id))
				}
				return err
			})
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("removing System V %s: %w", kind.name, err))
		}
	}
	return errors.Join(faults...)
}

// madeBy lists the objects of a table that the user made, whomever they were
// given to since.
func madeBy(table string, uid int) (ids []int, err error) {
	f, err := os.Open(table)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Scan()
	maker := slices.Index(strings.Fields(lines.Text()), "cuid") // "key shmid perms … cuid …"
	if maker < 0 {
		return nil, fmt.Errorf("%s: no column cuid in %q", table, lines.Text())
	}
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) <= maker {
			return nil, fmt.Errorf("%s: line %q", table, lines.Text())
		}
		id, idErr := strconv.Atoi(fields[1])
		cuid, cuidErr := strconv.ParseUint(fields[maker], 10, 32)
		if err := errors.Join(idErr, cuidErr); err != nil {
			return nil, fmt.Errorf("%s: %w", table, err)
		}
		if int(cuid) == uid {
			ids = append(ids, id)
		}
	}
	return ids, lines.Err()
}

// as calls f on a thread whose effective user is uid: inside a container root
// may become the maker of an object, and may not remove that of another. Nobody
// else of that user is alive to make use of the thread.
func as(uid int, f func() error) error {
	done := make(chan error, 1)
	go func() { // ends with f; its thread with it, for it is never unlocked
		runtime.LockOSThread()
		const keep = ^uintptr(0)
		// By the bare call, which changes this thread alone.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
			done <- fmt.Errorf("becoming user %d: %w", uid, errno)
			return
		}
		done <- f()
	}()
	return <-done
}
