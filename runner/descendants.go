package runner

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endDescendants kills and reaps every descendant of this process, which is a
// subreaper, so that none can leave its tree by a double fork or a session of
// its own. It returns when the kernel says that there is no child left.
//
// Error: some are still there after limit, and which.
func endDescendants(limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for pause := time.Millisecond; reap(); pause = min(2*pause, 50*time.Millisecond) {
		left := descendants(os.Getpid())
		for _, p := range left { // stopped first, so that none forks while the others die
			syscall.Kill(p.pid, syscall.SIGSTOP)
		}
		for _, p := range left {
			syscall.Kill(p.pid, syscall.SIGKILL)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes of the submission cannot be killed: %s", describe(left))
		}
		time.Sleep(pause)
	}
	return nil
}

// reap collects every dead child and reports whether a living one remains.
func reap() bool {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG|unix.WALL, nil)
		switch {
		case err == syscall.EINTR, pid > 0:
		case err != nil: // ECHILD
			return false
		default:
			return true
		}
	}
}

type process struct {
	pid, parent int
	name        string
}

// descendants lists the processes below pid.
func descendants(pid int) []process {
	entries, _ := os.ReadDir("/proc")
	children := map[int][]process{}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := readStat(n); ok {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	found := children[pid]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].pid]...)
		delete(children, found[i].pid)
	}
	return found
}

// readStat reads the name and the parent from /proc/<pid>/stat:
// "7 (a name) S 1 …", where the name may hold spaces and parentheses.
func readStat(pid int) (process, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 0 || end < open {
		return process{}, false
	}
	fields := strings.Fields(string(data[end+1:]))
	if len(fields) < 2 {
		return process{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	return process{pid, parent, string(data[open+1 : end])}, err == nil
}

// describe names processes for an error.
func describe(list []process) string {
	var out []string
	for _, p := range list {
		out = append(out, fmt.Sprintf("%d %q", p.pid, p.name))
	}
	return strings.Join(out, ", ")
}
