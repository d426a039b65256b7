package facts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A Machine says how to read one.
type Machine struct {
	Root string // of all files
	// Run runs a program and returns what it printed, with an error when its status
	// is not 0. Look finds a program on PATH.
	Run  func(ctx context.Context, name string, args ...string) ([]byte, error)
	Look func(name string) (string, bool)
	// Group is the numeric group of a file and whether everybody may read and write
	// it; nil: as the file system has it.
	Group func(path string) (gid int, open, ok bool)
}

// A reader collects facts.
type reader struct {
	Machine
	*Facts
}

// Read reads the machine. What cannot be read is named in [Facts.Unread].
//
// Errors: the context's.
func Read(ctx context.Context, m Machine) (*Facts, error) {
	if m.Group == nil {
		m.Group = m.statGroup
	}
	r := &reader{m, &Facts{
		Distribution: Distribution{Like: []string{}}, Cgroup: Cgroup{Controllers: []string{}}, CPUs: []CPU{}, NUMANodes: []NUMANode{},
		Disks: []Disk{}, GPUs: []GPU{}, Common: []string{}, Libraries: []string{},
		Tools: map[string]string{}, NameServers: []string{}, Units: []string{}, Seeds: []string{}, Unread: []string{},
	}}
	r.tools()
	r.nameServers()
	r.system(ctx)
	r.processors()
	r.memory()
	r.nvidia(ctx)
	r.amd()
	r.tpu()
	r.CDI = CDISpecs(r.Root, func(file string, err error) { r.unread("%s: %v", file, err) })
	r.docker(ctx)
	r.agent(ctx)
	r.disks(ctx)
	r.earlier()
	return r.Facts, ctx.Err()
}

// tools are looked for: those that kbnode calls, and those that jobs need.
func (r *reader) tools() {
	for _, name := range []string{
		"buildkite-agent", "docker", "git", "kbnode", "kbrun", "mkfs.ext4", "nvidia-ctk", "nvidia-modprobe", "nvidia-smi", "python3", "systemd-analyze",
	} {
		if path, ok := r.Look(name); ok {
			r.Tools[name] = path
		}
	}
}

func (r *reader) system(ctx context.Context) {
	r.Hostname = r.line("proc/sys/kernel/hostname")
	r.Kernel = r.line("proc/sys/kernel/osrelease")
	if r.Arch = r.line("proc/sys/kernel/arch"); r.Arch == "" { // Linux before 6.1
		r.Arch = strings.TrimSpace(r.run(ctx, "uname", "-m"))
	}
	r.distribution()
	fmt.Sscanf(r.run(ctx, "systemctl", "--version"), "systemd %d", &r.Systemd)
	switch controllers := r.line("sys/fs/cgroup/cgroup.controllers"); {
	case controllers != "":
		r.Cgroup = Cgroup{2, strings.Fields(controllers)}
	case r.there("sys/fs/cgroup/memory"):
		r.Cgroup.Version = 1
	}
}

func (r *reader) distribution() {
	for line := range strings.Lines(r.file("etc/os-release")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		switch key {
		case "ID":
			r.Distribution.ID = value
		case "VERSION_ID":
			r.Distribution.Version = value
		case "ID_LIKE":
			r.Distribution.Like = strings.Fields(value)
		}
	}
}

func (r *reader) nameServers() {
	for line := range strings.Lines(r.file("etc/resolv.conf")) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			r.NameServers = append(r.NameServers, f[1])
		}
	}
}

// disks asks df, whose answer is the same for every file system.
func (r *reader) disks(ctx context.Context) {
	paths := []string{"/var/lib"}
	if r.Docker != nil && r.Docker.Root != "" {
		paths = append(paths, r.Docker.Root)
	}
	for _, path := range paths {
		lines := strings.Split(strings.TrimSpace(r.run(ctx, "df", "-P", "-k", path)), "\n")
		if f := strings.Fields(lines[len(lines)-1]); len(f) >= 4 {
			if free, err := strconv.ParseInt(f[3], 10, 64); err == nil {
				r.Disks = append(r.Disks, Disk{path, free << 10})
			}
		}
	}
}

// earlier lists what kbnode, or the scripts that Kernelbot had before it, left
// on the machine.
func (r *reader) earlier() {
	r.Units = r.glob("etc/systemd/system/kbnode*")
	for _, pattern := range seedFiles {
		for _, file := range r.glob(pattern) {
			if path.Ext(file) != ".sample" { // the agent's package brings those
				r.Seeds = append(r.Seeds, file)
			}
		}
	}
}

// seedFiles are those of Kernelbot's older scripts, and none of the agent's own package.
var seedFiles = []string{
	"etc/systemd/system/buildkite-agent-gpu*", "etc/systemd/system/buildkite-agent@gpu*", "etc/systemd/system/*.wants/buildkite-agent@gpu*",
	"etc/systemd/system/buildkite-gpu*.slice",
	"etc/buildkite-agent/buildkite-agent-*.cfg", "etc/buildkite-agent/agent-*/*", "etc/buildkite-agent/token", "etc/buildkite-agent/hooks/*",
}

var agentVersion = text.Pattern(`\b([0-9]+\.[0-9]+\.[0-9]+)`)

func (r *reader) agent(ctx context.Context) {
	path, ok := r.Tools["buildkite-agent"]
	if !ok {
		return
	}
	r.Agent = &Agent{Path: path, Version: find(agentVersion(), r.run(ctx, path, "--version"))}
}

func find(re *regexp.Regexp, s string) string {
	if m := re.FindStringSubmatch(s); m != nil {
		return m[1]
	}
	return ""
}

// run returns what a program printed, "" with a line in Unread when it failed.
func (r *reader) run(ctx context.Context, name string, args ...string) string {
	out, err := r.Run(ctx, name, args...)
	if err != nil {
		r.unread("%s %s: %s", filepath.Base(name), strings.Join(args, " "), text.Line(err.Error(), 200))
		return ""
	}
	return string(out)
}

func (r *reader) unread(format string, args ...any) {
	r.Unread = append(r.Unread, fmt.Sprintf(format, args...))
}

func (r *reader) path(name string) string { return filepath.Join(r.Root, name) }

func (r *reader) there(name string) bool {
	_, err := os.Stat(r.path(name))
	return err == nil
}

// file returns a small file, "" when it cannot be read.
func (r *reader) file(name string) string {
	data, err := os.ReadFile(r.path(name))
	if err != nil {
		return ""
	}
	return string(data)
}

func (r *reader) line(name string) string {
	first, _, _ := strings.Cut(r.file(name), "\n")
	return strings.TrimSpace(first)
}

// number is a file's, missing where there is none.
func (r *reader) number(name string, missing int) int {
	n, err := strconv.Atoi(r.line(name))
	if err != nil {
		return missing
	}
	return n
}

// glob lists files as absolute paths, those with numbers in their order.
func (r *reader) glob(pattern string) []string {
	found, _ := filepath.Glob(r.path(pattern))
	out := []string{}
	for _, f := range found {
		if rest, err := filepath.Rel(r.Root, f); err == nil {
			out = append(out, "/"+rest)
		}
	}
	slices.SortFunc(out, byNumber)
	return out
}

// byNumber compares names with numbers at their end.
func byNumber(a, b string) int {
	headA, headB := strings.TrimRight(a, "0123456789"), strings.TrimRight(b, "0123456789")
	if headA != headB || headA == a || headB == b {
		return strings.Compare(a, b)
	}
	return trailingNumber(a) - trailingNumber(b)
}

func trailingNumber(s string) int {
	n, err := strconv.Atoi(s[len(strings.TrimRight(s, "0123456789")):])
	if err != nil {
		return -1
	}
	return n
}

func (m Machine) statGroup(path string) (gid int, open, ok bool) {
	info, err := os.Stat(filepath.Join(m.Root, path))
	if err != nil {
		return 0, false, false
	}
	_, gid = system.Owner(info)
	return gid, info.Mode()&0o006 == 0o006, gid >= 0
}

// askLimit bounds one question: nvidia-smi takes seconds where it must load the driver.
const askLimit = 30 * time.Second

// Host returns this machine, or the files of another below root, whose programs
// are not asked: they would speak of this one.
func Host(root string) Machine {
	if root != "" && root != "/" {
		return Machine{
			Root: root,
			Run: func(context.Context, string, ...string) ([]byte, error) {
				return nil, errors.New("not asked, for --root")
			},
			Look: func(string) (string, bool) { return "", false },
		}
	}
	return Machine{
		Root: "/", Look: system.Look,
		Run: func(ctx context.Context, name string, args ...string) ([]byte, error) {
			ctx, cancel := context.WithTimeout(ctx, askLimit)
			defer cancel()
			return system.Run(ctx, name, args...)
		},
	}
}
