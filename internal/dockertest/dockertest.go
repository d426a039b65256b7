// Package dockertest starts a real docker engine for tests: a daemon with its own
// socket, storage and control groups, without networks, gone when the test ends.
package dockertest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Variable is set to "1" where such engines may be started.
const Variable = "KBGEN_DOCKER_TESTS"

// patience bounds every wait.
const patience = 5 * time.Minute

// A Client speaks to an engine.
type Client struct {
	T      testing.TB
	Host   string // "unix:///…"
	Config string // the directory of the client's own settings
}

// An Engine is a running daemon.
type Engine struct {
	Client
	dir string
	cmd *exec.Cmd
}

// Need skips the test where no engine can be started, or where [Variable] is not "1"
// in asked, and says why.
func Need(t testing.TB, asked string) {
	t.Helper()
	if asked != "1" {
		t.Skipf("NOT RUN: %s is not 1: make docker-test sets it", Variable)
	}
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: a docker engine of the test's own needs root")
	}
	for _, name := range []string{"dockerd", "containerd", "runc", "docker-init", "docker"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("NOT RUN: no %s on PATH: see tools/docker.sh", name)
		}
	}
}

// Start starts an engine, or skips the test where there can be none, or where asked,
// the value of [Variable], is not "1". Containers without a parent of their own go
// below a control group of the engine's.
func Start(t testing.TB, asked string) *Engine {
	t.Helper()
	Need(t, asked)
	dir, err := os.MkdirTemp("", "kbd-") // short: sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{Client: Client{t, "unix://" + filepath.Join(dir, "docker.sock"), dir}, dir: dir}
	t.Cleanup(e.stop)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	e.start()
	return e
}

// Socket is the path of the engine's.
func (e *Engine) Socket() string { return strings.TrimPrefix(e.Host, "unix://") }

// Dir is a directory that other users can read, gone with the engine.
func (e *Engine) Dir() string { return e.dir }

func (e *Engine) start() {
	t := e.T
	t.Helper()
	init, err := exec.LookPath("docker-init")
	if err != nil {
		t.Fatal(err)
	}
	_, file, _, _ := runtime.Caller(0)
	args := []string{
		"--data-root", filepath.Join(e.dir, "data"), "--exec-root", filepath.Join(e.dir, "exec"),
		"--pidfile", filepath.Join(e.dir, "dockerd.pid"), "--host", e.Host, "--cgroup-parent", e.group(),
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
		"--storage-driver", "vfs", "--init-path", init,
		// Where root may not raise limits, containers get the one there is.
		"--add-runtime", "memlock=" + filepath.Join(filepath.Dir(file), "..", "..", "e2e", "testdata", "docker", "runc-memlock"), "--default-runtime", "memlock",
	}
	log, err := os.Create(filepath.Join(e.dir, "dockerd.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	e.cmd = exec.Command("dockerd", args...)
	e.cmd.Stdout, e.cmd.Stderr = log, log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if err := e.Command("version").Run(); err == nil {
			return
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("dockerd does not answer after %s:\n%s", patience, text[max(0, len(text)-2000):])
		}
	}
}

func (e *Engine) group() string { return "/kbgen-docker-" + strconv.Itoa(os.Getpid()) }

// Command is a docker command for this engine.
func (c Client) Command(args ...string) *exec.Cmd { return c.CommandAt(c.Host, args...) }

// CommandAt is a docker command for another socket, such as a proxy's.
func (c Client) CommandAt(host string, args ...string) *exec.Cmd {
	cmd := exec.Command("docker", args...)
	cmd.Env = append(cmd.Environ(), "DOCKER_HOST="+host, "DOCKER_CONFIG="+c.Config, "DOCKER_BUILDKIT=0")
	return cmd
}

// Run runs a docker command that must succeed and returns its stdout.
func (c Client) Run(args ...string) string {
	c.T.Helper()
	cmd := c.Command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		c.T.Fatalf("docker %s: %v\n%s%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return strings.TrimSpace(stdout.String())
}

// Import makes an image that holds one static program, which is its shell as well,
// with these changes as Dockerfiles spell them, and returns its ID.
func (e *Engine) Import(name, program string, changes ...string) string {
	e.T.Helper()
	body, err := os.ReadFile(program)
	if err != nil {
		e.T.Fatal(err)
	}
	archive := pack(e.T, map[string]int64{"tmp/": 0o1777, "bin/": 0o755}, map[string][]byte{filepath.Base(program): body, "bin/sh": body})
	args := []string{"import"}
	for _, c := range changes {
		args = append(args, "--change", c)
	}
	cmd := e.Command(append(args, "-", name)...)
	cmd.Stdin = bytes.NewReader(archive)
	out, err := cmd.CombinedOutput()
	if err != nil {
		e.T.Fatalf("docker import: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// Program builds a static program from a Go file or package and returns its path,
// which ends in name.
func Program(t testing.TB, name, file string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, file)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", file, err, out)
	}
	return path
}

// stop ends the daemon and what it started.
func (e *Engine) stop() {
	if e.cmd != nil && e.cmd.Process != nil {
		ids, _ := e.Command("ps", "--all", "--quiet").Output()
		for _, id := range strings.Fields(string(ids)) {
			_ = e.Command("rm", "--force", id).Run()
		}
		_ = e.cmd.Process.Signal(syscall.SIGTERM)
		gone := make(chan error, 1)
		go func() { gone <- e.cmd.Wait() }() // ends with the process
		select {
		case <-gone:
		case <-time.After(patience):
			e.T.Errorf("dockerd did not end within %s of SIGTERM", patience)
			_ = e.cmd.Process.Kill()
			<-gone
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], e.dir+"/") {
			_ = syscall.Unmount(f[4], syscall.MNT_DETACH)
		}
	}
	e.RemoveGroup(e.group())
	if err := os.RemoveAll(e.dir); err != nil {
		e.T.Errorf("removing what the engine stored: %v", err)
	}
}

// RemoveGroup removes an empty control group, below each controller's root.
func (e *Engine) RemoveGroup(name string) {
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + strings.TrimPrefix(name, "/"))
	for _, dir := range append(groups, filepath.Join("/sys/fs/cgroup", name)) {
		if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
			e.T.Errorf("removing control group %s: %v", dir, err)
		}
	}
}
