package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema"
)

// pluginDir is the variable that names a git repository with the real docker
// plugin's tag; without it a stand-in for what kbgen writes takes its place.
const pluginDir = "KBGEN_DOCKER_PLUGIN_DIR"

const (
	dockerImage = "kbgen-runner:test-cpu"
	pluginTag   = "v5.13.0"
	// jobUser is who runs the agent, and so who a step is in its container: a
	// user that neither the machine nor the image knows.
	jobUser = 64321
)

// A dockerRoad is a road on which the evaluation runs in a container.
type dockerRoad struct {
	road
	engine *dockerEngine
	steps  string // file with the pipeline that the bootstrap step uploads
}

// Steps in containers, as kbgen writes them, on a real docker engine.
func TestDocker(t *testing.T) {
	needDocker(t)
	e := startDocker(t)
	start := time.Now()
	e.runnerImage(dockerImage)
	t.Logf("image imported and built in %.1f s", time.Since(start).Seconds())
	r := newDockerRoad(t, e)
	t.Run("verdicts", func(t *testing.T) { r.verdicts(t) })
	t.Run("step isolation", func(t *testing.T) { r.stepIsolation(t) })
	t.Run("container", func(t *testing.T) { r.container(t) })
	t.Run("submission", func(t *testing.T) { r.submission(t) })
	t.Run("link", func(t *testing.T) { r.link(t) })
	t.Run("forger", func(t *testing.T) { r.forger(t) })
	t.Run("cancel", func(t *testing.T) { r.cancel(t) })
	t.Run("missing image", func(t *testing.T) { r.missingImage(t) })
	t.Run("figures", func(t *testing.T) { r.figures(t) })
}

func newDockerRoad(t *testing.T, e *dockerEngine) *dockerRoad {
	t.Helper()
	r := &dockerRoad{engine: e, steps: filepath.Join(e.dir, "steps.yml")}
	r.t, r.dir = t, t.TempDir()
	var err error
	r.Server, err = local.Start(local.Options{
		Dir: r.dir, AgentBinary: agent, AgentPath: []string{bin}, AgentEnv: os.Environ(), Heartbeat: time.Second,
		Log: func(format string, args ...any) { t.Logf("stand-in: "+format, args...) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			t.Errorf("closing the stand-in: %v", err)
		}
	})
	bootstrap := "steps: [{key: bootstrap, command: \"buildkite-agent pipeline upload " + r.steps + "\", agents: {queue: bootstrap}}]"
	if _, err := r.Engine.CreatePipeline(engine.Pipeline{Slug: "kernelbot", Configuration: bootstrap, SkipCheckout: true}); err != nil {
		t.Fatal(err)
	}
	if err := r.StartAgents("bootstrap", 1); err != nil {
		t.Fatal(err)
	}
	r.startAgent()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := r.AwaitAgents(ctx, 2); err != nil {
		t.Fatal(err)
	}
	return r
}

// startAgent starts a real agent for queue cpu as an ordinary user who may use
// docker, set up as a node is: without the Job API, whose socket and token the
// plugin would mount into every container.
func (r *dockerRoad) startAgent() {
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
		"DOCKER_HOST=" + r.engine.host(), "DOCKER_CONFIG=" + filepath.Join(dir, "home"),
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
		case <-time.After(20 * time.Second):
			t.Error("the agent did not end within 20 s")
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
func (r *dockerRoad) use(t *testing.T, change dockerStep) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
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

// launch submits file, of the tiny task, and returns what was said.
func (r *dockerRoad) launch(t *testing.T, file string, args ...string) said {
	t.Helper()
	here := road{Server: r.Server, t: t, dir: r.dir}
	return here.launch(append([]string{"submit", filepath.Join("testdata", "tiny"), file, "--gpu", "CPU_BK"}, args...)...)
}

// last is the newest build and its evaluation's last job.
func (r *dockerRoad) last(t *testing.T) (engine.Build, engine.Job) {
	t.Helper()
	builds := r.Engine.Builds(engine.BuildFilter{})
	newest := slices.MaxFunc(builds, func(a, b engine.Build) int { return a.Number - b.Number })
	jobs := slices.DeleteFunc(slices.Clone(newest.Jobs), func(j engine.Job) bool { return j.StepKey != "evaluate-cpu" })
	if len(jobs) == 0 {
		t.Fatalf("build %d has no evaluation", newest.Number)
	}
	return newest, jobs[len(jobs)-1]
}

func (r *dockerRoad) log(t *testing.T, j engine.Job) string {
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
func (r *dockerRoad) ended(t *testing.T) (engine.Build, engine.Job) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	b, _ := r.last(t)
	if _, err := r.Engine.Wait(ctx, b.ID); err != nil {
		t.Fatal(err)
	}
	return r.last(t)
}

// artifact is what was uploaded as result.json by the job, nil when nothing was.
func (r *dockerRoad) artifact(t *testing.T, j engine.Job) []byte {
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
func (r *dockerRoad) dump(t *testing.T) {
	if t.Failed() {
		_, j := r.last(t)
		t.Logf("the end of the job's log:\n%s", tail([]byte(r.log(t, j)), 3000))
	}
}

// The result written in the container reaches the launcher by the host.
func (r *dockerRoad) verdicts(t *testing.T) {
	defer r.dump(t)
	r.use(t, dockerStep{})
	r.launch(t, "testdata/tiny/right.py", "--mode", "leaderboard").want(t, 0, "passed")
	_, j := r.last(t)
	if j.ExitStatus == nil || *j.ExitStatus != 0 {
		t.Errorf("the job ended with %v, want 0", j.ExitStatus)
	}
	r.launch(t, "testdata/tiny/crash.py", "--mode", "test").want(t, 1)
	r.launch(t, "testdata/tiny/chatty.py", "--mode", "test").want(t, 0, "passed")
	r.launch(t, "testdata/tiny/hang.py", "--mode", "test").want(t, 1)
}

// A step that carries the row's limits gets them.
func (r *dockerRoad) stepIsolation(t *testing.T) {
	defer r.dump(t)
	limits := "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null || true"
	r.use(t, dockerStep{limits: true})
	r.launch(t, "testdata/tiny/right.py", "--mode", "test").want(t, 0, "passed")
	r.use(t, dockerStep{limits: true, command: limits})
	r.launch(t, "testdata/tiny/right.py", "--mode", "test", "--timeout", "20s")
	_, j := r.ended(t)
	if text := r.log(t, j); !strings.Contains(text, "1073741824") {
		t.Errorf("the container is not limited to 1 GiB")
	}
}

// What surrounds kbrun: the agent's user, nothing to gain, nothing to take.
func (r *dockerRoad) container(t *testing.T) {
	defer r.dump(t)
	r.use(t, dockerStep{command: strings.Join([]string{
		"echo BEGIN-$((6 * 7))", "id -u", `grep -E "CapEff|CapBnd|NoNewPrivs" /proc/self/status`, `cut -d " " -f 5 /proc/self/mountinfo`,
		"env | cut -d = -f 1", "ls -A /workdir", "ls /sys/class/net", "touch /root-is-writable || echo refused", "echo END-$((6 * 7))",
	}, "; ")})
	r.launch(t, "testdata/tiny/right.py", "--mode", "test", "--timeout", "20s")
	_, j := r.ended(t)
	_, text, _ := strings.Cut(r.log(t, j), "BEGIN-42") // not 6 * 7: the plugin shows the command
	text, _, whole := strings.Cut(text, "END-42")
	if !whole {
		t.Fatal("the container did not describe itself")
	}
	for _, want := range []string{
		fmt.Sprint(jobUser), "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1",
		"KERNELBOT_PAYLOAD", "KERNELBOT_RUN_ID", "refused",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the container lacks %q:\n%s", want, text)
		}
	}
	for _, secret := range []string{"BUILDKITE", "TOKEN", "job-api", "DOCKER_HOST", ".sock", "eth0"} {
		if strings.Contains(text, secret) {
			t.Errorf("the container has %q:\n%s", secret, text)
		}
	}
}

// What a submission sees of it.
func (r *dockerRoad) submission(t *testing.T) {
	defer r.dump(t)
	r.use(t, dockerStep{})
	s := r.launch(t, "testdata/docker/probe.py", "--mode", "test", "--json")
	s.want(t, 0)
	result, err := schema.DecodeResult([]byte(s.stdout))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(result.Runs.Get("test").Run.Stdout, "PROBE ")
	line, _, _ = strings.Cut(line, "\n")
	var seen struct {
		Environ, Payloads, Sockets, Interfaces []string
		Network, Executes                      bool
		UID                                    int
		Status                                 map[string]string
	}
	if err := json.Unmarshal([]byte(line), &seen); err != nil {
		t.Fatalf("probe: %v in %q", err, line)
	}
	t.Logf("seen by a submission: %s", line)
	for _, name := range seen.Environ {
		if strings.HasPrefix(name, "KERNELBOT_") || strings.HasPrefix(name, "BUILDKITE") {
			t.Errorf("a submission has %s in its environment", name)
		}
	}
	if len(seen.Payloads) > 0 {
		t.Errorf("a submission can read the payload in %q", seen.Payloads)
	}
	if len(seen.Sockets) > 0 {
		t.Errorf("a submission finds sockets: %q", seen.Sockets)
	}
	if seen.Network || len(seen.Interfaces) > 1 {
		t.Errorf("a submission has a network: %q", seen.Interfaces)
	}
	if !seen.Executes {
		t.Error("what a submission compiles cannot be executed")
	}
	if seen.UID == 0 || strings.Trim(seen.Status["CapEff"], "0") != "" || seen.Status["NoNewPrivs"] != "1" {
		t.Errorf("a submission is user %d with %v", seen.UID, seen.Status)
	}
}

// A link in the result's place is replaced, not followed. One that nobody
// replaces is the node's to refuse, in its pre-artifact hook: the agent may
// follow it, to any file of the machine that it can read. Nobody takes that
// file for a result.
func (r *dockerRoad) link(t *testing.T) {
	defer r.dump(t)
	r.use(t, dockerStep{})
	r.launch(t, "testdata/docker/link.py", "--mode", "test").want(t, 0, "passed")
	_, j := r.last(t)
	if _, err := schema.DecodeResult(r.artifact(t, j)); err != nil {
		t.Errorf("the artifact: %v", err)
	}
	file := filepath.Join(r.engine.dir, "of-the-host")
	if err := os.WriteFile(file, []byte(`{"success": true, "error": "", "runs": {}, "system": {}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	r.use(t, dockerStep{command: "ln -s " + file + " /workdir/result.json"})
	if s := r.launch(t, "testdata/tiny/right.py", "--mode", "test"); s.status != 3 {
		t.Errorf("exit status %d for a link to a file of the host, want 3\n%s%s", s.status, s.stdout, s.stderr)
	}
	_, j = r.last(t)
	t.Logf("without a hook on the node the agent follows a link that is left behind: %t", r.artifact(t, j) != nil)
}

// A wrong submission that leaves a result of its own and tries to end its judge
// gets no pass out of it: as the first process of its container kbrun cannot be
// killed from inside, and whoever ends it by another signal does not know the
// run's id, without which the launcher takes no result.
func (r *dockerRoad) forger(t *testing.T) {
	defer r.dump(t)
	r.use(t, dockerStep{})
	s := r.launch(t, "testdata/docker/forge.py", "--mode", "test", "--json")
	_, j := r.last(t)
	result, err := schema.DecodeResult(r.artifact(t, j))
	if err != nil {
		t.Fatalf("exit status %d, artifact: %v\n%s", s.status, err, s.stderr)
	}
	if s.status == 0 {
		t.Error("a wrong submission passed")
	}
	forged := result.Runs.Get("test").Run.Command == forgedCommand
	t.Logf("exit status %d of kblaunch, %d of the job; the uploaded result is the forged one: %t", s.status, *j.ExitStatus, forged)
}

// forgedCommand is what forge.py says it ran.
const forgedCommand = "forged"

// A cancelled job ends with its container, and kbrun is told.
func (r *dockerRoad) cancel(t *testing.T) {
	defer r.dump(t)
	r.use(t, dockerStep{})
	start := time.Now()
	if s := r.launch(t, "testdata/tiny/hang.py", "--mode", "test", "--timeout", "2s"); s.status != 3 {
		t.Errorf("exit status %d, want 3\n%s%s", s.status, s.stdout, s.stderr)
	}
	b, j := r.ended(t)
	if b.State != engine.BuildCanceled {
		t.Errorf("the build is %s, want canceled", b.State)
	}
	if ids := r.engine.run("ps", "--all", "--quiet"); ids != "" {
		t.Errorf("containers outlived the job: %s", ids)
	}
	text := r.artifact(t, j)
	if text == nil {
		t.Fatalf("no result after %.1f s", time.Since(start).Seconds())
	}
	result, err := schema.DecodeResult(text)
	if err != nil {
		t.Fatal(err)
	}
	if result.Outcome.Name != schema.OutcomeCanceled {
		t.Errorf("outcome %q, want %q", result.Outcome.Name, schema.OutcomeCanceled)
	}
	t.Logf("cancelled: result %q, exit status %d, signal reason %q, container gone, %.1f s after the submission",
		result.Outcome.Name, *j.ExitStatus, j.SignalReason, time.Since(start).Seconds())
}

// An image that is not there is nobody's verdict and not green.
func (r *dockerRoad) missingImage(t *testing.T) {
	r.use(t, dockerStep{image: "kbgen-runner:not-there"})
	if s := r.launch(t, "testdata/tiny/right.py", "--mode", "test"); s.status != 3 {
		t.Errorf("exit status %d, want 3\n%s%s", s.status, s.stdout, s.stderr)
	}
	b, j := r.ended(t)
	if b.State != engine.BuildFailed {
		t.Errorf("the build is %s, want failed", b.State)
	}
	if j.ExitStatus != nil {
		t.Logf("exit status %d, signal reason %q", *j.ExitStatus, j.SignalReason)
	}
}

// figures prints what a container costs, from the times in the job's log.
func (r *dockerRoad) figures(t *testing.T) {
	r.use(t, dockerStep{})
	const tries = 7
	parts := []struct{ what, from, to string }{
		{"agent before the container", "", "plugin command hook"},
		{"container until kbrun evaluates", "plugin command hook", "--- Evaluating"},
		{"evaluation until the verdict", "--- Evaluating", "+++ Verdict"},
		{"container until it is gone", "+++ Verdict", "Uploading artifacts"},
		{"job until the last line", "", "pre-exit hook"},
	}
	took := make([][]int, len(parts))
	for range tries {
		r.launch(t, "testdata/tiny/right.py", "--mode", "test").want(t, 0)
		_, j := r.ended(t)
		log := r.log(t, j)
		for i, p := range parts {
			took[i] = append(took[i], logTime(t, log, p.to)-logTime(t, log, p.from))
		}
	}
	for i, p := range parts {
		slices.Sort(took[i])
		t.Logf("%-32s best %5d ms, median of %d %5d ms", p.what, took[i][0], tries, took[i][tries/2])
	}
}

// logTime is when the first line of a job's log with text in it was written,
// in ms.
func logTime(t *testing.T, log, text string) int {
	t.Helper()
	for _, line := range regexp.MustCompile(`_bk;t=([0-9]+)\a([^\n]*)`).FindAllStringSubmatch(log, -1) {
		if strings.Contains(line[2], text) {
			ms, err := strconv.Atoi(line[1])
			if err != nil {
				t.Fatal(err)
			}
			return ms
		}
	}
	t.Fatalf("no line with %q in the job's log:\n%s", text, log)
	return 0
}
