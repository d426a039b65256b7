package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/dockertest"
	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/localtest"
	"github.com/gpu-mode/kbgen/node/gate"
	"github.com/gpu-mode/kbgen/node/proxy"
	"github.com/gpu-mode/kbgen/schema"
)

// patience bounds every wait.
const patience = 5 * time.Minute

// A gateRig is a stand-in for Buildkite with two real agents, one on a slot of each
// platform. Without settings they hold nothing back: what is refused, the gate
// refuses.
type gateRig struct {
	*local.Server
	t        *testing.T
	root     string // what stands for /
	agent    string
	kbnode   string
	settings []string
	engine   *dockertest.Recorder // takes the place of the proxy of gpu0
	as       *syscall.Credential  // of the agents; nil: this process's
	gpu0     *exec.Cmd            // the agent of slot gpu0
	strace   string               // traces the agents; empty: nothing does
}

const gateImage = "ghcr.io/gpu-mode/kbgen-runner:0.1.0-cuda"

// newGateRig starts it; settings are more lines of the agents' configuration.
func newGateRig(t *testing.T, settings ...string) *gateRig {
	t.Helper()
	r := &gateRig{settings: settings}
	r.init(t)
	return r
}

func (r *gateRig) init(t *testing.T) {
	t.Helper()
	agent := testenv.Agent(t, os.Getenv("PATH"))
	kbnode, err := exec.LookPath("kbnode") // this test, by another name
	if err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	r.t, r.root, r.agent, r.kbnode = t, t.TempDir(), agent, kbnode
	r.write("etc/kbnode/slots.yml", fmt.Sprintf(`version: 1
node: n
vendor: v
program: %s
agent: {path: %s, version: 3.138.0}
docker: {socket: /nonexistent}
slots:
  - {name: gpu0, user: %[3]s, job_user: %[3]s, queue: gpu, tags: [queue=gpu], gpu_type: X, platform: docker, cpus: 0-1, memory_bytes: 1, slice_bytes: 1000000, pids: 1, slice_pids: 100, images: [%[4]s], timeout: 1m, health_port: 1}
  - {name: host0, user: %[3]s, queue: host, tags: [queue=host], gpu_type: X, platform: host, cpus: 0-1, memory_bytes: 1, slice_bytes: 1000000, pids: 1, slice_pids: 100, commands: ["env; exec true"], timeout: 1m, health_port: 2}
`, kbnode, agent, me.Username, gateImage))
	r.start("gpu0", "host0")
	r.engine = dockertest.Record(t, r.path("run/kbnode/gpu0/docker.sock"))
	r.engine.Proxy = map[string]func() error{
		proxy.Clean: func() error { return proxy.RemoveJobs(r.path("var/lib/kbnode/slots/gpu0/tmp")) },
		proxy.Share: func() error { return nil },
	}
	r.engine.Program = func(request map[string]any, out io.Writer, _ <-chan struct{}) int {
		host := request["HostConfig"].(map[string]any)
		fmt.Fprintln(out, "container of", request["Image"], "with", host["Binds"], "runs", request["Cmd"])
		env, _ := request["Env"].([]any)
		for _, pair := range env {
			fmt.Fprintln(out, "container sees", pair)
		}
		return 0
	}
	r.gpu0 = r.startAgent("gpu0", "gpu")
	r.startAgent("host0", "host")
	r.connected(2)
}

// start starts the stand-in, with what the slots' agents need.
func (r *gateRig) start(slots ...string) {
	t := r.t
	t.Helper()
	for _, slot := range slots {
		for name, text := range map[string]string{"memory.max": "1000000", "pids.max": "100", "cpuset.cpus.effective": "0"} {
			r.write("sys/fs/cgroup/kbnode.slice/kbnode-"+slot+".slice/"+name, text+"\n")
		}
		if err := os.MkdirAll(r.path("var/lib/kbnode/slots/"+slot+"/tmp"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r.script("hooks/pre-bootstrap", fmt.Sprintf("exec %s gate --root %s", r.kbnode, r.root))
	r.Server = localtest.Start(t, local.Options{Dir: r.path("local"), AgentEnv: os.Environ(), Heartbeat: time.Second})
}

// connected waits for n agents.
func (r *gateRig) connected(n int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	if err := r.AwaitAgents(ctx, n); err != nil {
		r.t.Fatal(err)
	}
}

func (r *gateRig) path(name string) string { return filepath.Join(r.root, name) }

func (r *gateRig) write(name, text string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(r.path(name)), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(r.path(name), []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *gateRig) script(name, text string) {
	r.t.Helper()
	r.write(name, "#!/bin/sh\n"+text+"\n")
	if err := os.Chmod(r.path(name), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

// own gives a directory and what is in it to the agents' user.
func (r *gateRig) own(dir string) {
	r.t.Helper()
	if r.as == nil {
		return
	}
	if out, err := exec.Command("chown", "-R", fmt.Sprintf("%d:%d", r.as.Uid, r.as.Gid), dir).CombinedOutput(); err != nil {
		r.t.Fatalf("chown: %v\n%s", err, out)
	}
}

// startAgent starts a slot's agent as its unit does.
func (r *gateRig) startAgent(slot, queue string) *exec.Cmd {
	t := r.t
	runtime := r.path("run/kbnode-agent-" + slot)
	if err := os.MkdirAll(runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	sockets, err := os.MkdirTemp("", "kbg-") // short: sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	r.write("etc/kbnode/"+slot+"/agent.cfg", fmt.Sprintf("bootstrap-script=\"%s bootstrap --root %s\"\n%s\n", r.kbnode, r.root, strings.Join(r.settings, "\n")))
	cmd := exec.Command(r.agent, "start", "--config", r.path("etc/kbnode/"+slot+"/agent.cfg"), "--name", "n-"+slot, "--tags", "queue="+queue, "--no-color", "--no-ssh-keyscan",
		"--build-path", r.path("var/lib/kbnode/slots/"+slot+"/builds"), "--hooks-path", r.path("hooks"), "--sockets-path", sockets)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.root, "LANG=C.UTF-8", "TMPDIR=" + r.path("var/lib/kbnode/slots/"+slot+"/tmp"), gate.SlotVariable + "=" + slot,
		"GORACE=atexit_sleep_ms=0", "BUILDKITE_AGENT_TOKEN=" + r.AgentToken(), "BUILDKITE_AGENT_ENDPOINT=" + r.URL() + "/v3"}
	if r.strace != "" {
		cmd.Path, cmd.Args = r.strace, append([]string{r.strace, "-f", "-s", "200", "-e", "trace=execve", "-o", r.path("strace." + slot)}, cmd.Args...)
	}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM, Credential: r.as}
	r.own(sockets)
	r.own(r.path("var/lib/kbnode/slots"))
	r.own(runtime)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGQUIT) // strace keeps none from what it traces
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("agent of %s:\n%s", slot, log.String())
		}
	})
	return cmd
}

// job runs a build of one step and returns its job and log.
func (r *gateRig) job(slug, step string, env map[string]string) (engine.Job, string) {
	r.t.Helper()
	if _, err := r.Engine.CreatePipeline(engine.Pipeline{Slug: slug, Configuration: "steps:\n" + step, SkipCheckout: true}); err != nil {
		r.t.Fatal(err)
	}
	return r.built(slug, env)
}

// built runs a build of a pipeline of one step and returns its job and log.
func (r *gateRig) built(slug string, env map[string]string) (engine.Job, string) {
	r.t.Helper()
	return r.run(slug, engine.NewBuild{Env: env})
}

// run runs such a build of a pipeline of one step and returns its job and log.
func (r *gateRig) run(slug string, build engine.NewBuild) (engine.Job, string) {
	r.t.Helper()
	b, err := r.Engine.CreateBuild(slug, build)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	if b, err = r.Engine.Wait(ctx, b.ID); err != nil || len(b.Jobs) != 1 {
		r.t.Fatalf("waiting for the build: %v, %d jobs", err, len(b.Jobs))
	}
	f, err := r.Engine.Log(b.Jobs[0].ID)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		r.t.Fatal(err)
	}
	return b.Jobs[0], string(text)
}

// exitStatus is a job's exit status, -2 for one without.
func exitStatus(j engine.Job) int {
	if j.ExitStatus == nil {
		return -2
	}
	return *j.ExitStatus
}

// dockerStep is a step as kbgen writes it, with settings more.
func dockerStep(more string) string {
	return fmt.Sprintf(`  - command: exec kbrun evaluate
    agents: {queue: gpu}
    env: {KERNELBOT_GPU: X}
    plugins:
      - docker#v5.13.0: {image: "%s", skip-checkout: true, mount-buildkite-agent: false, propagate-uid-gid: true, init: false, tty: false, network: none, shm-size: 8g, environment: [KERNELBOT_GPU], drop-caps: [ALL]%s}
`, gateImage, more)
}

const hostStep = "  - {command: 'env; exec true', agents: {queue: host}}\n"

// A real agent asks the gate before each job: what kbgen writes runs, in an
// environment of known names; the rest is refused, and the log says why.
func TestGateOfRealAgent(t *testing.T) {
	gateOfRealAgent(t, "bash-env", "volumes", "other-plugin", "command", "plugin-on-host", "artifacts")
}

// TestSlowGateOfRealAgent has all jobs refused.
func TestSlowGateOfRealAgent(t *testing.T) {
	testenv.NeedSlow(t)
	gateOfRealAgent(t)
}

// gateOfRealAgent has the jobs named refused, or all.
func gateOfRealAgent(t *testing.T, names ...string) {
	if testing.Short() {
		t.Skip("NOT RUN: starts agents")
	}
	t.Parallel()
	r := newGateRig(t)
	t.Run("docker", func(t *testing.T) {
		j, log := r.job("docker", dockerStep(""), nil)
		if exitStatus(j) != 0 {
			t.Fatalf("exit status %d, %s:\n%s", exitStatus(j), j.SignalReason, log)
		}
		for _, want := range []string{
			"container of " + gateImage, "runs [/bin/sh -e -c exec kbrun evaluate]", "container sees KERNELBOT_GPU=X", ":/workdir]",
			r.path("var/lib/kbnode/slots/gpu0/tmp/buildkite-job-"),
		} {
			if !strings.Contains(log, want) {
				t.Errorf("the log lacks %q", want)
			}
		}
		if strings.Contains(log, "container sees BUILDKITE") {
			t.Error("the container sees a variable of the agent's")
		}
		if t.Failed() {
			t.Logf("the log:\n%s", log)
		}
	})
	t.Run("host", func(t *testing.T) {
		j, log := r.job("host", hostStep, map[string]string{"KERNELBOT_MODE": "test"})
		if exitStatus(j) != 0 || !strings.Contains(log, "KERNELBOT_MODE=test") || strings.Contains(log, "GORACE=") || !strings.Contains(log, "PWD="+r.path("var/lib/kbnode/slots/host0/tmp/buildkite-job-")) {
			t.Errorf("exit status %d, %s:\n%s", exitStatus(j), j.SignalReason, log)
		}
	})
	// As after a power cut: the server still has an agent of the name, and gives another.
	t.Run("docker-by-another-name", func(t *testing.T) {
		if err := r.gpu0.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		r.startAgent("gpu0", "gpu")
		j, log := r.job("docker-by-another-name", dockerStep(""), nil)
		if exitStatus(j) != 0 || !strings.Contains(log, "container of ") {
			t.Errorf("exit status %d, %s:\n%s", exitStatus(j), j.SignalReason, log)
		}
	})
	evil := r.path("evil")
	for name, c := range map[string]struct {
		step string
		env  map[string]string
		want string
	}{
		"bash-env":       {dockerStep(""), map[string]string{"BASH_ENV": "$(touch " + evil + ")"}, `variable "BASH_ENV": a job may not set it`},
		"path":           {hostStep, map[string]string{"PATH": "/evil"}, `variable "PATH": a job may not set it`},
		"privileged":     {dockerStep(""), map[string]string{"BUILDKITE_PLUGIN_DOCKER_PRIVILEGED": "true"}, `variable "BUILDKITE_PLUGIN_DOCKER_PRIVILEGED": a job may not set it`},
		"slot":           {hostStep, map[string]string{"KBNODE_SLOT": "gpu0"}, `variable "KBNODE_SLOT": a job may not set it`},
		"volumes":        {dockerStep(`, volumes: ["/:/host"]`), nil, `docker plugin: "volumes": the node decides that`},
		"image":          {strings.Replace(dockerStep(""), gateImage, "busybox", 1), nil, `docker plugin: image: got "busybox", want one of`},
		"second-plugin":  {dockerStep("") + "      - docker#v5.13.0: {image: x}\n", nil, "plugins: got 2, want"},
		"other-plugin":   {strings.Replace(dockerStep(""), "docker#v5.13.0", "docker#v5.12.0", 1), nil, "plugins: got \"github.com/buildkite-plugins/docker-buildkite-plugin#v5.12.0\", want"},
		"no-plugin":      {"  - {command: 'touch " + evil + "', agents: {queue: gpu}}\n", nil, "plugins: got none, want"},
		"command":        {"  - {command: 'touch " + evil + "', agents: {queue: host}}\n", nil, "command: got \"touch"},
		"plugin-on-host": {strings.Replace(dockerStep(""), "queue: gpu", "queue: host", 1), nil, "plugins: got some, want none"},
		"variable-name":  {dockerStep(""), map[string]string{"KERNELBOT_X[$(touch " + evil + ")]": "1"}, `variable "KERNELBOT_X[`},
		"environment":    {strings.Replace(dockerStep(""), "[KERNELBOT_GPU]", `["KERNELBOT_X[$$(touch `+evil+`)]"]`, 1), nil, "docker plugin: environment: got "},
		"setting-name":   {dockerStep(`, "init\nBUILDKITE_PLUGIN_DOCKER_ENVIRONMENT_0[$$(touch ` + evil + `)]": x`), nil, `docker plugin: "init\n`},
		"artifacts":      {strings.Replace(hostStep, "agents", "artifact_paths: '/etc/*', agents", 1), nil, `artifact_paths: got "/etc/*", want plain names`},
	} {
		if names != nil && !slices.Contains(names, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			j, log := r.job(name, c.step, c.env)
			if exitStatus(j) != schema.ExitConfig || !strings.Contains(log, c.want) {
				t.Errorf("exit status %d, reason %q; want %d, and %q in the log:\n%s", exitStatus(j), j.SignalReason, schema.ExitConfig, c.want, log)
			}
		})
	}
	if _, err := os.Stat(evil); err == nil {
		t.Error("a refused job ran something")
	}
	t.Run("no limits", func(t *testing.T) {
		r.write("sys/fs/cgroup/kbnode.slice/kbnode-host0.slice/memory.max", "max\n")
		j, log := r.job("unlimited", hostStep, nil)
		if want := "slot host0 is not fit for a job: kbnode-host0.slice: memory.max: got max, want 1000000"; exitStatus(j) != schema.ExitTempFail || !strings.Contains(log, want) {
			t.Errorf("exit status %d; want %d, and %q in the log:\n%s", exitStatus(j), schema.ExitTempFail, want, log)
		}
	})
	// The hook refuses by itself where the configuration names another bootstrap.
	t.Run("other bootstrap", func(t *testing.T) {
		r.write("etc/kbnode/host0/agent.cfg", "bootstrap-script=\"/usr/bin/other\"\n")
		if j, log := r.job("other-bootstrap", hostStep, map[string]string{"PATH": "/evil"}); j.SignalReason != "agent_refused" {
			t.Errorf("exit status %d, reason %q, want agent_refused:\n%s", exitStatus(j), j.SignalReason, log)
		}
	})
}

// nodeSettings are what the agents of a node are configured with besides.
var nodeSettings = []string{
	`no-local-hooks="true"`, `no-plugins="false"`, `no-plugin-validation="false"`, `plugins-always-clone-fresh="false"`, `strict-single-hooks="true"`,
	`skip-checkout="true"`, `checkout-override-mode="strict"`, `allowed-plugins="^github[.]com/buildkite-plugins/docker-buildkite-plugin#v5[.]13[.]0$"`,
	`enable-environment-variable-allowlist="true"`, `allowed-environment-variables="^KERNELBOT_[A-Z0-9_]+$,^SUBMISSION_PAYLOAD$,^GPU_QUEUE$"`,
}

// With a node's own settings the agent refuses some by itself. Either way the job's
// log says what it was.
func TestGateWithNodeSettings(t *testing.T) {
	gateWithNodeSettings(t, "bash-env", "plugin", "privileged")
}

// TestSlowGateWithNodeSettings has all jobs refused.
func TestSlowGateWithNodeSettings(t *testing.T) {
	testenv.NeedSlow(t)
	gateWithNodeSettings(t)
}

// gateWithNodeSettings has the jobs named refused, or all.
func gateWithNodeSettings(t *testing.T, names ...string) {
	if testing.Short() {
		t.Skip("NOT RUN: starts agents")
	}
	t.Parallel()
	r := newGateRig(t, nodeSettings...)
	for slug, step := range map[string]string{"docker": dockerStep(""), "host": hostStep} {
		j, log := r.job(slug, step, nil)
		if want := r.path("var/lib/kbnode/slots/"); exitStatus(j) != 0 || !strings.Contains(log, want) || !strings.Contains(log, "/tmp/buildkite-job-") {
			t.Errorf("%s: exit status %d, want 0 and a directory of the job's own:\n%s", slug, exitStatus(j), log)
		}
	}
	for name, c := range map[string]struct {
		step string
		env  map[string]string
		want string
	}{
		"bash-env":   {dockerStep(""), map[string]string{"BASH_ENV": "x"}, "BASH_ENV"},
		"plugin":     {strings.Replace(dockerStep(""), "docker#v5.13.0", "docker#v5.12.0", 1), nil, "v5.12.0"},
		"variable":   {dockerStep(""), map[string]string{"BUILDKITE_PLUGIN_DOCKER_PRIVILEGED": "true"}, "BUILDKITE_PLUGIN_DOCKER_PRIVILEGED"},
		"privileged": {dockerStep(", privileged: true"), nil, "privileged"},
		"command":    {"  - {command: id, agents: {queue: host}}\n", nil, `command: got "id"`},
	} {
		if names != nil && !slices.Contains(names, name) {
			continue
		}
		if j, log := r.job(name, c.step, c.env); exitStatus(j) == 0 || !strings.Contains(log, c.want) {
			t.Errorf("%s: exit status %d, want %q in the log:\n%s", name, exitStatus(j), c.want, log)
		}
	}
}
