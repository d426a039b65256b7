package sandbox

import (
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// closeInherited keeps every descriptor from first on out of the programs that
// this process starts and becomes: files and directories that whoever started
// it had open (a lock, a log) would reach past every wall of a sandbox. What a
// program gets is handed over one by one.
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
