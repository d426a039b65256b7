package templates

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
)

func testNode(systemd int) *Node {
	return &Node{Program: "/bin/true", Agent: "/bin/true", Systemd: systemd, Stop: 17 * time.Minute, Docker: true, Allow: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}
}

func testSlice() *NodeSlice {
	return &NodeSlice{Slot: "gpu0", GPUType: "H100_BK", CPUs: "0-7,64-71", MemoryNodes: "0", MemoryBytes: 64 << 30, Pids: 4352, Nodes: []string{"/dev/nvidia7", "/dev/nvidiactl"}}
}

func TestNodeUnits(t *testing.T) {
	for _, systemd := range []int{257, 247} {
		units, err := testNode(systemd).Units()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(units, func(u NodeFile) bool { return u.Name == "kbnode-agent@.service" })
		for _, want := range []string{"IPAddressDeny=link-local multicast 10.0.0.0/8", "IPAddressAllow=localhost 10.0.0.2\n", "StandardInput=file:/etc/kbnode/token\n", "--token fd://0\n", "TimeoutStopSec=1020\n", "ReadWritePaths=/var/lib/kbnode/slots/%i\n", "RuntimeDirectory=kbnode-agent-%i\n", "KillMode=mixed\n", "RemoveIPC=yes\n"} {
			if !strings.Contains(units[i].Content, want) {
				t.Errorf("systemd %d: the agent's unit lacks %q:\n%s", systemd, want, units[i].Content)
			}
		}
		for _, u := range units { // what the start limit stops, nobody starts again
			if strings.Contains(u.Content, "\nRestart=") && !strings.Contains(u.Content, "\nStartLimitIntervalSec=0\n") {
				t.Errorf("%s may stay down", u.Name)
			}
		}
		hooks, err := testNode(systemd).Hooks()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range append(units, hooks...) {
			if left := regexp.MustCompile(`@[A-Z]+@`).FindString(f.Content); left != "" {
				t.Errorf("%s: the placeholder %s is left", f.Name, left)
			}
		}
	}
}

func TestNodeValuesThatDoNotFit(t *testing.T) {
	for name, change := range map[string]func(*Node, *NodeSlice){
		"program":      func(n *Node, _ *NodeSlice) { n.Program = "kbnode" },
		"agent":        func(n *Node, _ *NodeSlice) { n.Agent = "/bin/a\nUser=root" },
		"slot":         func(_ *Node, s *NodeSlice) { s.Slot = "../gpu0" },
		"CPUs":         func(_ *Node, s *NodeSlice) { s.CPUs = "0-7\nMemoryMax=infinity" },
		"no CPUs":      func(_ *Node, s *NodeSlice) { s.CPUs = "" },
		"memory nodes": func(_ *Node, s *NodeSlice) { s.MemoryNodes = "x" },
		"device node":  func(_ *Node, s *NodeSlice) { s.Nodes = []string{"/dev/nvidia0 rwm"} },
	} {
		n, s := testNode(257), testSlice()
		change(n, s)
		_, units := n.Units()
		_, slice := s.Unit()
		if placeholder := new(PlaceholderError); !errors.As(errors.Join(units, slice), &placeholder) {
			t.Errorf("a wrong %s: got %v, %v", name, units, slice)
		}
	}
}

// write puts all units of a node with one slot into a directory, host or not.
func writeUnits(t *testing.T, systemd int, host bool) string {
	t.Helper()
	dir := t.TempDir()
	n := testNode(systemd)
	units, err := n.Units()
	if err != nil {
		t.Fatal(err)
	}
	slice, err := testSlice().Unit()
	if err != nil {
		t.Fatal(err)
	}
	units = append(units, NodeFile{"kbnode-gpu0.slice", slice})
	if host {
		dropIn, err := n.HostDropIn([]int{44, 109})
		if err != nil {
			t.Fatal(err)
		}
		units = append(units, NodeFile{"kbnode-agent@gpu0.service.d/host.conf", dropIn})
	}
	for _, u := range units {
		path := filepath.Join(dir, u.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(u.Content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestNodeUnitsAreVerified(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("NOT RUN: no systemd-analyze on PATH")
	}
	for _, host := range []bool{false, true} {
		dir := writeUnits(t, 252, host)
		var units []string
		entries, _ := filepath.Glob(filepath.Join(dir, "kbnode*"))
		for _, e := range entries {
			if !strings.HasSuffix(e, ".d") {
				units = append(units, strings.Replace(e, "@.", "@gpu0.", 1))
			}
		}
		for _, u := range units { // an instance is a link to its template
			if _, err := os.Lstat(u); err != nil {
				if err := os.Symlink(strings.Replace(filepath.Base(u), "@gpu0.", "@.", 1), u); err != nil {
					t.Fatal(err)
				}
			}
		}
		verify := exec.Command(analyze, append([]string{"verify", "--man=no"}, units...)...)
		verify.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
		out, _ := verify.CombinedOutput() // its status tells of other units as well
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "kbnode") {
				t.Errorf("host %v: systemd: %s", host, line)
			}
		}
	}
}

// A unit's exposure is what systemd-analyze says of its settings.
func TestUnitsAreHardened(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("NOT RUN: no systemd-analyze on PATH")
	}
	units, err := testNode(252).Units()
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range units {
		unit, most := u.Name, 4.0
		switch {
		case !strings.HasSuffix(unit, ".service"):
			continue
		case unit == "kbnode-agent@.service":
			most = 2.0
		}
		out, err := exec.Command(analyze, "security", "--offline=true", "--no-pager", filepath.Join(writeUnits(t, 252, false), unit)).CombinedOutput()
		m := exposure.FindStringSubmatch(string(out))
		if m == nil {
			t.Skipf("NOT RUN: this systemd-analyze tells no exposure: %v", err)
		}
		t.Logf("%s: %s", unit, m[1])
		if level, _ := strconv.ParseFloat(m[1], 64); level > most {
			t.Errorf("%s: exposure %s, want at most %.1f:\n%s", unit, m[1], most, out)
		}
	}
}

func testAgentConfig(major int) *AgentConfig {
	return &AgentConfig{
		Major: major, Name: "h100-01-gpu0", Slot: "gpu0", Tags: []string{"queue=h100", "gpu=H100_BK"}, Program: "/usr/bin/kbnode", Docker: true,
		Plugin: "github.com/buildkite-plugins/docker-buildkite-plugin#v5.13.0",
		JWKS:   "/etc/kbnode/jwks.json", Endpoint: "http://10.0.2.2:1/v3", HealthPort: 39300, CancelSecs: 10,
	}
}

func TestAgentConfig(t *testing.T) {
	v3, err := testAgentConfig(3).File()
	if err != nil {
		t.Fatal(err)
	}
	v4, err := testAgentConfig(4).File()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		file, has, lacks string
	}{
		{v3, "cancel-grace-period=\"10\"\n", "cancel-signal-timeout"},
		{v4, "cancel-signal-timeout=\"10s\"\n", "cancel-grace-period"},
		{v3, `allowed-plugins="^github[.]com/buildkite-plugins/docker-buildkite-plugin#v5[.]13[.]0$"` + "\n", `\`},
		{v3, "no-ssh-keyscan=\"true\"\n", "timestamp-lines"},
		{v3, "no-command-eval=\"true\"\nno-plugins=\"false\"\n", "token"},
	} {
		if !strings.Contains(tt.file, tt.has) || strings.Contains(strings.ReplaceAll(tt.file, "_TOKEN", ""), tt.lacks) {
			t.Errorf("want %q and no %q in\n%s", tt.has, tt.lacks, tt.file)
		}
	}
	host := testAgentConfig(3)
	host.Docker = false
	if file, err := host.File(); err != nil || !strings.Contains(file, "no-command-eval=\"false\"\nno-plugins=\"true\"\n") || strings.Contains(file, "allowed-plugins") {
		t.Errorf("host (%v):\n%s", err, file)
	}
	if file, err := host.File(); err != nil || !strings.Contains(file, "disconnect-after-job=\"true\"\n") || strings.Contains(v3, "disconnect-after-job=\"true\"") {
		t.Errorf("want an agent that ends with its job on a slot without containers, and on no other (%v):\n%s", err, file)
	}
	if _, err := testAgentConfig(5).File(); err == nil {
		t.Error("version 5 of the agent has a config")
	}
	odd := testAgentConfig(3)
	odd.Tags = []string{"queue=a\"\nhooks-path=/tmp"}
	if file, err := odd.File(); err == nil {
		t.Errorf("a tag with a line end:\n%s", file)
	}
}

// The agent says which settings it has.
func TestAgentHasTheSettings(t *testing.T) {
	agent := testenv.Agent(t, os.Getenv("PATH"))
	version, _ := exec.Command(agent, "--version").Output()
	help, err := exec.Command(agent, "start", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	major := 3
	if strings.Contains(string(version), "version 4.") {
		major = 4
	}
	file, err := testAgentConfig(major).File()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(file) {
		key, _, _ := strings.Cut(line, "=")
		if !regexp.MustCompile(`--` + key + `\b`).Match(help) {
			t.Errorf("%s has no setting %s", strings.TrimSpace(string(version)), key)
		}
	}
}

// Every variable that a build may carry passes, and what changes how programs
// start does not.
func TestAllowedVariables(t *testing.T) {
	allowed := func(name string) bool {
		return slices.ContainsFunc(allowedVariables(), func(p string) bool { return regexp.MustCompile(p).MatchString(name) })
	}
	names := []string{
		schema.EnvPayload, schema.EnvPayloadChunk(12), schema.EnvPayloadChunks, schema.EnvPayloadSHA256, schema.EnvRunID, schema.EnvGPU, schema.EnvQueue,
		schema.EnvMode, schema.EnvTimeoutSeconds, schema.EnvUser, schema.EnvImage, schema.EnvDeadline, schema.EnvGPUVendor, schema.EnvGPUCount,
		schema.EnvGPUName, schema.EnvGPUArch, schema.EnvGPUMemoryGiB, schema.EnvStepGPU, schema.EnvStepQueue, schema.EnvSandbox, schema.EnvUntrusted,
		schema.EnvSandboxRead, schema.EnvRetain, schema.EnvBroker, schema.EnvVendor, schema.EnvGPUs, schema.EnvCPUs, schema.EnvMemoryGiB,
		schema.EnvOldPayload, schema.EnvOldQueue, schema.SecretEnv(schema.EnvRunID),
	}
	for _, name := range names {
		if !allowed(name) {
			t.Errorf("%s is refused", name)
		}
	}
	for _, name := range []string{"BASH_ENV", "LD_PRELOAD", "PATH", "DOCKER_HOST", "GPU_QUEUE_X", "XKERNELBOT_A", "TMPDIR", "KBNODE_SLOT"} {
		if allowed(name) {
			t.Errorf("%s is let through", name)
		}
	}
}

// No shell on the machine reads what a job brings: a hook starts kbnode, and that is
// all it does.
func TestHooksAreOneExec(t *testing.T) {
	hooks, err := testNode(257).Hooks()
	if err != nil {
		t.Fatal(err)
	}
	one := regexp.MustCompile(`^#!/bin/sh\n(#[^\n]*\n)*exec /[A-Za-z0-9/_-]+ [a-z]+\n$`)
	for _, h := range hooks {
		if !one.MatchString(h.Content) {
			t.Errorf("%s is more than one exec line:\n%s", h.Name, h.Content)
		}
	}
}
