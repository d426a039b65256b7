package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/localtest"
)

// nodeTests is the variable that asks for tests on a booted machine.
const nodeTests = "KBGEN_NODE_TESTS"

// guestPatience bounds one command in the guest, which computes some thirty times
// slower than the machine.
const guestPatience = 15 * time.Minute

// needGuest skips a test that boots a machine, unless such are asked for.
func needGuest(t *testing.T) {
	t.Helper()
	if os.Getenv(nodeTests) != "1" {
		t.Skip("NOT RUN: boots a machine: make node-test")
	}
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: wants root, for the guest's disk")
	}
	if testing.Short() {
		t.Skip("NOT RUN: takes minutes")
	}
}

// A guest is a booted machine: systemd, cgroup v2, docker. tools/guest has the scripts.
type guest struct {
	t   *testing.T
	dir string
}

// bootGuest boots a machine from power-on, with so many processors and so much
// memory. It ends with the test.
func bootGuest(t *testing.T, cpus, memoryMiB int) *guest {
	t.Helper()
	g := &guest{t: t, dir: filepath.Join(t.TempDir(), "guest")}
	t.Setenv("CPUS", strconv.Itoa(cpus))
	t.Setenv("RAM_MB", strconv.Itoa(memoryMiB))
	t.Setenv("WAIT", "900") // of a busy machine
	t.Cleanup(func() {
		if t.Failed() {
			console, _ := os.ReadFile(filepath.Join(g.dir, "console.log"))
			t.Logf("the end of the guest's console:\n%s", tail(console, 2000))
		}
		_ = exec.Command(guestScript("boot.sh"), "--cut", g.dir).Run() // gone already: no fault
	})
	g.script("boot.sh", "--cold", g.dir)
	return g
}

func guestScript(name string) string { return filepath.Join(root, "tools", "guest", name) }

// script runs one of tools/guest's scripts.
func (g *guest) script(name string, args ...string) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guestPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, guestScript(name), args...)
	// Not a pipe: the machine that boot.sh starts inherits it.
	log, err := os.CreateTemp(g.t.TempDir(), "script")
	if err != nil {
		g.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(log.Name())
		g.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, tail(said, 3000))
	}
}

// try runs a command in the guest.
func (g *guest) try(command string) (stdout, stderr string, status int) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guestPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, guestScript("run.sh"), g.dir, command)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		g.t.Fatalf("in the guest: %s: %v", command, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// run runs a command in the guest, which must succeed, and returns what it printed.
func (g *guest) run(command string) string {
	g.t.Helper()
	out, errs, status := g.try(command)
	if status != 0 {
		g.t.Fatalf("in the guest: %s: exit status %d\n%s%s", command, status, tail([]byte(out), 4000), tail([]byte(errs), 4000))
	}
	return out
}

// put copies files and directories into a directory of the guest.
func (g *guest) put(to string, from ...string) {
	g.t.Helper()
	g.script("run.sh", append(append([]string{"--put", g.dir}, from...), to)...)
}

// file writes a file in the guest.
func (g *guest) file(name, text string) {
	g.t.Helper()
	local := filepath.Join(g.t.TempDir(), filepath.Base(name))
	if err := os.WriteFile(local, []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
	g.put(filepath.Dir(name), local)
}

// A nodeRig is a guest that kbnode sets up, and the stand-in that its agents talk to.
type nodeRig struct {
	rig
	guest *guest
	queue string // the queue file, in the guest
}

// nodeImage is what the steps of the rig's slots name: the row's own image, as
// kbgen writes it.
const nodeImage = "ghcr.io/gpu-mode/kbgen-runner:0.1.0-cuda"

// newNodeRig boots a machine with eight GPUs that are none, and gives it what a
// vendor has before kbnode: docker, the agent, an image.
func newNodeRig(t *testing.T) *nodeRig {
	t.Helper()
	r := &nodeRig{guest: bootGuest(t, 12, 14000), queue: "/root/node.yml"}
	r.t, r.dir = t, t.TempDir()
	artifacts := freePort(t)
	r.Server = localtest.Start(t, local.Options{
		ArtifactPort: artifacts, // the guest reaches what it knows the number of
		Dir:          r.dir, AgentBinary: agent, AgentPath: []string{bin}, AgentEnv: os.Environ(), Heartbeat: 5 * time.Second, LostAfter: 5 * time.Minute,
		Log: func(format string, args ...any) { t.Logf("stand-in: "+format, args...) },
	})
	if _, err := r.Engine.CreatePipeline(engine.Pipeline{Slug: "kernelbot", Configuration: kbgen.Bootstrap, SkipCheckout: true}); err != nil {
		t.Fatal(err)
	}
	r.start("bootstrap", 1)
	g := r.guest
	g.script("run.sh", "--host", g.dir, r.port(r.URL()), strconv.Itoa(artifacts))
	r.reached()
	g.script(filepath.Join("gpus", "gpus.sh"), g.dir, "8")
	g.put("/usr/bin", filepath.Join(bin, "kbnode"), filepath.Join(bin, "kblocal"), filepath.Join(bin, "kbrun"), agent)
	g.put("/usr/bin", kbrunNVML(t)) // asks the GPUs in one process, where the tool takes one for each answer
	g.put("/root/image", filepath.Join(bin, "kbrun"))
	g.run(`docker create --name new python true && docker cp /root/image/kbrun new:/usr/bin/kbrun && docker commit new ` + nodeImage + ` && docker rm new`)
	g.file("/root/token", r.AgentToken()+"\n")
	g.file(r.queue, queueFileOfEight())
	return r
}

// reached waits until a request from the guest reaches the stand-in: what passes
// connections on is a service of the guest, of which a boot that is emulated may
// leave one that never passes any. It is started again then, and the log says so.
func (r *nodeRig) reached() {
	g := r.guest
	g.t.Helper()
	for tries := 1; ; tries++ {
		said, _, status := g.try("curl -sS -m 60 -o /dev/null " + r.URL() + "/v3/ping 2>&1")
		if status == 0 {
			return
		}
		g.t.Logf("try %d: the guest does not reach the stand-in: %s\n%s", tries, said, r.passing())
		if tries == 4 {
			g.t.Fatal("the guest does not reach the stand-in")
		}
		g.run("systemctl restart host@" + r.port(r.URL()) + ".service")
	}
}

// passing describes what passes the guest's connections on to the stand-in.
func (r *nodeRig) passing() string {
	unit := "'host@" + r.port(r.URL()) + ".*'"
	out, _, _ := r.guest.try("systemctl --no-pager status " + unit + "; journalctl -b --no-pager -n 20 -u " + unit + "; systemctl --no-pager list-jobs; ss -tn; ip -br addr; uptime")
	return out
}

// kbrunNVML is kbrun with NVML, as releases have it.
func kbrunNVML(t *testing.T) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "kbrun-nvml")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", to, "./cmd/kbrun")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_CFLAGS=-g -O2 -Wno-deprecated-declarations")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building kbrun with NVML: %v\n%s", err, out)
	}
	return to
}

// port is that of a URL.
func (r *nodeRig) port(url string) string {
	_, port, _ := strings.Cut(strings.TrimPrefix(url, "http://"), ":")
	return strings.TrimSuffix(port, "/")
}

// queueFileOfEight describes the guest: eight GPUs by UUID, a core and a GiB each.
func queueFileOfEight() string {
	var b strings.Builder
	b.WriteString(`version: 1
vendor: guests
contacts: [{name: Nobody, email: nobody@guests.example}]
nodes:
  - name: guest
    isolation: node
    machine: {cpus: 12, memory_gib: 13, disk_gb: 1000, network_mbps: 1000}
    gpus:
      - type: H100_BK
        queue: h100
        agent: {cpus: 1, memory_gib: 1, disk_gb: 1}
        uuids:
`)
	for i := range 8 {
		fmt.Fprintf(&b, "          - GPU-%08x-feed-beef-cafe-%012x\n", i, i)
	}
	return b.String()
}

// apply sets the guest up, with flags besides those that every one needs.
func (r *nodeRig) apply(flags string) string {
	r.t.Helper()
	return r.guest.run(r.applyCommand(flags))
}

// applyCommand is the vendor page's, for the guest.
func (r *nodeRig) applyCommand(flags string) string {
	command := strings.NewReplacer("node.yml", r.queue, "--token-file token", "--token-file /root/token").Replace(r.page("kbnode apply"))
	return fmt.Sprintf("%s --node guest --endpoint %s/v3 --allow-small --allow-docker-restart %s",
		command, r.URL(), flags)
}

// page is the one command of the vendors' page that begins so, without sudo: the
// guest is root's.
func (r *nodeRig) page(begins string) string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "vendors.md"))
	if err != nil {
		r.t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "## Six commands\n\n```sh\n")
	block, _, whole := strings.Cut(block, "```")
	if lines := strings.Split(strings.TrimSpace(block), "\n"); !whole || len(lines) != 6 {
		r.t.Fatalf("docs/vendors.md: got %d commands, want six", len(lines))
	}
	for line := range strings.Lines(block) {
		if command := strings.TrimPrefix(strings.TrimSpace(line), "sudo "); strings.HasPrefix(command, begins) {
			return command
		}
	}
	r.t.Fatalf("docs/vendors.md: no command %q among the six", begins)
	return ""
}
