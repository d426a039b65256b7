package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A group is the job's own control group: one directory under version 2, one
// per controller under version 1. The zero value is no group.
type group struct {
	dirs   []string // as made
	tasks  []string // version 1: files through which a thread joins
	fd     *os.File // version 2: the directory, for starting processes in it
	memory string   // the directory that limits memory, "" when none does
	why    string   // why memory is not limited here

	counter    string // the file that counts whom the kernel has ended for want of memory
	cpuFile    string // the file that counts the time on cores, "" when none does
	limitsPids bool   // the number of processes is limited
}

// groupPrefix stands before the runner's process number and the time.
const groupPrefix = "kbrun-"

// newGroup makes a control group with these limits below or beside the one of
// this process, so that the machine's own limits still hold. What cannot be had
// is left out, and why says so.
func newGroup(l Limits) *group {
	g := &group{why: "no control group with a memory controller can be made"}
	defer g.count()
	own, err := memberships()
	if err != nil {
		g.why = err.Error()
		return g
	}
	name := fmt.Sprintf("%s%d-%d", groupPrefix, os.Getpid(), time.Now().UnixNano())
	for _, m := range own {
		switch m.controllers {
		case "":
			g.unified(m.path, name, l)
		case "memory":
			g.legacy("memory", m.path, name, "memory.limit_in_bytes", l.Memory)
		case "pids":
			g.legacy("pids", m.path, name, "pids.max", int64(l.Processes))
		case "cpuacct", "cpu,cpuacct":
			dir := filepath.Join("/sys/fs/cgroup", m.controllers, m.path, name)
			if makeGroup(dir) == nil {
				g.join(dir)
				g.cpuFile = filepath.Join(dir, "cpuacct.usage")
			}
		}
	}
	return g
}

// CPU is how long the sandbox's processes have been on cores so far, those that have
// ended among them. ok is false where no control group counts it. A process that is on
// a core now may lack its last 10 ms.
func (s *Sandbox) CPU() (used time.Duration, ok bool) {
	data, err := os.ReadFile(s.group.cpuFile)
	if err != nil {
		return 0, false
	}
	text, unit := strings.TrimSpace(string(data)), time.Nanosecond
	if rest, found := strings.CutPrefix(text, "usage_usec "); found { // version 2: the first line of cpu.stat
		text, _, _ = strings.Cut(rest, "\n")
		unit = time.Microsecond
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return time.Duration(n) * unit, err == nil
}

// A membership is the control group of this process in one hierarchy.
type membership struct {
	controllers string // "memory" under version 1, "" under version 2
	path        string // below the hierarchy's mount; inside of a container it may be the host's
}

// memberships reads /proc/self/cgroup, whose lines are "4:memory:/a/group".
//
// Error: it cannot be read.
func memberships() (own []membership, err error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(data)) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 {
			own = append(own, membership{fields[1], fields[2]})
		}
	}
	return own, err
}

// legacy makes a directory in one hierarchy of version 1.
func (g *group) legacy(controller, path, name, file string, value int64) {
	dir := filepath.Join("/sys/fs/cgroup", controller, path, name)
	if err := makeGroup(dir); err != nil {
		g.note(controller, err)
		return
	}
	if err := write(dir, file, strconv.FormatInt(value, 10)); err != nil {
		os.Remove(dir)
		g.note(controller, err)
		return
	}
	// No swap on top, where the kernel counts it.
	write(dir, "memory.memsw.limit_in_bytes", strconv.FormatInt(value, 10))
	g.join(dir)
	switch controller {
	case "memory":
		g.memory = dir
	case "pids":
		g.limitsPids = true
	}
}

// join has the sandbox's processes enter a directory of version 1. They use tasks,
// because a write to cgroup.procs waits for every CPU of the machine, which costs 15 ms.
func (g *group) join(dir string) {
	g.dirs, g.tasks = append(g.dirs, dir), append(g.tasks, filepath.Join(dir, "tasks"))
}

// unified makes a directory under version 2: below this process's group, or
// beside it where that has processes and therefore cannot be divided.
func (g *group) unified(path, name string, l Limits) {
	const mount = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err != nil {
		return // version 1, or a mixture whose version 2 has no controllers
	}
	own := filepath.Join(mount, path)
	for _, base := range []string{own, filepath.Dir(own)} {
		if !strings.HasPrefix(base, mount) {
			return
		}
		write(base, "cgroup.subtree_control", "+memory +pids") // seen below whether it worked
		dir := filepath.Join(base, name)
		if err := makeGroup(dir); err != nil {
			g.note("memory", err)
			continue
		}
		err := errors.Join(
			write(dir, "memory.max", strconv.FormatInt(l.Memory, 10)),
			write(dir, "pids.max", strconv.Itoa(l.Processes)))
		var fd *os.File
		if err == nil {
			fd, err = os.Open(dir)
		}
		if err != nil {
			os.Remove(dir)
			g.note("memory", err)
			continue
		}
		write(dir, "memory.swap.max", "0")
		g.dirs, g.fd, g.memory, g.cpuFile, g.limitsPids = append(g.dirs, dir), fd, dir, filepath.Join(dir, "cpu.stat"), true
		return
	}
}

// makeGroup makes the directory, and removes those beside it whose runners
// were killed before they could.
func makeGroup(dir string) error {
	stale, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), groupPrefix+"*"))
	for _, other := range stale {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(other), groupPrefix), "-")
		pid, err := strconv.Atoi(number)
		if err == nil && unix.Kill(pid, 0) == unix.ESRCH {
			os.Remove(other) // refused while anything is in it
		}
	}
	return os.Mkdir(dir, 0o755)
}

func (g *group) note(controller string, err error) {
	if controller == "memory" {
		g.why = "control group: " + err.Error()
	}
}

func write(dir, file, text string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0)
}

// leave gives up a group of version 2 in which this user may start nothing.
func (g *group) leave(err error) {
	g.fd.Close()
	g.fd, g.memory, g.cpuFile, g.limitsPids, g.why = nil, "", "", false, "control group: starting a process in it: "+err.Error()
	g.count()
}

// removeLimit is how long a group may stay busy after its last process.
const removeLimit = 2 * time.Second

func (g *group) remove() error {
	var faults []error
	if g.fd != nil {
		g.fd.Close()
	}
	for _, dir := range g.dirs {
		err := os.Remove(dir)
		for end := time.Now().Add(removeLimit); err != nil && time.Now().Before(end); err = os.Remove(dir) {
			time.Sleep(5 * time.Millisecond) // the kernel releases dead processes a little later
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("removing the control group: %w", err))
		}
	}
	g.dirs, g.tasks, g.fd, g.memory, g.cpuFile, g.limitsPids = nil, nil, nil, "", "", false
	return errors.Join(faults...)
}

// memoryBounded reports whether the group that this process is in, which may be
// a whole container, has a limit on memory of its own.
func memoryBounded() bool {
	return slices.ContainsFunc(ownGroups(), func(dir string) bool {
		return bounded(dir, "memory.max") || bounded(dir, "memory.limit_in_bytes")
	})
}

// bounded reports whether the file holds a number below the machine's memory.
func bounded(dir, file string) bool {
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return err == nil && n < totalMemory() // "max" is no number
}
