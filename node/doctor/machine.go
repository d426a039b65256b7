package doctor

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/facts"
	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Least is what the machine needs, here and for each job.
const (
	leastSystemd = 249     // units as kbnode writes them
	leastDisk    = 5 << 30 // bytes
	leastInodes  = 250_000 // files

	maxSkew = time.Minute // between this machine's clock and the agent API's
)

// machineChecks are those of the machine, in the order in which they depend on
// each other.
var machineChecks = []check[func(*run)]{
	{"root", true, (*run).root, "runs as root"},
	{"systemd", false, (*run).systemd, ""},
	{"cgroup", true, (*run).cgroup, "cgroup v2 with cpuset, memory and pids"},
	{"memory", false, (*run).memory, "the slots' memory is there"},
	{"swap", false, (*run).swap, "no swap that jobs could use"},
	{"yama", false, (*run).yama, "a process cannot read the memory of another that is not its child"},
	{"disk", true, (*run).disk, ""},
	{"config-mode", false, (*run).configMode, "root alone can change the config"},
	{"files", false, (*run).files, "no file that kbnode wrote was changed"},
	{"token", true, (*run).token, "the token is root's alone"},
	{"hooks", true, (*run).hooks, "the hooks are root's, and can be run"},
	{"agent-program", true, (*run).agentProgram, "the agent is there"},
	{"agent-version", false, (*run).agentVersion, "the agent is the one that the config was made for"},
	{"docker", true, (*run).engine, "no slot needs docker"},
	{"docker-socket", false, (*run).engineSocket, "nobody but root has the engine's socket"},
	{"docker-cgroup", false, (*run).engineCgroup, "the engine puts containers where slices are"},
	{"docker-security", false, (*run).engineSecurity, "the engine has seccomp, and AppArmor or SELinux"},
	{"docker-cdi", false, (*run).engineCDI, "the engine gives devices by name (CDI), or no slot needs it"},
	{"toolkit", false, (*run).toolkit, "no default runtime hands out GPUs"},
	{"cdi-devices", false, (*run).cdiDevices, "each device has a CDI name"},
	{"driver", false, (*run).driver, "the driver answers, or no slot needs one"},
	{"gpu-memory", false, (*run).gpuMemory, "no slot has a whole GPU of NVIDIA"},
	{"nouveau", false, (*run).nouveau, "nouveau is not loaded"},
	{"version-docker", false, versions("docker", component("Engine", "docker engine")), "no slot needs docker"},
	{"version-containerd", false, versions("containerd", component("containerd", "containerd")), "no slot needs docker"},
	{"version-runc", false, versions("runc", component("runc", "runc")), "no slot needs docker"},
	{"version-toolkit", false, versions("toolkit", toolkitVersion), "no slot has a GPU of NVIDIA"},
	{"version-driver", false, versions("driver", driverVersion), "no slot has a GPU of NVIDIA"},
	{"version-kernel", false, versions("kernel", kernelVersion), ""},
	{"endpoint", false, (*run).endpoint, "the agent API can be reached"},
	{"clock", false, (*run).clock, "the clock agrees with the agent API's"},
	{"foreign-agents", false, (*run).foreignAgents, "no other agent works here"},
	{"target", false, (*run).target, "the agents start at boot"},
	{"timers", false, (*run).timers, "the machine is looked after each minute"},
}

func (r *run) root() {
	if !r.m.Root0 {
		r.fail("run the same command with sudo", "not root: files of root's, units and other processes cannot be read")
	}
}

func (r *run) systemd() {
	out, err := r.program("systemctl", "--version")
	if err != nil {
		r.fail("boot this machine with systemd", "systemctl does not answer: %v", err)
		return
	}
	if r.stat("/run/systemd/system") == nil {
		r.fail("boot this machine with systemd", "systemd is installed, but this machine was not booted with it")
		return
	}
	fields := strings.Fields(out)
	if len(fields) < 2 {
		r.skip("systemctl --version printed %q", out)
		return
	}
	if v, err := strconv.Atoi(fields[1]); err == nil && v < leastSystemd {
		r.fail("use a distribution with systemd 249 or newer: Debian 12, Ubuntu 22.04, RHEL 9", "got systemd %d, want %d or newer", v, leastSystemd)
		return
	}
	r.report(OK, "", "systemd %s", fields[1])
}

func (r *run) cgroup() {
	controllers := strings.Fields(r.read("/sys/fs/cgroup/cgroup.controllers"))
	if len(controllers) == 0 {
		r.fail("boot with systemd.unified_cgroup_hierarchy=1", "no cgroup v2 at /sys/fs/cgroup: slices would limit nothing")
		return
	}
	for _, want := range []string{"cpuset", "memory", "pids"} {
		if !slices.Contains(controllers, want) {
			r.fail("boot without cgroup_disable="+want, "got the controllers %s, want %s too", strings.Join(controllers, " "), want)
		}
	}
}

func (r *run) memory() {
	var sum int64
	for _, s := range r.c.Slots {
		sum += s.SliceBytes
	}
	if total := facts.Kibibytes(r.read("/proc/meminfo"), "MemTotal:"); total > 0 && sum > total {
		r.fail("lower agent.memory_gib in the queue file, then "+r.apply(), "the slots may use %d MiB, and the machine has %d", sum>>20, total>>20)
	}
}

func (r *run) swap() {
	if n := facts.Kibibytes(r.read("/proc/meminfo"), "SwapTotal:"); n > 0 && len(r.c.Slots) > 0 {
		r.warn("swapoff -a", "%d MiB of swap: jobs may not use it, but other programs may, which slows measurements; a swap line in /etc/fstab turns it on again at boot", n>>20)
	}
}

// yama checks that a slot's processes cannot read the token in their agent's memory.
//
// Source: the kernel's Documentation/admin-guide/LSM/Yama.rst.
func (r *run) yama() {
	switch scope := r.read("/proc/sys/kernel/yama/ptrace_scope"); scope {
	case "":
		r.warn("boot a kernel with CONFIG_SECURITY_YAMA, and with yama in lsm=", "the kernel has no Yama: a slot's processes can read the memory of their agent, and the token in it")
	case "0":
		r.warn("sysctl -w kernel.yama.ptrace_scope=1; echo kernel.yama.ptrace_scope=1 > /etc/sysctl.d/60-kbnode-ptrace.conf",
			"kernel.yama.ptrace_scope is 0, want 1 or more: a slot's processes can read the memory of their agent, and the token in it")
	}
}

func (r *run) disk() {
	var found []string
	for _, dir := range []string{node.SlotsDir, cmp.Or(r.dockerInfo().DockerRootDir, node.SlotsDir)} {
		for r.stat(dir) == nil && dir != "/" { // not made yet
			dir = filepath.Dir(dir)
		}
		var fs unix.Statfs_t
		if err := unix.Statfs(r.path(dir), &fs); err != nil {
			r.skip("%s: %v", dir, err)
			return
		}
		free := int64(fs.Bavail) * fs.Bsize
		if free < leastDisk {
			r.fail("free space: kbnode image gc removes old images, docker system df and du -xh --max-depth=2 "+dir+" show what else is there", "%s: %d MiB free, want at least %d", dir, free>>20, leastDisk>>20)
			return
		}
		if fs.Files > 0 && fs.Ffree < leastInodes {
			r.fail("remove files: kbnode image gc removes old images, du -x --inodes --max-depth=2 "+dir+" shows what else is there", "%s: room for %d files, want at least %d", dir, fs.Ffree, leastInodes)
			return
		}
		if line := fmt.Sprintf("%s: %d GiB free", dir, free>>30); !slices.Contains(found, line) {
			found = append(found, line)
		}
	}
	r.report(OK, "", "%s", strings.Join(found, "; "))
}

// rootsAlone reports a path that somebody else than root can change.
func (r *run) rootsAlone(name string) {
	info := r.stat(name)
	if info == nil {
		r.fail(r.apply(), "%s is not there", name)
		return
	}
	if uid, _ := r.m.Owner(info); uid != 0 || info.Mode().Perm()&0o022 != 0 {
		r.fail(r.apply(), "%s: owner %d, mode %04o; want root's, and nobody else's to write", name, uid, info.Mode().Perm())
	}
}

func (r *run) configMode() {
	for _, name := range []string{filepath.Dir(node.ConfigPath), node.ConfigPath} {
		r.rootsAlone(name)
	}
}

// files looks at every file that carries kbnode's mark.
func (r *run) files() {
	for _, dir := range []string{filepath.Dir(node.ConfigPath), node.UnitDir} {
		_ = filepath.WalkDir(r.path(dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			body, err := os.ReadFile(path)
			if err != nil {
				return nil
			}
			if resource.Marked(body) && !resource.Owned(body) {
				name := "/" + strings.TrimPrefix(strings.TrimPrefix(path, r.m.Root), "/")
				r.fail(r.apply("--force"), "%s was changed since kbnode wrote it", name)
			}
			return nil
		})
	}
}

func (r *run) token() {
	info := r.stat(node.TokenPath)
	switch {
	case info == nil:
		r.fail(r.apply("--token-file TOKEN"), "%s is not there: no agent can register", node.TokenPath)
		return
	case info.Size() == 0:
		r.fail(r.apply("--token-file TOKEN --force"), "%s is empty", node.TokenPath)
	}
	if uid, _ := r.m.Owner(info); uid != 0 || info.Mode().Perm()&0o077 != 0 {
		r.fail("chown root:root "+node.TokenPath+"; chmod 0600 "+node.TokenPath, "%s: owner %d, mode %04o: others than root can read the token", node.TokenPath, uid, info.Mode().Perm())
	}
}

func (r *run) hooks() {
	r.rootsAlone(node.HooksDir)
	name := node.HooksDir + "/pre-bootstrap"
	r.rootsAlone(name)
	info := r.stat(name)
	if info == nil {
		return
	}
	if info.Mode().Perm()&0o111 == 0 {
		r.fail(r.apply(), "%s cannot be run: mode %04o", name, info.Mode().Perm())
	}
	raw, err := os.ReadFile(r.path(name))
	if err != nil {
		return
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	switch {
	case strings.Contains(first, "\r"):
		r.fail(r.apply("--force"), "%s has lines that end as on Windows", name)
	case !strings.HasPrefix(first, "#!"):
		r.fail(r.apply("--force"), "%s has no #! line: the agent would run it by another shell, or refuse the job", name)
	}
}

func (r *run) agentProgram() {
	info, err := os.Stat(r.path(r.c.Agent.Path))
	if err != nil || info.Mode()&0o111 == 0 {
		r.fail(r.apply("--agent PROGRAM --agent-sha256 HEX"), "no buildkite-agent at %s", r.c.Agent.Path)
	}
}

// agentVersion asks the agent on disk. The agents' configuration and units are made for
// the version in the config.
func (r *run) agentVersion() {
	out, err := r.program(r.c.Agent.Path, "--version")
	v, ok := readVersion(out)
	want, known := readVersion(r.c.Agent.Version)
	upgrade := "upgrade " + r.c.Agent.Path + " (apt-get install buildkite-agent, or dnf install buildkite-agent), then " + r.apply()
	switch {
	case err != nil:
		r.skip("%v", err)
	case !ok:
		r.skip("%s --version printed %q", r.c.Agent.Path, text.Line(out, 100))
	case !node.SupportsAgent(v.text):
		r.fail(upgrade, "%s is version %s, want %s", r.c.Agent.Path, v, node.AgentVersions)
	case known && !slices.Equal(v.numbers, want.numbers):
		r.warn(r.apply(), "%s is version %s, and the config was made for %s", r.c.Agent.Path, v, want)
	}
}

func (r *run) endpoint() {
	url := cmp.Or(r.c.Endpoint, "https://agent.buildkite.com/v3")
	status, date, err := r.m.Reach(r.ctx, strings.TrimSuffix(url, "/")+"/")
	switch {
	case err != nil:
		r.fail("let this machine reach it (firewall, DNS): curl -v "+url+" shows where the connection fails", "%s cannot be reached: %v", url, err)
	case status >= 500:
		r.warn("wait, or ask who runs it: curl -v "+url+" shows its answer", "%s answers with status %d", url, status)
	}
	r.date = date
}

// clock compares this machine's clock with the date of the agent API's answer.
// Tokens and logs of jobs carry times.
func (r *run) clock() {
	skew := time.Since(r.date).Round(time.Second)
	switch {
	case r.date.IsZero():
		r.skip("the agent API's answer has no date")
	case skew > maxSkew:
		r.fail("timedatectl set-ntp true", "the clock is %v ahead of the agent API's, want at most %v", skew, maxSkew)
	case -skew > maxSkew:
		r.fail("timedatectl set-ntp true", "the clock is %v behind the agent API's, want at most %v", -skew, maxSkew)
	}
}

// foreignAgents looks for agents that kbnode does not run: they take jobs of the
// same queues, or use the same GPUs. What runs in a slot is below kbnode's slice.
func (r *run) foreignAgents() {
	procs, _ := filepath.Glob(r.path("/proc/[0-9]*"))
	for _, proc := range procs {
		pid := filepath.Base(proc)
		argv := strings.Split(r.read("/proc/"+pid+"/cmdline"), "\x00")
		if len(argv) < 2 || filepath.Base(argv[0]) != "buildkite-agent" || argv[1] != "start" {
			continue
		}
		group := r.read("/proc/" + pid + "/cgroup")
		if !strings.Contains(group, "/kbnode.slice/") {
			r.fail(endAgent(pid, filepath.Base(group)), "process %s is an agent that kbnode does not run: it can take this machine's jobs; keep it only if it serves other queues and does not use the slots' GPUs", pid)
		}
	}
}

// endAgent returns the command or advice that ends an agent, chosen by the last part of
// its control group. kbnode adopt takes over those of Kernelbot's older scripts only.
func endAgent(pid, unit string) string {
	switch {
	case strings.HasPrefix(unit, "buildkite-agent-gpu") || strings.HasPrefix(unit, "buildkite-agent@gpu"):
		return "kbnode adopt"
	case strings.HasPrefix(unit, "buildkite-agent") && strings.HasSuffix(unit, ".service"):
		return "systemctl disable --now " + unit
	}
	return "stop whatever started it (systemctl status " + pid + " shows it)"
}

func (r *run) target() {
	u := r.unit("kbnode-agents.target", "LoadState", "UnitFileState", "ActiveState")
	switch {
	case u == nil:
	case u["LoadState"] != "loaded":
		r.fail(r.apply(), "there is no kbnode-agents.target")
	case u["UnitFileState"] != "enabled":
		r.fail("systemctl enable kbnode-agents.target", "kbnode-agents.target is %s: no agent starts at boot", cmp.Or(u["UnitFileState"], "not enabled"))
	}
}

func (r *run) timers() {
	u := r.unit("kbnode-check.timer", "ActiveState")
	switch {
	case u == nil:
	case u["ActiveState"] != "active":
		r.fail("systemctl enable --now kbnode-check.timer", "kbnode-check.timer is %s: a GPU that fails between jobs is found late", u["ActiveState"])
	}
}
