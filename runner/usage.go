package runner

import (
	"time"

	"github.com/gpu-mode/kbgen/runner/sandbox"
)

// usage is what a process used, with those of its children that it waited for.
type usage struct {
	user, system time.Duration
	peak         int64 // resident memory of the largest of them, in bytes
}

func usageOf(s sandbox.State) usage { return usage{s.User, s.System, s.MaxRSS} }
