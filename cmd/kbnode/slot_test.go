package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/dockertest"
	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/local/engine"
)

// nobody is a user that every machine has.
const nobody = 65534

// copyProgram copies a program to where other users can run it.
func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	body, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, body, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// newDockerSlot is a slot whose agent, gate, bootstrap and proxy are the real ones,
// in front of a real engine. Its user is nobody.
func newDockerSlot(t *testing.T, e *dockertest.Engine) *gateRig {
	t.Helper()
	r := &gateRig{t: t, root: filepath.Join(e.Dir(), "r"), agent: filepath.Join(e.Dir(), "buildkite-agent"), as: &syscall.Credential{Uid: nobody, Gid: nobody}}
	copyProgram(t, testenv.Agent(t, os.Getenv("PATH")), r.agent)
	r.kbnode = filepath.Join(e.Dir(), "kbnode")
	copyProgram(t, filepath.Join(testenv.Commands(t), "kbnode"), r.kbnode)
	docker, err := exec.LookPath("docker")
	if err != nil {
		t.Fatal(err)
	}
	// A probe that is the image's shell: a step's command is what it is to do.
	e.Import(gateImage, dockertest.Program(t, "probe", "../../node/proxy/testdata/probe/main.go"))
	r.write("etc/kbnode/slots.yml", fmt.Sprintf(`version: 1
node: n
vendor: v
program: %s
agent: {path: %s, version: 3.138.0}
docker: {socket: %s, cli: %s}
slots:
  - {name: gpu0, user: nobody, job_user: daemon, queue: gpu, tags: [queue=gpu], gpu_type: X, platform: docker, cpus: "0", memory_bytes: 268435456, slice_bytes: 1000000, pids: 50, slice_pids: 100, images: ["%s"], timeout: 1m, health_port: 1}
`, r.kbnode, r.agent, e.Socket(), docker, gateImage))
	if out, err := exec.Command(r.kbnode, "image", "update", gateImage, "--local", "--root", r.root).CombinedOutput(); err != nil {
		t.Fatalf("kbnode image update: %v\n%s", err, out)
	}
	// The timer asks no registry for what was loaded by hand.
	if out, err := exec.Command(r.kbnode, "image", "update", "--all", "--root", r.root).CombinedOutput(); err != nil || !strings.Contains(string(out), gateImage+": nothing to do") {
		t.Fatalf("kbnode image update --all: %v\n%s", err, out)
	}
	t.Cleanup(func() { e.RemoveGroup("kbnode-gpu0.slice") })
	r.start("gpu0")
	r.startProxy(e)
	r.startAgent("gpu0", "gpu")
	r.connected(1)
	return r
}

func (r *gateRig) startProxy(e *dockertest.Engine) {
	t := r.t
	socket := r.path("run/kbnode/gpu0/docker.sock")
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(r.kbnode, "proxy", "--slot", "gpu0", "--root", r.root, "--socket", socket)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := exec.Command(r.kbnode, "reap", "--slot", "gpu0", "--root", r.root).CombinedOutput(); err != nil {
			t.Errorf("kbnode reap: %v\n%s", err, out)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the proxy:\n%s", log.String())
		}
	})
	for { // the test's own end bounds it
		if e.CommandAt("unix://"+socket, "version").Run() == nil {
			break
		}
		if t.Context().Err() != nil || cmd.Process.Signal(syscall.Signal(0)) != nil {
			t.Fatalf("the proxy does not answer:\n%s", log.String())
		}
	}
	r.own(socket)
}

// A job of kbgen's on a slot: agent, plugin, docker's own command, proxy, engine.
func TestDockerSlot(t *testing.T) {
	e := dockertest.Start(t, os.Getenv(dockertest.Variable))
	r := newDockerSlot(t, e)
	t.Run("right", func(t *testing.T) {
		step := strings.Replace(dockerStep(""), "exec kbrun evaluate", "id status=CapEff env write=/workdir/result.json exit=7", 1)
		step = strings.Replace(step, "    agents:", "    artifact_paths: [result.json]\n    agents:", 1)
		j, log := r.job("right", step, map[string]string{"KERNELBOT_MODE": "test"})
		for _, want := range []string{"1 65534", "CapEff:\t0000000000000000", "KERNELBOT_GPU=X", "NVIDIA_VISIBLE_DEVICES=void"} {
			if !strings.Contains(log, want) {
				t.Errorf("the job's log lacks %q", want)
			}
		}
		if exitStatus(j) != 7 || strings.Contains(log, "KERNELBOT_MODE=") || strings.Contains(log, "ACCESS_TOKEN=") {
			t.Errorf("exit status %d, want 7 and none but the step's variables:\n%s", exitStatus(j), log)
		}
		all, err := r.Engine.JobArtifacts(j.ID)
		if err != nil || len(all) != 1 {
			t.Errorf("%d artifacts, %v, want result.json:\n%s", len(all), err, log)
		}
	})
	// What the gate does not see, the proxy refuses: the reason is in the same log.
	t.Run("unpinned", func(t *testing.T) {
		if err := os.Rename(r.path("var/lib/kbnode/pins.yml"), r.path("pins")); err != nil {
			t.Fatal(err)
		}
		j, log := r.job("unpinned", dockerStep(""), nil)
		if want := "kbnode: image \"" + gateImage + "\": none is pinned on this node: kbnode image update " + gateImage; exitStatus(j) == 0 || !strings.Contains(log, want) {
			t.Errorf("exit status %d, want %q in the log:\n%s", exitStatus(j), want, log)
		}
		if err := os.Rename(r.path("pins"), r.path("var/lib/kbnode/pins.yml")); err != nil {
			t.Fatal(err)
		}
	})
	// The process that runs a job is killed with a container under way: nothing is left
	// to stop it, and the proxy does.
	t.Run("killed", func(t *testing.T) {
		if _, err := r.Engine.CreatePipeline(engine.Pipeline{Slug: "killed", Configuration: "steps:\n" + strings.Replace(dockerStep(""), "exec kbrun evaluate", "hang", 1), SkipCheckout: true}); err != nil {
			t.Fatal(err)
		}
		b, err := r.Engine.CreateBuild("killed", engine.NewBuild{})
		if err != nil {
			t.Fatal(err)
		}
		ids := func() string { return strings.TrimSpace(e.Run("ps", "--quiet", "--filter", "label=kbnode.slot=gpu0")) }
		await := func(what string, done func() bool) {
			t.Helper()
			for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("no %s after %s", what, patience)
				}
			}
		}
		await("container", func() bool { return ids() != "" })
		if out, err := exec.Command("pkill", "-KILL", "--full", "^"+r.kbnode+" bootstrap").CombinedOutput(); err != nil {
			t.Fatalf("pkill: %v: %s", err, out)
		}
		await("end of the container", func() bool { return ids() == "" })
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if b, err = r.Engine.Wait(ctx, b.ID); err != nil || b.Jobs[0].State == engine.JobPassed {
			t.Errorf("the job ended %s, %v", b.Jobs[0].State, err)
		}
	})
	t.Run("reap", func(t *testing.T) {
		id := e.Run("run", "--detach", "--network", "none", "--label", "kbnode.slot=gpu0", gateImage, "/probe", "hang")
		left := r.path("var/lib/kbnode/slots/gpu0/tmp/buildkite-job-left")
		if err := os.Mkdir(left, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/etc", filepath.Join(left, "link")); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(r.kbnode, "reap", "--slot", "gpu0", "--root", r.root).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "slot gpu0: 1 containers were left by its jobs") {
			t.Errorf("reap: %v\n%s", err, out)
		}
		if _, err := os.Stat(left); err == nil || e.Command("inspect", id).Run() == nil {
			t.Error("something is left")
		}
	})
}
