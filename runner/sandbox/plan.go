package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
)

// files writes the files that the sandbox shows instead of the machine's.
func (s *Sandbox) files() error {
	if err := os.Mkdir(s.root(), 0o755); err != nil {
		return err
	}
	if !s.id.Own {
		return nil
	}
	passwd := fmt.Sprintf("root:x:0:0::/:/bin/sh\nsubmission:x:%d:%d::/tmp:/bin/sh\n", s.id.UID, s.id.GID)
	group := fmt.Sprintf("root:x:0:\nsubmission:x:%d:\n", s.id.GID)
	if err := os.WriteFile(filepath.Join(s.o.Dir, "passwd"), []byte(passwd), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.o.Dir, "group"), []byte(group), 0o644)
}

// root is where the sandbox's file system is put together.
func (s *Sandbox) root() string { return filepath.Join(s.o.Dir, "root") }

// plan is all that a sandbox's first process has to know to build it.
type plan struct {
	Means   string
	Runner  int // the runner's process number
	Root    string
	Mounts  []mount
	ID      identity
	Limits  Limits
	Minimum string
	Groups  []string // files of control groups to join
	Grouped bool     // the number of processes is limited by a group
	Missing map[string]string
	TCP     bool
	Unbound string // why the job's control group does not limit memory, "" when it does
	Bounded bool   // the runner's own group limits memory
	Watch   bool   // the first process limits memory
}

func (s *Sandbox) plan(means string) *plan {
	if s.mounts == nil {
		s.mounts = s.system()
	}
	p := &plan{
		Means: means, Runner: os.Getpid(), Root: s.root(), ID: s.id, Limits: s.o.Limits, Minimum: s.o.Minimum, TCP: s.o.TCP,
		Missing: map[string]string{}, Mounts: slices.Clone(s.mounts),
	}
	slices.SortStableFunc(p.Mounts, func(x, y mount) int { return strings.Compare(x.Target+"/", y.Target+"/") })
	p.Groups, p.Grouped = s.group.tasks, s.group.limitsPids
	if s.group.memory == "" {
		p.Unbound, p.Bounded = s.group.why, memoryBounded()
	}
	if !s.id.Own {
		p.Missing[schema.GuardUser] = "the runner is not root"
		if os.Geteuid() == 0 {
			p.Missing[schema.GuardUser] = "the runner has no capability to become another user"
		}
	}
	return p
}

// mounts lists the program's own, which come after all others.
func (p Directories) mounts() []mount {
	if p.Dir == "" {
		return nil
	}
	list := []mount{{Kind: kindRead, Source: p.Dir, Target: p.Dir}}
	for _, dir := range []string{p.Work, p.Home, p.Temp} {
		list = append(list, mount{Kind: kindWrite, Source: dir, Target: dir})
	}
	return list
}
