package sandbox

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// OOMKills counts the processes that the kernel has ended for want of memory:
// the sandbox's own, which alone says, as its control group does. Where it has no
// group, strangers are among them: those of this process's group or, where that
// does not count, of the machine.
func (s *Sandbox) OOMKills() (n int64, alone bool) {
	n, _ = readOOMKills(s.group.counter)
	return n, s.group.memory != ""
}

// count chooses the file that counts for the group, once: two counts of
// different files say nothing together.
func (g *group) count() {
	dirs := []string{g.memory}
	if g.memory == "" {
		dirs = ownGroups()
	}
	for _, dir := range dirs {
		for _, name := range []string{"memory.events", "memory.oom_control"} {
			g.counter = filepath.Join(dir, name)
			if _, ok := readOOMKills(g.counter); ok {
				return
			}
		}
	}
	g.counter = "/proc/vmstat"
}

// ownGroups are the directories of this process's control group that may count
// memory, by version 2 and by version 1; inside of a container that one is where
// its hierarchy is mounted.
func ownGroups() (dirs []string) {
	own, _ := memberships() // none: nothing counts
	for _, m := range own {
		switch m.controllers {
		case "":
			dirs = append(dirs, filepath.Join("/sys/fs/cgroup", m.path))
		case "memory":
			dirs = append(dirs, filepath.Join("/sys/fs/cgroup/memory", m.path), "/sys/fs/cgroup/memory")
		}
	}
	return dirs
}

// readOOMKills reads the number after "oom_kill", a word that the counters of
// both versions and of the machine have in common (Linux 4.13).
func readOOMKills(file string) (int64, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(data)) {
		if count, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			n, err := strconv.ParseInt(count, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
