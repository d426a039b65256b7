package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/schema"
)

// A world is a machine below a directory, with programs that answer from tables.
type world struct {
	t      *testing.T
	root   string
	config *node.Config

	programs map[string]string // by the command line's beginning
	engine   map[string]string // docker's answers by path
	pages    map[string]string // by URL; none: no connection
	groups   []string          // of the slots' users
	missing  []string          // programs
	asked    map[string]int    // how often docker was asked for a path
	noUser   bool
	noRoot   bool
	ahead    time.Duration // of the agent API's clock
	inside   bool
}

const uuid = "GPU-00000000-feed-beef-cafe-000000000000"

// healthy is a machine with nothing wrong. Its one slot has an NVIDIA GPU whose
// device node is an ordinary file.
func healthy(t *testing.T) *world {
	t.Helper()
	slot := node.Slot{
		Name: "gpu0", User: "kbagent-gpu0", Queue: "h100", Tags: []string{"queue=h100"}, GPUType: "H100_BK", Platform: "docker",
		Devices: []node.Device{{Vendor: "nvidia", UUID: uuid, CDI: "nvidia.com/gpu=" + uuid, Nodes: []string{"/dev/nvidia7", "/dev/nvidiactl"}}},
		CPUs:    "1", MemoryBytes: 1 << 30, SliceBytes: 1<<30 + 256<<20, Pids: 1000, SlicePids: 1100,
		Images: []string{"runner:1"}, HealthPort: 39300, Timeout: time.Minute,
	}
	w := &world{t: t, root: t.TempDir(), config: &node.Config{
		Version: 1, Node: "n", Vendor: "v", Program: "/usr/bin/kbnode", Agent: node.Agent{Path: "/usr/bin/buildkite-agent", Version: "3.138.0"},
		Docker: node.Docker{Socket: "/run/docker.sock", CLI: "/usr/bin/docker"}, Slots: []*node.Slot{&slot},
	}}
	for name, body := range map[string]string{
		"/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n", "/proc/meminfo": "MemTotal: 16000000 kB\nSwapTotal: 0 kB\n",
		node.TokenPath: "not a token\n", node.ConfigPath: "# kbnode\n", "/usr/bin/buildkite-agent": "", "/run/docker.sock": "", "/run/systemd/system/x": "", "/dev/nvidia7": "", "/dev/nvidiactl": "",
		node.HooksDir + "/pre-bootstrap":     "#!/bin/sh\n",
		"/proc/sys/kernel/yama/ptrace_scope": "1\n",
		"/proc/driver/nvidia/version":        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Release Build\n", "/proc/sys/kernel/osrelease": "6.8.0-31-generic\n", "/etc/cdi/nvidia.yaml": "kind: nvidia.com/gpu\ndevices: [{name: " + uuid + "}]\n",
		slot.ProxySocket():                          "",
		slot.CgroupDir() + "/memory.max":            fmt.Sprintln(slot.SliceBytes),
		slot.CgroupDir() + "/pids.max":              "1100\n",
		slot.CgroupDir() + "/cpuset.cpus.effective": "1\n",
		slot.CgroupDir() + "/memory.swap.max":       "0\n",
	} {
		w.write(name, body)
	}
	for _, name := range []string{"/usr/bin/buildkite-agent", node.HooksDir + "/pre-bootstrap"} {
		w.chmod(name, 0o755)
	}
	for _, name := range []string{node.TokenPath, slot.ProxySocket()} {
		w.chmod(name, 0o600)
	}
	w.chmod("/run/docker.sock", 0o660)
	for _, dir := range slot.UserDirs() {
		if err := os.MkdirAll(w.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w.chmod(slot.Dir(), 0o755)
	pins, err := yaml.Marshal(node.Pins{Version: 1, Images: map[string]node.Pin{"runner:1": {ID: "sha256:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	w.write(node.PinsPath, string(pins))
	w.programs = map[string]string{
		"systemctl --version": "systemd 257 (257.13)\n",
		"systemctl show --no-pager --property=LoadState,UnitFileState,ActiveState kbnode-agents.target": "LoadState=loaded\nUnitFileState=enabled\nActiveState=active\n",
		"systemctl show --no-pager --property=ActiveState kbnode-check.timer":                           "ActiveState=active\n",
		"systemctl show --no-pager --property=ActiveState " + slot.MountUnit():                          "ActiveState=active\n",
		"systemctl show --no-pager --property=FragmentPath":                                             fmt.Sprintf("FragmentPath=/etc/systemd/system/kbnode-gpu0.slice\nMemoryMax=%d\nTasksMax=1100\nDevicePolicy=closed\nNeedDaemonReload=no\n", slot.SliceBytes),
		"systemctl show --no-pager --property=LoadState,ActiveState,SubState":                           "LoadState=loaded\nActiveState=active\nSubState=running\nNRestarts=0\nNeedDaemonReload=no\nMainPID=100\n",
		agentSandbox:                "LoadState=loaded\nUser=kbagent-gpu0\nNoNewPrivileges=yes\nProtectSystem=strict\nCapabilityBoundingSet=\nMainPID=100\n",
		proxySandbox:                "LoadState=loaded\nUser=\nNoNewPrivileges=yes\nProtectSystem=strict\nCapabilityBoundingSet=cap_dac_override cap_fowner cap_sys_admin\nMainPID=101\n",
		agentGroups:                 "SupplementaryGroups=\nMainPID=100\n",
		"nvidia-smi":                uuid + "\n",
		"nvidia-ctk --version":      "NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80a9b9d0db00d9b1d73c0128c8962c55f4d\n",
		"buildkite-agent --version": "buildkite-agent version 3.138.0+12345.0123456789abcdef\n",
	}
	w.link("/usr/bin/buildkite-agent", "/proc/100/exe")
	w.write("/proc/100/cmdline", "/usr/bin/buildkite-agent\x00start\x00--config\x00")
	w.write("/proc/100/cgroup", "0::/kbnode.slice/kbnode-gpu0.slice/kbnode-agent@gpu0.service\n")
	w.process(100, os.Getuid(), "0", "64000")
	w.process(101, 0, "20000a", "")
	w.engine = map[string]string{
		"/info":                 `{"ServerVersion": "26.1.5", "CgroupDriver": "systemd", "CDISpecDirs": ["/etc/cdi"], "DefaultRuntime": "runc", "DockerRootDir": "/var/lib/kbnode", "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin"]}`,
		"/version":              engineVersions,
		"/images/sha256:1/json": "{}", "/containers/json": "[]",
	}
	w.prove(func(*schema.Proof) {})
	w.pages = map[string]string{
		"https://agent.buildkite.com/v3/":    "{}",
		"http://127.0.0.1:39300/status.json": `{"health":"ok","aggregate_status":"idle","workers":[{"status":"idle"}]}`,
	}
	return w
}

// Command lines by which the sandboxes of gpu0's units are asked for.
const (
	sandboxProperties = "systemctl show --no-pager --property=LoadState,User,NoNewPrivileges,ProtectSystem,CapabilityBoundingSet,DropInPaths,MainPID "
	agentSandbox      = sandboxProperties + "kbnode-agent@"
	proxySandbox      = sandboxProperties + "kbnode-proxy@"
	agentGroups       = "systemctl show --no-pager --property=SupplementaryGroups,DropInPaths,MainPID kbnode-agent@"
)

// engineVersions is docker's answer to /version, of releases without known faults.
const engineVersions = `{"Components": [
	{"Name": "Engine", "Version": "28.2.2", "Details": {"GitCommit": "45873be"}},
	{"Name": "containerd", "Version": "v1.7.29", "Details": {"GitCommit": "442cb34bda9a6a0fed82a2ca7cade05c5c749582"}},
	{"Name": "runc", "Version": "1.3.3", "Details": {"GitCommit": "v1.3.3-0-gd842d771"}}]}`

// process writes the status of a process that runs as a user.
func (w *world) process(pid, uid int, caps, groups string) {
	w.t.Helper()
	w.write(fmt.Sprintf("/proc/%d/status", pid),
		fmt.Sprintf("Name:\tx\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\nGroups:\t%[2]s \nCapEff:\t%016[3]s\nCapBnd:\t%016[3]s\nNoNewPrivs:\t1\n", uid, groups, caps))
}

// override adds a drop-in and what systemd makes of it to the answers of one command.
func (w *world) override(command, setting, from, to string) {
	const file = "/etc/systemd/system/kbnode-agent@.service.d/mine.conf"
	w.write(file, "[Service]\n"+setting+"\n")
	w.programs[command] = strings.Replace(w.programs[command], from, to, 1) + "DropInPaths=" + file + "\n"
}

func (w *world) path(name string) string { return filepath.Join(w.root, name) }

func (w *world) write(name, body string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(w.path(name)), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.path(name), []byte(body), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) chmod(name string, mode os.FileMode) {
	w.t.Helper()
	if err := os.Chmod(w.path(name), mode); err != nil {
		w.t.Fatal(err)
	}
}

// link makes a file that stands for another.
func (w *world) link(old, name string) {
	w.t.Helper()
	w.remove(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(w.path(name)), 0o755), os.Symlink(w.path(old), w.path(name))); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(name string) {
	w.t.Helper()
	if err := os.RemoveAll(w.path(name)); err != nil {
		w.t.Fatal(err)
	}
}

// program answers from the table.
func (w *world) program(_ context.Context, name string, args ...string) ([]byte, error) {
	line := strings.Join(append([]string{filepath.Base(name)}, args...), " ")
	for prefix, answer := range w.programs {
		if strings.HasPrefix(line, prefix) {
			return []byte(answer), nil
		}
	}
	return nil, fmt.Errorf("no answer to %q", line)
}

// ask answers for docker.
func (w *world) ask(_ context.Context, _, path string, _ url.Values, into any) error {
	if w.asked == nil {
		w.asked = map[string]int{}
	}
	w.asked[path]++
	answer, ok := w.engine[path]
	if !ok {
		return errors.New("the engine says 404")
	}
	return json.Unmarshal([]byte(answer), into)
}

func (w *world) examine(preflight bool, names ...string) []Result {
	slots, err := w.config.Pick(names)
	if err != nil {
		w.t.Fatal(err)
	}
	return Run(w.t.Context(), w.machine(), w.config, slots, preflight)
}

func (w *world) machine() Machine {
	uid, gid := os.Getuid(), os.Getgid()
	return Machine{
		Root: w.root, Run: w.program, Engine: w.ask,
		Look: func(name string) (string, bool) { return "/usr/bin/" + name, !slices.Contains(w.missing, name) },
		User: func(name string) (system.User, error) {
			if w.noUser {
				return system.User{}, errors.New("unknown user " + name)
			}
			return system.User{UID: uid, GID: gid, Groups: w.groups}, nil
		},
		Get: func(_ context.Context, url string) (int, []byte, error) {
			body, ok := w.pages[url]
			if !ok {
				return 0, nil, errors.New("connection refused")
			}
			return 200, []byte(body), nil
		},
		Reach: func(_ context.Context, url string) (int, time.Time, error) {
			if _, ok := w.pages[url]; !ok {
				return 0, time.Time{}, errors.New("connection refused")
			}
			return 200, time.Now().Add(w.ahead), nil
		},
		Device: device.Machine{Root: w.root, Environ: []string{"PATH=/usr/bin:/bin"}, Limit: time.Minute, SMI: w.path("/nvidia-smi"), Settle: time.Millisecond},
		Root0:  !w.noRoot, Inside: func(*node.Slot) bool { return w.inside },
		Owner: func(info os.FileInfo) (int, int) {
			u, g := system.Owner(info)
			if u == uid && info.Mode().Perm()&0o077 != 0 { // what is not a slot's is root's here
				return 0, 0
			}
			if info.Name() == "token" {
				return 0, 0
			}
			return u, g
		},
	}
}

// result returns the first result of a check.
func (w *world) result(code string) Result {
	w.t.Helper()
	results := w.examine(false)
	i := slices.IndexFunc(results, func(r Result) bool { return r.Code == code })
	if i < 0 {
		w.t.Fatalf("no result of %s", code)
	}
	return results[i]
}

// smi is a stand-in for NVIDIA's tool as a program, for health asks it itself.
func (w *world) smi(script string) {
	w.t.Helper()
	w.write("/nvidia-smi", "#!/bin/sh\n"+script)
	w.chmod("/nvidia-smi", 0o755)
}

// answering prints as many fields as it was asked for.
const answering = `for a in "$@"; do case $a in --query-gpu=*) fields=${a#*=} ;; esac; done
line=
IFS=,
for f in $fields; do
	case $f in index) v=0 ;; uuid) v=` + uuid + ` ;; name) v="NVIDIA H100" ;; *) v='[N/A]' ;; esac
	line="$line${line:+, }$v"
done
echo "$line"
`

func bad(results []Result) (codes []string) {
	for _, r := range results {
		if r.State == Failure || r.State == Warning {
			codes = append(codes, r.Code)
		}
	}
	return codes
}

func TestHealthyMachineHasNothingWrong(t *testing.T) {
	w := healthy(t)
	w.smi(answering)
	results := w.examine(false)
	for _, r := range results {
		if r.State != OK && r.Code != "slice-devices" {
			t.Errorf("%+v, want it to be in order", r)
		}
		if r.State == OK && r.Text == "" {
			t.Errorf("%s says nothing", r.Code)
		}
	}
	if want := len(machineChecks) + len(slotChecks); len(results) != want {
		t.Errorf("%d results, want %d", len(results), want)
	}
}

// A fault is a change that breaks a test machine, with the codes of the checks that
// find it.
type fault struct {
	inject func(*world)
	code   string
}

// faults are those that one check finds.
func faults(slot node.Slot) map[string]fault {
	return map[string]fault{
		"token is gone":             {func(w *world) { w.remove(node.TokenPath) }, "token"},
		"token is empty":            {func(w *world) { w.write(node.TokenPath, ""); w.chmod(node.TokenPath, 0o600) }, "token"},
		"everybody reads the token": {func(w *world) { w.chmod(node.TokenPath, 0o644) }, "token"},
		"hook is gone":              {func(w *world) { w.remove(node.HooksDir + "/pre-bootstrap") }, "hooks"},
		"hook without #!": {func(w *world) {
			w.write(node.HooksDir+"/pre-bootstrap", "exit 0\n")
			w.chmod(node.HooksDir+"/pre-bootstrap", 0o755)
		}, "hooks"},
		"hook from Windows": {func(w *world) {
			w.write(node.HooksDir+"/pre-bootstrap", "#!/bin/sh\r\n")
			w.chmod(node.HooksDir+"/pre-bootstrap", 0o755)
		}, "hooks"},
		"hook cannot be run":            {func(w *world) { w.chmod(node.HooksDir+"/pre-bootstrap", 0o644) }, "hooks"},
		"everybody writes hooks":        {func(w *world) { w.chmod(node.HooksDir+"/pre-bootstrap", 0o777) }, "hooks"},
		"no agent":                      {func(w *world) { w.remove("/usr/bin/buildkite-agent") }, "agent-program"},
		"cgroup v1":                     {func(w *world) { w.remove("/sys/fs/cgroup/cgroup.controllers") }, "cgroup"},
		"no memory controller":          {func(w *world) { w.write("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu pids\n") }, "cgroup"},
		"systemd did not boot":          {func(w *world) { w.remove("/run/systemd/system") }, "systemd"},
		"old systemd":                   {func(w *world) { w.programs["systemctl --version"] = "systemd 247 (247.3)\n" }, "systemd"},
		"too little memory":             {func(w *world) { w.write("/proc/meminfo", "MemTotal: 1000000 kB\n") }, "memory"},
		"swap":                          {func(w *world) { w.write("/proc/meminfo", "MemTotal: 16000000 kB\nSwapTotal: 1000 kB\n") }, "swap"},
		"file changed by hand":          {func(w *world) { w.write(node.UnitDir+"/kbnode-gpu0.slice", "# kbnode sha256:0\n[Slice]\n") }, "files"},
		"engine without systemd driver": {func(w *world) { w.engine["/info"] = strings.Replace(w.engine["/info"], `"systemd"`, `"cgroupfs"`, 1) }, "docker-cgroup"},
		"engine without CDI":            {func(w *world) { w.engine["/info"] = strings.Replace(w.engine["/info"], `["/etc/cdi"]`, `[]`, 1) }, "docker-cdi"},
		"socket for everybody":          {func(w *world) { w.chmod("/run/docker.sock", 0o666) }, "docker-socket"},
		"NVIDIA as default runtime":     {func(w *world) { w.engine["/info"] = strings.Replace(w.engine["/info"], `"runc"`, `"nvidia"`, 1) }, "toolkit"},
		"two CDI specs of one device": {func(w *world) {
			w.write("/etc/cdi/old.json", `{"kind": "nvidia.com/gpu", "devices": [{"name": "`+uuid+`"}]}`)
		}, "cdi-devices"},
		"no CDI name": {func(w *world) { w.write("/etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\ndevices: [{name: all}]\n") }, "cdi-devices"},
		"no driver":   {func(w *world) { w.remove("/proc/driver/nvidia/version") }, "driver"},
		"nouveau":     {func(w *world) { w.write("/sys/module/nouveau/x", "") }, "nouveau"},
		"agent is too old": {func(w *world) {
			w.config.Agent.Version, w.programs["buildkite-agent --version"] = "3.121.0", "buildkite-agent version 3.121.0+9.f"
		}, "agent-version"},
		"agent is too new": {func(w *world) {
			w.config.Agent.Version, w.programs["buildkite-agent --version"] = "5.0.0", "buildkite-agent version 5.0.0+9.f"
		}, "agent-version"},
		"agent on disk is not the config's":  {func(w *world) { w.programs["buildkite-agent --version"] = "buildkite-agent version 3.139.0+9.f" }, "agent-version"},
		"agent was replaced while it runs":   {func(w *world) { w.write("/old-agent", ""); w.link("/old-agent", "/proc/100/exe") }, "agent-unit"},
		"clock is behind":                    {func(w *world) { w.ahead = 3 * time.Hour }, "clock"},
		"clock is ahead":                     {func(w *world) { w.ahead = -3 * time.Hour }, "clock"},
		"processes read each other's memory": {func(w *world) { w.write("/proc/sys/kernel/yama/ptrace_scope", "0\n") }, "yama"},
		"kernel without Yama":                {func(w *world) { w.remove("/proc/sys/kernel/yama") }, "yama"},
		"engine without seccomp":             {func(w *world) { w.engine["/info"] = strings.Replace(w.engine["/info"], "name=seccomp", "name=x", 1) }, "docker-security"},
		"engine with seccomp unconfined":     {func(w *world) { w.engine["/info"] = strings.Replace(w.engine["/info"], "builtin", "unconfined", 1) }, "docker-security"},
		"engine without AppArmor":            {func(w *world) { w.engine["/info"] = strings.Replace(w.engine["/info"], "name=apparmor", "name=x", 1) }, "docker-security"},
		"old engine":                         {func(w *world) { w.engine["/version"] = strings.Replace(engineVersions, "28.2.2", "27.0.3", 1) }, "version-docker"},
		"old containerd":                     {func(w *world) { w.engine["/version"] = strings.Replace(engineVersions, "1.7.29", "1.7.27", 1) }, "version-containerd"},
		"old runc":                           {func(w *world) { w.engine["/version"] = strings.Replace(engineVersions, "1.3.3", "1.3.2", 1) }, "version-runc"},
		"old toolkit":                        {func(w *world) { w.programs["nvidia-ctk --version"] = "NVIDIA Container Toolkit CLI version 1.17.7\n" }, "version-toolkit"},
		"old driver": {func(w *world) {
			w.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n")
			w.prove(func(p *schema.Proof) { p.Driver = "570.86.15" })
		}, "version-driver"},
		"old kernel":     {func(w *world) { w.write("/proc/sys/kernel/osrelease", "5.15.0-100-generic\n") }, "version-kernel"},
		"engine is down": {func(w *world) { delete(w.engine, "/info") }, "docker"},
		"no network":     {func(w *world) { delete(w.pages, "https://agent.buildkite.com/v3/") }, "endpoint"},
		"target not enabled": {func(w *world) {
			w.programs["systemctl show --no-pager --property=LoadState,UnitFileState,ActiveState kbnode-agents.target"] = "LoadState=loaded\nUnitFileState=disabled\n"
		}, "target"},
		"timer is off": {func(w *world) {
			w.programs["systemctl show --no-pager --property=ActiveState kbnode-check.timer"] = "ActiveState=inactive\n"
		}, "timers"},
		"slot's directory for everybody": {func(w *world) { w.chmod(slot.Dir(), 0o777) }, "directories"},
		"disk is not mounted": {func(w *world) {
			w.programs["systemctl show --no-pager --property=ActiveState "+slot.MountUnit()] = "ActiveState=inactive\n"
		}, "slot-disk"},
		"user in group docker":         {func(w *world) { w.groups = []string{"kbagent-gpu0", "docker"} }, "agent-group"},
		"drop-in gives docker's group": {func(w *world) { w.override(agentGroups, "SupplementaryGroups=docker", "Groups=", "Groups=docker") }, "agent-group"},
		"agent still has docker's group": {func(w *world) {
			w.write("/etc/group", "docker:x:998:\n")
			w.process(100, os.Getuid(), "0", "64000 998")
		}, "agent-group"},
		"drop-in takes NoNewPrivileges":    {func(w *world) { w.override(agentSandbox, "NoNewPrivileges=no", "Privileges=yes", "Privileges=no") }, "sandbox"},
		"drop-in takes ProtectSystem":      {func(w *world) { w.override(agentSandbox, "ProtectSystem=no", "System=strict", "System=no") }, "sandbox"},
		"drop-in changes the user":         {func(w *world) { w.override(agentSandbox, "User=root", "User=kbagent-gpu0", "User=root") }, "sandbox"},
		"drop-in adds capabilities":        {func(w *world) { w.override(agentSandbox, "CapabilityBoundingSet=CAP_CHOWN", "Set=", "Set=cap_chown") }, "sandbox"},
		"drop-in adds the proxy's":         {func(w *world) { w.override(proxySandbox, "CapabilityBoundingSet=CAP_BPF", "Set=", "Set=cap_bpf ") }, "sandbox"},
		"agent runs with capabilities":     {func(w *world) { w.process(100, os.Getuid(), "1", "64000") }, "sandbox"},
		"agent runs as another user":       {func(w *world) { w.process(100, os.Getuid()+1, "0", "64000") }, "sandbox"},
		"proxy runs with all capabilities": {func(w *world) { w.process(101, 0, "1ffffffffff", "") }, "sandbox"},
		"agent may gain privileges": {func(w *world) {
			status := w.path("/proc/100/status")
			b, err := os.ReadFile(status)
			if err != nil {
				w.t.Fatal(err)
			}
			w.write("/proc/100/status", strings.Replace(string(b), "NoNewPrivs:\t1", "NoNewPrivs:\t0", 1))
		}, "sandbox"},
		"no directory":            {func(w *world) { w.remove(slot.TempDir()) }, "directories"},
		"directory for everybody": {func(w *world) { w.chmod(slot.TempDir(), 0o700|0o055) }, "directories"},
		"paused":                  {func(w *world) { w.write(slot.Paused(), "fan\n") }, "paused"},
		"slice without a file": {func(w *world) {
			w.programs["systemctl show --no-pager --property=FragmentPath"] = "FragmentPath=\nMemoryMax=infinity\n"
		}, "slice"},
		"slice without limits": {func(w *world) { w.write(slot.CgroupDir()+"/memory.max", "max\n") }, "slice-limits"},
		"slice with all cores": {func(w *world) { w.write(slot.CgroupDir()+"/cpuset.cpus.effective", "0-11\n") }, "slice-limits"},
		"agent of another set-up": {func(w *world) {
			w.write("/proc/7/cmdline", "/usr/bin/buildkite-agent\x00start\x00")
			w.write("/proc/7/cgroup", "0::/system.slice/buildkite-agent.service\n")
		}, "foreign-agents"},
		"GPU was not proved":            {func(w *world) { w.remove(node.ProofsDir) }, "proof"},
		"proof is cut short":            {func(w *world) { w.write(node.ProofsDir+"/"+uuid+".json", "{") }, "proof"},
		"everybody writes the proof":    {func(w *world) { w.chmod(node.ProofsDir+"/"+uuid+".json", 0o666) }, "proof"},
		"proof is of another driver":    {func(w *world) { w.prove(func(p *schema.Proof) { p.Driver = "570.86.15" }) }, "proof"},
		"proof has a check that failed": {func(w *world) { w.prove(func(p *schema.Proof) { p.Checks[0].OK = false }) }, "proof"},
		"proof has one in C++":          {func(w *world) { w.prove(func(p *schema.Proof) { p.Checks[1].OK = false }) }, "proof"},
		"another's device opens":        {func(w *world) { w.inside = true; w.addNeighbour() }, "slice-devices"},
		"device node is gone":           {func(w *world) { w.remove("/dev/nvidia7") }, "device"},
		"driver lost the device":        {func(w *world) { w.smi(strings.ReplaceAll(answering, uuid, "GPU-another")) }, "device"},
		"proxy's socket is gone":        {func(w *world) { w.remove(slot.ProxySocket()) }, "proxy"},
		"no image is pinned":            {func(w *world) { w.remove(node.PinsPath) }, "image"},
		"the pinned image is gone":      {func(w *world) { delete(w.engine, "/images/sha256:1/json") }, "image"},
		"leftovers":                     {func(w *world) { w.engine["/containers/json"] = `[{"Id": "0123456789ab"}]` }, "leftovers"},
		"agent is down": {func(w *world) {
			w.programs["systemctl show --no-pager --property=LoadState,ActiveState,SubState"] = "LoadState=loaded\nActiveState=failed\nSubState=failed\nResult=exit-code\nNRestarts=6\n"
		}, "agent-unit"},
		"agent starts again and again": {func(w *world) {
			w.programs["systemctl show --no-pager --property=LoadState,ActiveState,SubState"] = "LoadState=loaded\nActiveState=active\nNRestarts=40\n"
		}, "agent-unit"},
		"agent is not in the dashboard": {func(w *world) {
			w.pages["http://127.0.0.1:39300/status.json"] = `{"health":"failing","aggregate_status":"idle"}`
		}, "agent-health"},
		"another user listens on the agent's port": {func(w *world) {
			w.write("/proc/net/tcp", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"+
				"   0: 0100007F:9984 00000000:0000 0A 00000000:00000000 00:00000000 00000000  4711        0 1 1 0 100 0 0 10 0\n")
		}, "agent-health"},
		"agent does not answer": {func(w *world) { delete(w.pages, "http://127.0.0.1:39300/status.json") }, "agent-health"},
	}
}

// Each fault is found by the check that is about it, and by no other.
func TestFaultsAreFound(t *testing.T) {
	for name, fault := range faults(node.Slot{Name: "gpu0"}) {
		t.Run(name, func(t *testing.T) {
			w := healthy(t)
			w.smi(answering)
			fault.inject(w)
			results := w.examine(false)
			codes := bad(results)
			if len(codes) == 0 {
				t.Fatal("nothing was found")
			}
			for _, code := range codes {
				if code != fault.code {
					t.Errorf("found %q, want %q only", codes, fault.code)
				}
			}
			for _, r := range results {
				if (r.State == Failure || r.State == Warning) && r.Fix == "" {
					t.Errorf("%s: nothing says what mends it: %s", r.Code, r.Text)
				}
			}
		})
	}
}

// No property of a slice brings a processor back.
func TestOfflineProcessorIsSwitchedOn(t *testing.T) {
	w := healthy(t)
	w.smi(answering)
	w.config.Slots[0].CPUs = "1,3"
	w.write(w.config.Slots[0].CgroupDir()+"/cpuset.cpus.effective", "1\n")
	w.write("/sys/devices/system/cpu/cpu3/online", "0\n")
	if r := w.result("slice-limits"); r.Fix != "echo 1 > /sys/devices/system/cpu/cpu3/online" {
		t.Errorf("%s: mend: %q; want processor 3 switched on", r.Text, r.Fix)
	}
}

func TestResidualGPUMemoryIsNamed(t *testing.T) {
	const residual = "gpu0: residual GPU memory is not isolated between jobs; only MIG or confidential-computing mode isolates it"
	for name, c := range map[string]struct{ uuid, mode, want string }{
		"whole GPU":              {uuid, "CC status: OFF", residual},
		"confidential computing": {uuid, "CC status: ON", "the GPUs run in confidential-computing mode"},
		"MIG instance":           {"MIG-00000000-feed-beef-cafe-000000000000", "CC status: OFF", "no slot has a whole GPU of NVIDIA"},
	} {
		w := healthy(t)
		w.config.Slots[0].Devices[0].UUID = c.uuid
		delete(w.programs, "nvidia-smi") // answers to everything
		w.programs["nvidia-smi conf-compute -f"] = c.mode
		if r := w.result("gpu-memory"); r.State != OK || r.Text != c.want {
			t.Errorf("%s: %s, %q; want %q", name, r.State, r.Text, c.want)
		}
	}
}

// A remedy is what doctor must print of a fault.
type remedy struct {
	inject    func(*world)
	code, fix string // a part of it
}

func remedies() map[string]remedy {
	return map[string]remedy{
		"nvidia-ctk does not take a default runtime away": {func(w *world) { w.engine["/info"] = strings.Replace(w.engine["/info"], `"runc"`, `"nvidia"`, 1) }, "toolkit", `take "default-runtime" out of /etc/docker/daemon.json`},
		"apply switches no CDI on in an engine without it": {func(w *world) {
			w.engine["/info"] = strings.Replace(strings.Replace(w.engine["/info"], `["/etc/cdi"]`, `[]`, 1), "26.1.5", "24.0.9", 1)
		}, "docker-cdi", "install docker-ce"},
		"apply writes a CDI spec if there is no nvidia-ctk": {func(w *world) { w.remove("/etc/cdi/nvidia.yaml"); w.missing = []string{"nvidia-ctk"} }, "cdi-devices", "kbnode apply FILE"},
		"a CDI spec needs names by UUID":                    {func(w *world) { w.remove("/etc/cdi/nvidia.yaml") }, "cdi-devices", "--device-name-strategy=uuid"},
		"apply leaves what set-property wrote": {func(w *world) {
			w.programs["systemctl show --no-pager --property=FragmentPath"] = "FragmentPath=/etc/systemd/system/kbnode-gpu0.slice\nMemoryMax=infinity\n"
		}, "slice", "systemctl revert kbnode-gpu0.slice"},
		"a socket is not made anew while its proxy runs": {func(w *world) { w.remove(w.config.Slots[0].ProxySocket()) }, "proxy", "kbnode drain gpu0; systemctl restart kbnode-proxy@gpu0.socket"},
		"apply replaces an empty token only by force":    {func(w *world) { w.write(node.TokenPath, ""); w.chmod(node.TokenPath, 0o600) }, "token", "--token-file TOKEN --force"},
		"apply leaves a device that set-property gave":   {func(w *world) { w.inside = true; w.addNeighbour() }, "slice-devices", "systemctl revert kbnode-gpu0.slice"},
		"apply removes its own CDI spec beside another": {func(w *world) {
			w.write(node.CDISpec, "kind: nvidia.com/gpu\ndevices: [{name: "+uuid+"}]\n")
		}, "cdi-devices", "kbnode apply FILE"},
		"a driver of another version than its library": {func(w *world) {
			w.programs["nvidia-smi"] = "Failed to initialize NVML: Driver/library version mismatch"
		}, "driver", "reboot"},
		"adopt takes over older scripts' agents": {func(w *world) {
			w.write("/proc/7/cmdline", "buildkite-agent\x00start\x00")
			w.write("/proc/7/cgroup", "0::/system.slice/buildkite-agent-gpu0.service\n")
		}, "foreign-agents", "kbnode adopt"},
		"adopt does not take over the package's agent": {func(w *world) {
			w.write("/proc/7/cmdline", "buildkite-agent\x00start\x00")
			w.write("/proc/7/cgroup", "0::/system.slice/buildkite-agent.service\n")
		}, "foreign-agents", "systemctl disable --now buildkite-agent.service"},
		"a service that only contains an agent goes on": {func(w *world) {
			w.write("/proc/7/cmdline", "buildkite-agent\x00start\x00")
			w.write("/proc/7/cgroup", "0::/system.slice/ssh.service\n")
		}, "foreign-agents", "systemctl status 7"},
	}
}

// A command that is typed as it stands must be able to mend what was found.
func TestRemediesCanHelp(t *testing.T) {
	for name, c := range remedies() {
		w := healthy(t)
		c.inject(w)
		if r := w.result(c.code); r.State == OK || !strings.Contains(r.Fix, c.fix) {
			t.Errorf("%s: %s, mend: %q; want %q in it", name, r.State, r.Fix, c.fix)
		}
	}
}

// The file to change is named, and kbnode's own drop-in is not.
func TestDropInThatWeakensTheSandboxIsNamed(t *testing.T) {
	w := healthy(t)
	w.smi(answering)
	w.config.Slots[0].Groups = []int{44}
	const own = "/etc/systemd/system/kbnode-agent@gpu0.service.d/host.conf"
	w.write(own, "[Service]\nSupplementaryGroups=44\n")
	w.programs[agentGroups] = "SupplementaryGroups=44\nDropInPaths=" + own + "\nMainPID=100\n"
	if got := bad(w.examine(false)); len(got) != 0 {
		t.Errorf("kbnode's own drop-in: found %q, want nothing", got)
	}
	w.override(agentGroups, "SupplementaryGroups=docker", "Groups=44", "Groups=44 docker")
	w.programs[agentGroups] = strings.Replace(w.programs[agentGroups], "DropInPaths="+own+"\n", "", 1)
	w.programs[agentGroups] = strings.Replace(w.programs[agentGroups], "DropInPaths=", "DropInPaths="+own+" ", 1)
	r := w.result("agent-group")
	if !strings.Contains(r.Text, "has docker") || !strings.Contains(r.Fix, " out of /etc/systemd/system/kbnode-agent@.service.d/mine.conf;") || strings.Contains(r.Text, own) {
		t.Errorf("got %q, %q; want mine.conf alone named", r.Text, r.Fix)
	}
}

// Of a paused slot nobody says that its agent runs and is connected.
func TestPausedSlotHasNoAgent(t *testing.T) {
	w := healthy(t)
	w.smi(answering)
	w.write(w.config.Slots[0].Paused(), "fan\n")
	w.programs["systemctl show --no-pager --property=LoadState,ActiveState,SubState"] = "LoadState=loaded\nActiveState=inactive\nNRestarts=0\n"
	delete(w.pages, "http://127.0.0.1:39300/status.json")
	got := map[string]Result{}
	for _, r := range w.examine(false) {
		got[r.Code] = r
	}
	if r := got["agent-unit"]; r.State != OK || r.Text != "no agent runs: the slot is paused" {
		t.Errorf("agent-unit: %s, %q", r.State, r.Text)
	}
	if r := got["agent-health"]; r.State != Skipped || r.Text != "the slot is paused" {
		t.Errorf("agent-health: %s, %q", r.State, r.Text)
	}
}

// addNeighbour adds a slot whose device node opens from here.
func (w *world) addNeighbour() {
	other := *w.config.Slots[0]
	other.Name = "gpu1"
	w.write("/dev/nvidia6", "")
	other.Devices = []node.Device{{Vendor: "nvidia", UUID: uuid, Nodes: []string{"/dev/nvidia6"}}}
	w.config.Slots[0].Name = "gpu0"
	w.config.Slots = append(w.config.Slots, &other)
	for _, dir := range other.UserDirs() {
		if err := os.MkdirAll(w.path(dir), 0o700); err != nil {
			w.t.Fatal(err)
		}
		w.chmod(dir, 0o700)
	}
	w.chmod(other.Dir(), 0o755)
	w.programs["systemctl show --no-pager --property=ActiveState "+other.MountUnit()] = "ActiveState=active\n"
	w.write(other.ProxySocket(), "")
	w.chmod(other.ProxySocket(), 0o600)
	for name, body := range map[string]string{"memory.max": fmt.Sprint(other.SliceBytes), "pids.max": "1100", "cpuset.cpus.effective": "1", "memory.swap.max": "0"} {
		w.write(other.CgroupDir()+"/"+name, body)
	}
}

// A preflight asks no network and no engine's list, and is about one slot.
func TestPreflightIsAboutItsSlot(t *testing.T) {
	w := healthy(t)
	w.smi(answering)
	w.addNeighbour()
	delete(w.pages, "https://agent.buildkite.com/v3/")
	w.remove((&node.Slot{Name: "gpu1"}).TempDir())
	results := w.examine(true, "gpu0")
	if got := bad(results); len(got) != 0 {
		t.Errorf("found %q, want nothing: another slot's faults keep nobody from starting", got)
	}
	for _, r := range results {
		if r.Slot == "gpu1" {
			t.Errorf("%+v: is about another slot", r)
		}
	}
}
