package spawn

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// double writes a script to run in the agent's place.
func double(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "buildkite-agent")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func options(t *testing.T, agent string) Options {
	t.Helper()
	return Options{
		Agent: agent, Endpoint: "http://127.0.0.1:1/v3", Token: "registration", Marker: fmt.Sprintf("SPAWN_TEST=%s", t.Name()),
		Dir: t.TempDir(), Sockets: t.TempDir(), Temp: "/nonexistent/tmp", Grace: time.Second,
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "TMPDIR=/elsewhere", "BUILDKITE_AGENT_ACCESS_TOKEN=secret", "KERNELBOT_PAYLOAD=secret", "KEPT=yes"},
	}
}

// patience bounds every wait; only a hang reaches it.
const patience = 5 * time.Minute

func stop(t *testing.T, p *Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// await waits for what other processes do: it looks until fn holds.
func await(t *testing.T, what string, fn func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if fn() {
			return
		}
	}
	t.Fatalf("%s: not within %s", what, patience)
}

func read(path string) string {
	data, _ := os.ReadFile(path)
	return strings.TrimSpace(string(data))
}

func alive(pid string) bool {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return false
	}
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n))
	return err == nil && !bytes.Contains(state, []byte(") Z "))
}

// Agents get the token by environment, not by arguments, and nothing of the
// caller's that would configure them or leak.
func TestWhatAgentsAreGiven(t *testing.T) {
	out := filepath.Join(t.TempDir(), "given")
	p, err := Start(options(t, double(t, `env > `+out+`.tmp; echo "args: $*" >> `+out+`.tmp; mv `+out+`.tmp `+out+`; exec sleep 600`)), "gpu", 3, "size=big")
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, p)
	await(t, "the agent's start", func() bool { return read(out) != "" })
	given := read(out)
	for _, want := range []string{"BUILDKITE_AGENT_TOKEN=registration", "BUILDKITE_AGENT_ENDPOINT=http://127.0.0.1:1/v3", "KEPT=yes", "TMPDIR=/nonexistent/tmp\n", "--spawn 3", "--tags queue=gpu,size=big"} {
		if !strings.Contains(given, want) {
			t.Errorf("the agent is not given %q:\n%s", want, given)
		}
	}
	_, args, _ := strings.Cut(given, "args: ")
	if strings.Contains(given, "secret") || strings.Contains(args, "registration") {
		t.Errorf("the agent is given too much:\n%s", given)
	}
}

// An agent that dies is started again, its pool says so, and the daemons its
// jobs left are gone.
func TestDeadAgentIsReplaced(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("daemons are found through /proc")
	}
	dir := t.TempDir()
	var mu sync.Mutex
	var died []int
	opts := options(t, double(t, `setsid sleep 600 & echo $! > `+dir+`/daemon.$$; echo $$ >> `+dir+`/pids; exec sleep 600`))
	opts.Died = func(pid int) { mu.Lock(); defer mu.Unlock(); died = append(died, pid) }
	p, err := Start(opts, "gpu", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, p)
	await(t, "the first agent", func() bool { return read(dir+"/pids") != "" })
	first, err := strconv.Atoi(read(dir + "/pids"))
	if err != nil {
		t.Fatal(err)
	}
	daemon := dir + fmt.Sprintf("/daemon.%d", first)
	await(t, "its daemon", func() bool { return alive(read(daemon)) })
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the second agent", func() bool { return len(strings.Fields(read(dir+"/pids"))) == 2 })
	await(t, "the end of the daemon", func() bool { return !alive(read(daemon)) })
	mu.Lock()
	defer mu.Unlock()
	if len(died) != 1 || died[0] != first {
		t.Errorf("Died was told %v, want [%d]", died, first)
	}
}

// Stop ends an agent that ignores every signal, with its descendants.
func TestStopEndsTheStubborn(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("descendants are found through /proc")
	}
	out := filepath.Join(t.TempDir(), "child")
	p, err := Start(options(t, double(t, `trap '' QUIT TERM INT; env -i sleep 600 & echo $$ > `+out+`.agent; echo $! > `+out+`; while :; do sleep 1; done`)), "gpu", 1)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the child", func() bool { return alive(read(out)) })
	stop(t, p)
	if alive(read(out + ".agent")) {
		t.Error("the agent is alive after Stop")
	}
	// Killed, but not this process's child: the kernel takes it away in its time.
	await(t, "the end of the child without environment", func() bool { return !alive(read(out)) })
}

func TestStartRefuses(t *testing.T) {
	opts := options(t, "/nonexistent/buildkite-agent")
	if _, err := Start(opts, "gpu", 1); err == nil || !strings.Contains(err.Error(), `queue "gpu"`) {
		t.Errorf("Start = %v, want an error that names the queue", err)
	}
}
