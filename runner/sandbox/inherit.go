package sandbox

import (
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// closeInherited marks every descriptor from first on to be closed in programs
// that this process starts or becomes. A file or directory that its own parent
// left open (a lock, a log) would otherwise be a way out of the sandbox. What a
// program is to get is passed one by one.
//
// Error: the system has neither close_range (Linux 5.11) nor a /proc.
func closeInherited(first int) error {
	if unix.CloseRange(uint(first), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
