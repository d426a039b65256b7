package runner

import (
	"os"
	"syscall"
	"time"
)

// usage is what a process used, with those of its children that it waited for.
type usage struct {
	user, system time.Duration
	peak         int64 // resident memory of the largest of them, in bytes
}

// usageOf reads what the kernel counted; nothing for a process that has not
// been waited for.
func usageOf(state *os.ProcessState) usage {
	if state == nil {
		return usage{}
	}
	u := usage{user: state.UserTime(), system: state.SystemTime()}
	if r, ok := state.SysUsage().(*syscall.Rusage); ok {
		u.peak = r.Maxrss << 10 // Linux counts KiB
	}
	return u
}
