package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchPause is the time between two counts of memory where no control group
// counts it: short enough to stop a bomb before the machine runs out, long
// enough not to show in a benchmark.
const watchPause = 50 * time.Millisecond

// A memoryWatch is the limit on a sandbox's memory without a control group. The
// sandbox's first process counts what lies in its own /proc, which shows nothing
// but the sandbox, and ends everything beyond the limit.
type memoryWatch struct {
	limit int64
	over  atomic.Bool
}

// run goes on until the process, and the sandbox with it, ends.
func (w *memoryWatch) run() {
	for range time.Tick(watchPause) {
		if used, err := w.used(); err != nil || used > w.limit { // what cannot be counted is not trusted
			w.over.Store(true)
			syscall.Kill(-1, syscall.SIGKILL) // all but this process
		}
	}
}

// used is the private memory of all processes but this one, and what lies in
// the sandbox's tmpfs. A page that is shared after a fork counts for each.
//
// Error: something cannot be counted.
func (w *memoryWatch) used() (int64, error) {
	var sum int64
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != 1 {
			n, err := private(e.Name())
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil {
			sum += int64(st.Blocks-st.Bfree) * st.Bsize
		}
	}
	return sum, nil
}

// private reads a process's resident pages, less those of files and of shared
// memory, from /proc/<pid>/statm: "size resident shared …". One that is gone
// has none.
func private(pid string) (int64, error) {
	data, err := os.ReadFile("/proc/" + pid + "/statm")
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ESRCH):
		return 0, nil
	case err != nil:
		return 0, err
	}
	var size, resident, shared int64
	if _, err := fmt.Sscan(string(data), &size, &resident, &shared); err != nil {
		return 0, fmt.Errorf("/proc/%s/statm: %w", pid, err)
	}
	return (resident - shared) * int64(os.Getpagesize()), nil
}
