package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/localtest"
)

// pluginDir is the variable that names a git repository with the real docker
// plugin's tag; without it a stand-in for what kbgen writes takes its place.
const pluginDir = "KBGEN_DOCKER_PLUGIN_DIR"

// A dockerRig is a rig whose evaluations run in containers.
type dockerRig struct {
	rig
	engine *dockerEngine
	steps  string // file with the pipeline that the bootstrap step uploads
}

func newDockerRig(t *testing.T, e *dockerEngine) *dockerRig {
	t.Helper()
	r := &dockerRig{engine: e, steps: filepath.Join(e.dir, "steps.yml")}
	r.t, r.dir = t, t.TempDir()
	r.Server = localtest.Start(t, local.Options{
		Dir: r.dir, AgentBinary: agent, AgentPath: []string{bin}, AgentEnv: os.Environ(), Heartbeat: time.Second,
		Log: func(format string, args ...any) { t.Logf("stand-in: "+format, args...) },
	})
	bootstrap := "steps: [{key: bootstrap, command: \"buildkite-agent pipeline upload " + r.steps + "\", agents: {queue: bootstrap}}]"
	if _, err := r.Engine.CreatePipeline(engine.Pipeline{Slug: "kernelbot", Configuration: bootstrap, SkipCheckout: true}); err != nil {
		t.Fatal(err)
	}
	if err := r.StartAgents("bootstrap", 1); err != nil {
		t.Fatal(err)
	}
	r.startAgent()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.AwaitAgents(ctx, 2); err != nil {
		t.Fatal(err)
	}
	return r
}

// startAgent starts a real agent for queue cpu as an ordinary user who may use
// docker, set up as a node is: without the Job API, whose socket and token the
// plugin would mount into every container.
func (r *dockerRig) startAgent() {
	t, dir := r.t, filepath.Join(r.engine.dir, "agent")
	for _, name := range []string{"", "builds", "plugins", "hooks", "sockets", "home", "bin"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "bin", "buildkite-agent")
	copyFile(t, agent, binary)
	config := filepath.Join(dir, "agent.cfg")
	if err := os.WriteFile(config, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	servePlugin(t, filepath.Join(dir, "plugin", "docker-buildkite-plugin"))
	if out, err := exec.Command("chown", "-R", fmt.Sprintf("%d:%d", jobUser, jobUser), dir, filepath.Join(r.engine.dir, "docker.sock")).CombinedOutput(); err != nil {
		t.Fatalf("chown: %v\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(r.engine.dir, "agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "start", "--config", config, "--name", "docker-1", "--tags", "queue=cpu",
		"--build-path", filepath.Join(dir, "builds"), "--plugins-path", filepath.Join(dir, "plugins"),
		"--hooks-path", filepath.Join(dir, "hooks"), "--sockets-path", filepath.Join(dir, "sockets"),
		"--bootstrap-script", binary+" bootstrap --no-job-api", "--no-ssh-keyscan", "--no-color")
	cmd.Env = []string{
		"PATH=" + filepath.Dir(binary) + ":" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"), "LANG=C.UTF-8",
		"DOCKER_HOST=" + r.engine.Host, "DOCKER_CONFIG=" + filepath.Join(dir, "home"),
		"BUILDKITE_AGENT_TOKEN=" + r.AgentToken(), "BUILDKITE_AGENT_ENDPOINT=" + r.URL() + "/v3",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://" + filepath.Join(dir, "plugin") + "/.insteadOf",
		"GIT_CONFIG_VALUE_0=https://github.com/buildkite-plugins/",
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid: true, Pdeathsig: syscall.SIGTERM,
		Credential: &syscall.Credential{Uid: jobUser, Gid: jobUser},
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }() // ends with the process
	t.Cleanup(func() {
		defer log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the end of the agent's log:\n%s", tail(text, 3000))
		}
		_ = cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-gone:
		case <-time.After(patience):
			t.Errorf("the agent did not end within %s", patience)
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-gone
		}
	})
}

// servePlugin puts a repository with the plugin's tag at to.
func servePlugin(t *testing.T, to string) {
	t.Helper()
	from := os.Getenv(pluginDir)
	git := func(dir string, args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=kbgen", "-c", "user.email=kbgen@localhost", "-c", "safe.directory=*"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	if from == "" {
		t.Logf("%s is not set: a stand-in takes the docker plugin's place", pluginDir)
		from = t.TempDir()
		if err := os.CopyFS(from, os.DirFS(filepath.Join("testdata", "docker", "plugin"))); err != nil {
			t.Fatal(err)
		}
		git(from, "init", "--quiet")
		git(from, "add", "--all")
		git(from, "commit", "--quiet", "--message", "stand-in")
		git(from, "tag", pluginTag)
	}
	git("", "clone", "--quiet", "--bare", "--branch", pluginTag, "--depth", "1", "file://"+from, to)
}

// A dockerStep says how a step differs from the one that kbgen writes for a
// machine with an NVIDIA GPU, less its names: it goes to queue cpu.
type dockerStep struct {
	image   string // instead of the runner image
	command string // instead of kbrun, to look at what surrounds it
	limits  bool   // cpus and memory, as in a step with step isolation
}

// use renders the step and lets the next builds upload it.
func (r *dockerRig) use(t *testing.T, change dockerStep) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s := command(t, ctx, nil, "", filepath.Join(bin, "kbgen"), "render", "evaluate",
		"--gpu", "H100_BK", "--image", cmp.Or(change.image, dockerImage))
	s.want(t, 0, "command: ", "docker#"+pluginTag, "tty: false")
	// The row's step as it is, but for a machine without its GPU.
	step := strings.NewReplacer("H100_BK", "CPU_BK", "h100", "cpu", "KERNELBOT_GPU_VENDOR: nvidia", "KERNELBOT_GPU_VENDOR: none").Replace(s.stdout)
	if change.limits {
		step = strings.Replace(step, "tty: false", "tty: false\n          cpus: \"2\"\n          memory: 1g\n          memory-swap: 1g", 1)
	}
	if change.command != "" {
		quoted := strings.ReplaceAll(strings.ReplaceAll(change.command, "'", "''"), "$", "$$")
		step = strings.Replace(step, "command: exec kbrun evaluate", "command: '"+quoted+"'", 1)
	}
	if err := os.WriteFile(r.steps, []byte(step), 0o644); err != nil {
		t.Fatal(err)
	}
}

// launch submits file, of the tiny task, and returns what was output.
func (r *dockerRig) launch(t *testing.T, file string, args ...string) output {
	t.Helper()
	here := rig{Server: r.Server, t: t, dir: r.dir}
	return here.launch(append([]string{"submit", tiny, file, "--gpu", "CPU_BK"}, args...)...)
}

// last is the newest build and its evaluation's last job.
func (r *dockerRig) last(t *testing.T) (engine.Build, engine.Job) {
	t.Helper()
	builds := r.Engine.Builds(engine.BuildFilter{})
	newest := slices.MaxFunc(builds, func(a, b engine.Build) int { return a.Number - b.Number })
	jobs := slices.DeleteFunc(slices.Clone(newest.Jobs), func(j engine.Job) bool { return j.StepKey != "evaluate-cpu" })
	if len(jobs) == 0 {
		t.Fatalf("build %d has no evaluation", newest.Number)
	}
	return newest, jobs[len(jobs)-1]
}

func (r *dockerRig) log(t *testing.T, j engine.Job) string {
	t.Helper()
	f, err := r.Engine.Log(j.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ended waits until the newest build has ended.
func (r *dockerRig) ended(t *testing.T) (engine.Build, engine.Job) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	b, _ := r.last(t)
	if _, err := r.Engine.Wait(ctx, b.ID); err != nil {
		t.Fatal(err)
	}
	return r.last(t)
}

// artifact is what was uploaded as result.json by the job, nil when nothing was.
func (r *dockerRig) artifact(t *testing.T, j engine.Job) []byte {
	t.Helper()
	all, err := r.Engine.JobArtifacts(j.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if a.Path == "result.json" && a.State == engine.ArtifactFinished {
			text, err := os.ReadFile(r.Engine.ArtifactFile(a.ID))
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
	}
	return nil
}

// dump shows the job's log when the test has failed.
func (r *dockerRig) dump(t *testing.T) {
	if t.Failed() {
		_, j := r.last(t)
		t.Logf("the end of the job's log:\n%s", tail([]byte(r.log(t, j)), 3000))
	}
}
