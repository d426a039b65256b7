package sandbox

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchPause is how often memory is counted where no control group counts it:
// often enough for a bomb to be stopped within what a machine has to spare,
// seldom enough not to be seen in a benchmark.
const watchPause = 50 * time.Millisecond

// A memoryWatch is the limit on a box's memory without a control group. The
// box's first process counts what lies in its own /proc, which shows nothing
// but the box, and ends everything beyond the limit.
type memoryWatch struct {
	limit int64
	over  atomic.Bool
}

// run goes on until the process, and the box with it, ends.
func (w *memoryWatch) run() {
	for range time.Tick(watchPause) {
		if w.used() > w.limit {
			w.over.Store(true)
			syscall.Kill(-1, syscall.SIGKILL) // all but this process
		}
	}
}

// used is the private memory of all processes but this one, and what lies in
// the box's tmpfs. A page that is shared after a fork counts for each.
func (w *memoryWatch) used() int64 {
	var sum int64
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != 1 {
			sum += private(e.Name())
		}
	}
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil {
			sum += int64(st.Blocks-st.Bfree) * st.Bsize
		}
	}
	return sum
}

// private reads a process's resident pages, less those of files and of shared
// memory, from /proc/<pid>/statm: "size resident shared …".
func private(pid string) int64 {
	data, err := os.ReadFile("/proc/" + pid + "/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 3 {
		return 0
	}
	resident, _ := strconv.ParseInt(fields[1], 10, 64)
	shared, _ := strconv.ParseInt(fields[2], 10, 64)
	return (resident - shared) * int64(os.Getpagesize())
}
