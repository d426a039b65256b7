package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/dockertest"
	"github.com/gpu-mode/kbgen/templates"
)

// needDocker skips the test where it cannot run, and says why.
func needDocker(t *testing.T) {
	t.Helper()
	dockertest.Need(t, os.Getenv(dockertest.Variable))
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("NOT RUN: no git on PATH")
	}
}

// A dockerEngine is a docker daemon with its own socket, storage and control
// groups, which leaves nothing behind.
type dockerEngine struct {
	dockertest.Client
	t      *testing.T
	dir    string // everything of it; readable by other users
	cgroup string // parent of its containers, "/kbgen-docker-1234"
	cmd    *exec.Cmd
}

func startDocker(t *testing.T) *dockerEngine {
	t.Helper()
	dir, err := os.MkdirTemp("", "kbd-") // short: sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	e := &dockerEngine{Client: dockertest.Client{T: t, Host: "unix://" + filepath.Join(dir, "docker.sock"), Config: dir}, t: t, dir: dir, cgroup: fmt.Sprintf("/kbgen-docker-%d", os.Getpid())}
	t.Cleanup(e.stop)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	init, err := exec.LookPath("docker-init")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
		"--pidfile", filepath.Join(dir, "dockerd.pid"), "--host", e.Host, "--cgroup-parent", e.cgroup,
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
		"--storage-driver", e.storage(), "--init-path", init,
	}
	if !mayRaiseLimits(t) {
		t.Log("this machine's root lacks CAP_SYS_RESOURCE: containers get the memlock limit there is, not the step's")
		wrapper := filepath.Join(root, "e2e", "testdata", "docker", "runc-memlock")
		args = append(args, "--add-runtime", "memlock="+wrapper, "--default-runtime", "memlock")
	}
	log, err := os.Create(filepath.Join(dir, "dockerd.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	e.cmd = exec.Command("dockerd", args...)
	e.cmd.Stdout, e.cmd.Stderr = log, log
	// The daemon goes when the test is killed, and no signal to the test's
	// group takes it away before the jobs.
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if err := e.Command("version").Run(); err == nil {
			return e
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("dockerd does not answer after %s:\n%s", patience, tail(text, 2000))
		}
	}
}

// storage is overlay2 where an overlay can be mounted, else the slow driver
// that works everywhere.
func (e *dockerEngine) storage() string {
	at := filepath.Join(e.dir, "overlay")
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(at, name), 0o700); err != nil {
			e.t.Fatal(err)
		}
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", at)
	if syscall.Mount("overlay", filepath.Join(at, "merged"), "overlay", 0, options) != nil {
		return "vfs"
	}
	if err := syscall.Unmount(filepath.Join(at, "merged"), 0); err != nil {
		e.t.Fatal(err)
	}
	return "overlay2"
}

// mayRaiseLimits reports whether this process has CAP_SYS_RESOURCE.
func mayRaiseLimits(t *testing.T) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "CapEff:\t")
	digits, _, _ := strings.Cut(rest, "\n")
	caps, err := strconv.ParseUint(digits, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	const sysResource = 24
	return caps&(1<<sysResource) != 0
}

// stop ends the daemon and what it started, and fails the test when anything
// is left that the daemon should have taken away itself.
func (e *dockerEngine) stop() {
	if e.cmd != nil && e.cmd.Process != nil {
		ids, _ := e.Command("ps", "--all", "--quiet").Output()
		for _, id := range strings.Fields(string(ids)) {
			e.t.Errorf("container %s outlived its job", id)
			_ = e.Command("rm", "--force", id).Run() // the daemon kills it as it ends
		}
		_ = e.cmd.Process.Signal(syscall.SIGTERM)
		gone := make(chan error, 1)
		go func() { gone <- e.cmd.Wait() }() // ends with the process
		select {
		case <-gone:
		case <-time.After(patience):
			e.t.Errorf("dockerd did not end within %s of SIGTERM", patience)
			_ = e.cmd.Process.Kill()
			<-gone
		}
	}
	for _, pid := range e.processes() {
		e.t.Errorf("process %d of the engine is left", pid)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, at := range e.mounts() {
		// dockerd itself leaves this one, after a container in the host's network.
		if !strings.HasSuffix(at, "/exec/netns/default") {
			e.t.Errorf("%s is still mounted", at)
		}
		_ = syscall.Unmount(at, syscall.MNT_DETACH)
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*" + e.cgroup)
	for _, dir := range append(groups, "/sys/fs/cgroup"+e.cgroup) {
		if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
			e.t.Errorf("removing control group %s: %v", dir, err)
		}
	}
	if err := os.RemoveAll(e.dir); err != nil {
		e.t.Errorf("removing what the engine stored: %v", err)
	}
}

// processes lists the processes that have the engine's directory in their
// arguments: containerd and its shims.
func (e *dockerEngine) processes() []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(line, []byte(e.dir+"/")) {
			continue // gone, or not ours
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// mounts lists what is mounted below the engine's directory, innermost first.
func (e *dockerEngine) mounts() []string {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		e.t.Error(err)
	}
	var at []string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], e.dir+"/") {
			at = append([]string{f[4]}, at...)
		}
	}
	return at
}

// runnerImage builds the CPU runner image as package templates describes it,
// with the kbrun under test, on a base of Debian's packages.
func (e *dockerEngine) runnerImage(name string) {
	e.t.Helper()
	e.Run("import", rootfs(e.t), "kbgen-base:bookworm")
	image, err := templates.NewRunner(templates.CPU)
	if err != nil {
		e.t.Fatal(err)
	}
	image.Base, image.Version = "kbgen-base:bookworm", "test"
	text, err := image.Dockerfile()
	if err != nil {
		e.t.Fatal(err)
	}
	dir := e.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), text, 0o644); err != nil {
		e.t.Fatal(err)
	}
	copyFile(e.t, filepath.Join(bin, "kbrun"), filepath.Join(dir, "kbrun"))
	e.Run("build", "--network", "none", "--tag", name, dir)
}

// rootfs returns the tar of the CPU image's base. Making it takes a minute and
// a Debian mirror, so it is kept, under the name of the recipe's sum.
func rootfs(t *testing.T) string {
	t.Helper()
	recipe, err := templates.Rootfs()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("no place to keep the image's base: %v", err)
	}
	sum := sha256.Sum256(recipe)
	file := filepath.Join(cache, "kbgen", "rootfs-"+hex.EncodeToString(sum[:8])+".tar")
	if _, err := os.Stat(file); err == nil {
		return file
	}
	if _, err := exec.LookPath("debootstrap"); err != nil {
		t.Skip("no debootstrap on PATH, and no base of an earlier run")
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "rootfs.sh")
	if err := os.WriteFile(script, recipe, 0o600); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "sh", script, file).CombinedOutput(); err != nil {
		t.Skipf("the image's base cannot be made here: %v\n%s", err, out)
	}
	t.Logf("made the image's base in %.0f s: %s", time.Since(start).Seconds(), file)
	return file
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err == nil {
		_, err = io.Copy(out, in)
		err = errors.Join(err, out.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// tail returns the last n bytes of text.
func tail(text []byte, n int) []byte { return text[max(0, len(text)-n):] }
