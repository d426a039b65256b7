package runner

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/sandbox"
)

// usage is what a process used, with those of its children that it waited for.
type usage struct {
	user, system time.Duration
	peak         int64 // resident memory of the largest of them, in bytes
}

func usageOf(s sandbox.State) usage { return usage{s.User, s.System, s.MaxRSS} }

// ownPeak is the most memory that this process has had resident, in bytes.
func ownPeak() int64 {
	var self unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &self) != nil {
		return 0
	}
	return self.Maxrss << 10 // Linux counts KiB
}
