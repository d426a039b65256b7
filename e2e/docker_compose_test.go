package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/localtest"
)

const (
	agentImage = "kbgen-agent:test-cpu"
	// slotUser is the first slot's job user.
	slotUser = 60600
	// brokerGroup may use the broker's socket.
	brokerGroup = 64322
	// slotPids is the limit that the test sets, to reach it soon.
	slotPids = 200
)

const composeNode = `version: 1
vendor: example
contacts: [{name: Operations, email: ops@example.net}]
nodes:
  - name: cpu-01
    isolation: node
    machine: {cpus: 6, memory_gib: 16, disk_gb: 200, network_mbps: 1000}
    gpus:
      - {type: CPU_BK, count: 2, queue: cpu, agent: {cpus: 2, memory_gib: 4, disk_gb: 10}}
`

// A composeRig is a node whose agents run in containers, as kbnode compose
// writes them: on a real engine, with real agents, without a GPU.
type composeRig struct {
	rig
	docker  *dockerEngine
	compose []string // the command
	file    string   // the compose file
}

// needCompose returns docker compose's command line.
func needCompose(t *testing.T) []string {
	t.Helper()
	if path, err := exec.LookPath("docker-compose"); err == nil {
		if out, err := exec.Command(path, "version", "--short").Output(); err == nil && !strings.HasPrefix(string(out), "1.") {
			return []string{path}
		}
	}
	if exec.Command("docker", "compose", "version").Run() == nil {
		return []string{"docker", "compose"}
	}
	t.Skip("no docker compose 2: see tools/docker.sh")
	return nil
}

// Agents in containers: registered, one job each, nothing left for the next.
func TestDockerCompose(t *testing.T) {
	needDocker(t)
	compose := needCompose(t)
	e := startDocker(t)
	e.runnerImage(dockerImage)
	r := newComposeRig(t, e, compose)
	t.Run("config", func(t *testing.T) { r.config(t) })
	t.Run("jobs", func(t *testing.T) { r.twoJobs(t) })
	t.Run("submission", func(t *testing.T) { r.submission(t) })
	t.Run("broker", func(t *testing.T) { r.broker(t) })
	t.Run("stop", func(t *testing.T) { r.stop(t) })
}

func newComposeRig(t *testing.T, e *dockerEngine, compose []string) *composeRig {
	t.Helper()
	r := &composeRig{docker: e, compose: compose, file: filepath.Join(e.dir, "compose.yml")}
	r.t, r.dir = t, t.TempDir()
	r.Server = localtest.Start(t, local.Options{
		Dir: r.dir, AgentBinary: agent, AgentPath: []string{bin}, AgentEnv: os.Environ(), Heartbeat: time.Second,
		Log: func(format string, args ...any) { t.Logf("stand-in: "+format, args...) },
	})
	context := t.TempDir()
	if err := os.WriteFile(filepath.Join(context, "Dockerfile"), r.kbnode(t, "--dockerfile"), 0o644); err != nil {
		t.Fatal(err)
	}
	copyFile(t, agent, filepath.Join(context, "buildkite-agent"))
	e.Run("build", "--network", "none", "--build-arg", "BASE="+dockerImage, "--tag", agentImage, context)

	hooks := filepath.Join(e.dir, "hooks")
	if err := os.Mkdir(hooks, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]struct {
		text string
		mode os.FileMode
	}{
		filepath.Join(hooks, "pre-command"): {"echo the hook of the node\n", 0o755},
		filepath.Join(e.dir, "token"):       {r.AgentToken() + "\n", 0o600},
		filepath.Join(e.dir, "cpu-01.yml"):  {composeNode, 0o644},
	} {
		if err := os.WriteFile(name, []byte(file.text), file.mode); err != nil {
			t.Fatal(err)
		}
	}
	r.render(t)
	r.steps("seen")
	return r
}

// kbnode returns what kbnode compose prints.
func (r *composeRig) kbnode(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "kbnode"), append([]string{"compose"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kbnode compose %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return out
}

// render writes the compose file.
func (r *composeRig) render(t *testing.T, more ...string) {
	t.Helper()
	at := r.docker.dir
	text := r.kbnode(t, append([]string{
		filepath.Join(at, "cpu-01.yml"), "cpu-01", "--image", agentImage, "--token", filepath.Join(at, "token"), "--hooks", filepath.Join(at, "hooks"),
		"--endpoint", r.URL() + "/v3", "--host-network", "--pids", strconv.Itoa(slotPids),
	}, more...)...)
	if err := os.WriteFile(r.file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// unit is a command of agent@.service for a slot.
func (r *composeRig) unit(t *testing.T, name, slot string) *exec.Cmd {
	t.Helper()
	_, line, ok := strings.Cut(string(r.kbnode(t, "--unit", "--file", r.file)), "\n"+name+"=")
	if !ok {
		t.Fatalf("the unit has no %s", name)
	}
	line, _, _ = strings.Cut(line, "\n")
	args, ok := strings.CutPrefix(strings.TrimPrefix(line, "-"), "/usr/bin/docker compose ")
	if !ok {
		t.Fatalf("%s is %q, want docker compose", name, line)
	}
	words := slices.Concat(r.compose, strings.Fields(strings.ReplaceAll(args, "%i", slot)))
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = r.docker.Command().Env
	return cmd
}

// A slotRun is one start of the unit.
type slotRun struct {
	cmd  *exec.Cmd
	out  bytes.Buffer
	gone chan error
}

// start does what systemd does when it starts the unit.
func (r *composeRig) start(t *testing.T, slot string) *slotRun {
	t.Helper()
	s := &slotRun{cmd: r.unit(t, "ExecStart", slot), gone: make(chan error, 1)}
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.gone <- s.cmd.Wait() }() // ends with the process
	return s
}

// ended waits until the agent has ended by itself, with status 0, and does what
// systemd does then.
func (r *composeRig) ended(t *testing.T, s *slotRun, slot string) {
	t.Helper()
	select {
	case err := <-s.gone:
		if err != nil {
			t.Errorf("the agent ended with %v:\n%s", err, tail(s.out.Bytes(), 3000))
		}
	case <-time.After(patience):
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		<-s.gone
		t.Errorf("the agent did not end within %s:\n%s", patience, tail(s.out.Bytes(), 3000))
	}
	if out, err := r.unit(t, "ExecStopPost", slot).CombinedOutput(); err != nil {
		t.Errorf("ExecStopPost: %v\n%s", err, out)
	}
	if ids := r.docker.Run("ps", "--all", "--quiet"); ids != "" {
		t.Errorf("containers are left: %s", ids)
	}
}

// connected waits for the slot's agent.
func (r *composeRig) connected(t *testing.T, s *slotRun, name string) engine.Agent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() { // an agent that ends before it registers is not waited for
		select {
		case err := <-s.gone:
			s.gone <- err
			cancel()
		case <-ctx.Done():
		}
	}()
	sub := r.Engine.Subscribe()
	defer sub.Close()
	for {
		for _, a := range r.Engine.Agents() {
			if a.Name == name && a.State == engine.AgentConnected {
				return a
			}
		}
		if _, err := sub.Next(ctx); err != nil {
			t.Fatalf("no agent %s: %v\n%s", name, err, tail(s.out.Bytes(), 3000))
		}
	}
}

// What a job saw, from agentjob.py.
type jobView struct {
	Left, Holders, Planted, Open, Sockets, Writable, Environ []string

	Agents []struct {
		Does     string
		User     int
		Readable bool
	}
	Broker    bool
	Executes  []bool
	User      int
	Groups    []int
	Status    map[string]string
	Processes int
}

// look lets a job look around in the container of a slot's agent.
func (r *composeRig) look(t *testing.T) (engine.Build, func() jobView) {
	t.Helper()
	probe, err := os.ReadFile("testdata/docker/agentjob.py")
	if err != nil {
		t.Fatal(err)
	}
	backwards := []byte(r.AgentToken())
	slices.Reverse(backwards)
	b, err := r.Engine.CreateBuild("seen", engine.NewBuild{Message: "look", Env: map[string]string{
		"COMMAND": `exec python3 -c "$PROBE"`, "PROBE": string(probe), "BACKWARDS": string(backwards), "PROCESSES": strconv.Itoa(2 * slotPids),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return b, func() jobView {
		t.Helper()
		job, log := (&rig{Server: r.Server, t: t, dir: r.dir}).ended(b)
		if *job.ExitStatus != 0 {
			t.Fatalf("the job ended with %d:\n%s", *job.ExitStatus, log)
		}
		if !strings.Contains(log, "the hook of the node") {
			t.Errorf("the node's hook did not run:\n%s", log)
		}
		_, line, _ := strings.Cut(log, "SEEN ")
		line, _, _ = strings.Cut(line, "\n")
		var seen jobView
		if err := json.Unmarshal([]byte(strings.TrimSpace(line)), &seen); err != nil {
			t.Fatalf("the job's words: %v in %q", err, line)
		}
		return seen
	}
}

// docker compose itself reads the file, and finds in it what was meant.
func (r *composeRig) config(t *testing.T) {
	cmd := exec.Command(r.compose[0], append(r.compose[1:], "--file", r.file, "config", "--format", "json")...)
	cmd.Env = r.docker.Command().Env
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("docker compose config: %v", err)
	}
	var file struct {
		Services map[string]struct {
			Privileged bool
			Pid        string
			ReadOnly   bool `json:"read_only"`
		}
	}
	if err := json.Unmarshal(out, &file); err != nil {
		t.Fatal(err)
	}
	for _, slot := range []string{"gpu0", "gpu1"} {
		s, ok := file.Services[slot]
		if !ok || s.Privileged || s.Pid != "" || !s.ReadOnly {
			t.Errorf("service %s: got %+v, want one without privileges and with a root that is read-only", slot, s)
		}
	}
	if bytes.Contains(out, []byte(r.AgentToken())) {
		t.Error("the token stands in the configuration")
	}
}

// An agent registers as the queue file promises, takes one job and ends. The next
// one takes the next job and finds nothing of the first. A job has neither the
// token nor a socket nor a place to write to that outlives it.
func (r *composeRig) twoJobs(t *testing.T) {
	for i := range 2 {
		start := time.Now()
		s := r.start(t, "gpu0")
		a := r.connected(t, s, "cpu-01-gpu0")
		if want := []string{"queue=cpu", "gpu=CPU_BK", "vendor=example", "node=cpu-01", "gpu-index=0"}; !slices.Equal(a.Tags, want) {
			t.Errorf("tags %q, want %q", a.Tags, want)
		}
		registered := time.Since(start)
		if i == 0 {
			r.tokenOfRoot(t)
		}
		_, seen := r.look(t)
		view := seen()
		jobEnded := time.Now()
		r.ended(t, s, "gpu0")
		t.Logf("agent %d: connected after %.1f s, gone %.1f s after its job's end", i+1, registered.Seconds(), time.Since(jobEnded).Seconds())
		r.check(t, view)
		if view.Broker || len(view.Sockets) > 0 {
			t.Errorf("the job finds sockets %q, want none", view.Sockets)
		}
		for _, name := range view.Environ {
			if strings.Contains(name, "JOB_API") || strings.HasPrefix(name, "DOCKER") || name == "BUILDKITE_AGENT_TOKEN" {
				t.Errorf("the job has %s in its environment", name)
			}
		}
		if len(view.Groups) > 0 && !slices.Equal(view.Groups, []int{slotUser}) {
			t.Errorf("the job is in the groups %v", view.Groups)
		}
		view.Environ = nil // as long as all the rest
		t.Logf("seen by job %d: %+v", i+1, view)
	}
	ids := map[string]bool{}
	for _, a := range r.Engine.Agents() {
		ids[a.ID] = true
		if a.Name != "cpu-01-gpu0" || a.State == engine.AgentLost {
			t.Errorf("agent %s is %s", a.Name, a.State)
		}
	}
	if len(ids) != 2 {
		t.Errorf("%d agents have registered, want 2", len(ids))
	}
}

// tokenOfRoot shows that the container has the token where the job looks for it
// in vain.
func (r *composeRig) tokenOfRoot(t *testing.T) {
	t.Helper()
	id := r.docker.Run("ps", "--quiet")
	if got := r.docker.Run("exec", id, "cat", "/run/secrets/agent-token"); got != r.AgentToken() {
		t.Errorf("root in the container reads %q, want the token", got)
	}
	if text := r.docker.Run("inspect", id); strings.Contains(text, r.AgentToken()) {
		t.Error("docker inspect shows the token")
	}
}

// check compares what every job sees with what it should.
func (r *composeRig) check(t *testing.T, v jobView) {
	t.Helper()
	if len(v.Left) > 0 {
		t.Errorf("an earlier job left %q", v.Left)
	}
	if len(v.Holders) > 0 || !slices.Equal(v.Planted, []string{"/tmp/planted"}) {
		t.Errorf("the token is readable in %q; a search for a planted one found %q", v.Holders, v.Planted)
	}
	for _, file := range v.Open {
		if strings.Contains(file, "token") || strings.HasPrefix(file, "/run") {
			t.Errorf("the job has %s open", file)
		}
	}
	starts := 0
	for _, a := range v.Agents {
		if a.Does == "start" {
			starts++
			if a.User != 0 || a.Readable {
				t.Errorf("the agent is user %d, its memory is readable: %t; want root and false", a.User, a.Readable)
			}
		}
	}
	if starts != 1 {
		t.Errorf("the job sees %d agents, want the one that took it: %+v", starts, v.Agents)
	}
	if slices.Contains(v.Sockets, "/var/run/docker.sock") || slices.Contains(v.Sockets, "/run/docker.sock") {
		t.Errorf("the job finds docker's socket: %q", v.Sockets)
	}
	for _, at := range v.Writable {
		if !slices.Contains([]string{"/builds", "/tmp", "/dev/shm", "/dev/mqueue"}, at) {
			t.Errorf("the job can write to %s", at)
		}
	}
	if !slices.Contains(v.Writable, "/builds") || !slices.Contains(v.Writable, "/tmp") || slices.Contains(v.Executes, false) {
		t.Errorf("the job can write to %q, and execute there: %v", v.Writable, v.Executes)
	}
	if v.User != slotUser {
		t.Errorf("the job is user %d, want %d", v.User, slotUser)
	}
	if strings.Trim(v.Status["CapEff"]+v.Status["CapPrm"]+v.Status["CapInh"]+v.Status["CapAmb"], "0") != "" || v.Status["NoNewPrivs"] != "1" {
		t.Errorf("the job has privileges: %v", v.Status)
	}
	if v.Processes < slotPids/2 || v.Processes >= slotPids {
		t.Errorf("the job could start %d processes, want fewer than %d", v.Processes, slotPids)
	}
}

// kbrun judges a submission there, in its own sandbox.
func (r *composeRig) submission(t *testing.T) {
	if _, err := r.Engine.CreatePipeline(engine.Pipeline{Slug: "kernelbot", Configuration: kbgen.Bootstrap, SkipCheckout: true}); err != nil {
		t.Fatal(err)
	}
	if err := r.StartAgents("bootstrap", 1); err != nil {
		t.Fatal(err)
	}
	s := r.start(t, "gpu0")
	r.connected(t, s, "cpu-01-gpu0")
	here := rig{Server: r.Server, t: t, dir: r.dir}
	here.launch("submit", tiny, "testdata/tiny/right.py", "--gpu", "CPU_BK", "--mode", "test").want(t, 0, "passed")
	r.ended(t, s, "gpu0")
}

// With a broker its socket is there, for the job's group.
func (r *composeRig) broker(t *testing.T) {
	path := filepath.Join(r.docker.dir, "secretd.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(path, 0o660); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 0, brokerGroup); err != nil {
		t.Fatal(err)
	}
	r.render(t, "--broker", path, "--broker-group", strconv.Itoa(brokerGroup))
	defer r.render(t)
	s := r.start(t, "gpu0")
	r.connected(t, s, "cpu-01-gpu0")
	_, seen := r.look(t)
	view := seen()
	r.ended(t, s, "gpu0")
	r.check(t, view)
	if !view.Broker || !slices.Contains(view.Sockets, "/run/kbnode/secretd.sock") {
		t.Errorf("the job cannot reach the broker; it finds %q", view.Sockets)
	}
	if !slices.Contains(view.Environ, "BUILDKITE_AGENT_JOB_API_SOCKET") {
		t.Error("the job API is off, without which no secret is redacted")
	}
}

// An agent that is told to stop while it has a job ends after it.
func (r *composeRig) stop(t *testing.T) {
	s := r.start(t, "gpu1")
	r.connected(t, s, "cpu-01-gpu1")
	b, err := r.Engine.CreateBuild("seen", engine.NewBuild{Message: "stop", Env: map[string]string{
		"COMMAND": `echo begun; until test -e /builds/go; do sleep 0.1; done; echo finished`,
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	until := func(what string, holds func() bool) {
		t.Helper()
		sub := r.Engine.Subscribe()
		defer sub.Close()
		for !holds() {
			if _, err := sub.Next(ctx); err != nil {
				t.Fatalf("waiting until %s: %v", what, err)
			}
		}
	}
	until("the job runs", func() bool {
		b, err := r.Engine.BuildByID(b.ID)
		return err == nil && b.Jobs[0].State == engine.JobRunning
	})
	id := r.docker.Run("ps", "--quiet")                           // there is one, now that a job runs in it
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil { // as systemd does
		t.Fatal(err)
	}
	until("the agent is stopping", func() bool {
		return slices.ContainsFunc(r.Engine.Agents(), func(a engine.Agent) bool {
			return a.Name == "cpu-01-gpu1" && a.State == engine.AgentStopping
		})
	})
	r.docker.Run("exec", "--user", fmt.Sprint(slotUser+1), id, "touch", "/builds/go")
	job, log := (&rig{Server: r.Server, t: t, dir: r.dir}).ended(b)
	if *job.ExitStatus != 0 || !strings.Contains(log, "finished") {
		t.Errorf("the job ended with %d:\n%s", *job.ExitStatus, log)
	}
	select {
	case err := <-s.gone:
		const stopped = 130
		if code := s.cmd.ProcessState.ExitCode(); code != stopped && code != 0 || !bytes.Contains(r.kbnode(t, "--unit"), []byte("\nSuccessExitStatus=130\n")) {
			t.Errorf("docker compose ended with %v, which the unit takes for a failure", err)
		}
	case <-time.After(patience):
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		<-s.gone
		t.Errorf("docker compose did not end:\n%s", tail(s.out.Bytes(), 3000))
	}
	if out, err := r.unit(t, "ExecStopPost", "gpu1").CombinedOutput(); err != nil {
		t.Errorf("ExecStopPost: %v\n%s", err, out)
	}
}
