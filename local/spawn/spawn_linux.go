package spawn

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// startProcess starts cmd in a process group of its own, to be ended when this
// process dies in whatever way. The kernel ties that to the thread which
// started it, so one thread stays with the child.
func startProcess(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.wait()
		}
	}()
	return p, <-started
}

// descendants lists the processes below root, parents first.
func descendants(root int) []int {
	children := map[int][]int{}
	eachProcess(func(pid int) {
		if parent, ok := parentOf(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	})
	var out []int
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		out = append(out, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return out
}

// Kill kills all processes that have the marker in their environment, and their
// descendants. It may be called by a process that outlives the one which made the
// pools.
func Kill(marker string) {
	for range 10 {
		found := false
		eachProcess(func(pid int) {
			if pid == os.Getpid() {
				return
			}
			env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
			if err != nil || !slices.Contains(strings.Split(string(env), "\x00"), marker) {
				return
			}
			found = true
			for _, child := range descendants(pid) {
				_ = syscall.Kill(child, syscall.SIGKILL)
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
		})
		if !found {
			return
		}
	}
}

func eachProcess(fn func(pid int)) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			fn(pid)
		}
	}
}

// parentOf reads the parent's id: the second field behind the command's name,
// which may itself hold spaces and parentheses.
func parentOf(pid int) (int, bool) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}
