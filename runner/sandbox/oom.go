package sandbox

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// OOMKills counts the processes that the kernel has ended for want of memory
// since the machine started, in whatever group; 0 when it does not say.
func OOMKills() int64 {
	f, err := os.Open("/proc/vmstat")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if count, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
			n, _ := strconv.ParseInt(count, 10, 64)
			return n
		}
	}
	return 0
}
