package trial

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/cpulist"
	"github.com/gpu-mode/kbgen/node/doctor"
	"github.com/gpu-mode/kbgen/node/limits"
	"github.com/gpu-mode/kbgen/node/status"
	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema/text"
)

// deepLimit bounds one slot's container, its start included.
const deepLimit = 5 * time.Minute

// A containerTrial is one container in a slot, as a job would start it.
type containerTrial struct {
	findings
	dir    string // the job's directory
	cmd    *exec.Cmd
	in     io.Closer // once closed, the container ends
	output []string  // what the isolation script printed
	end    error
}

// Containers starts a container in every slot that has some, all at once, through the
// slot's own proxy and as the slot's own user, and has the isolation step's script
// tried in it. While all of them run, what the kernel enforces is read from outside.
func Containers(ctx context.Context, config *node.Config, slots []*node.Slot) []doctor.Result {
	ctx, cancel := context.WithTimeout(ctx, deepLimit)
	defer cancel()
	slots, all := idle(ctx, doctor.Host(), slots)
	var trials []*containerTrial
	for _, s := range slots {
		trials = append(trials, &containerTrial{findings: findings{slot: s, fix: "kbnode apply FILE; journalctl -u kbnode-proxy@" + s.Name}})
	}
	var running sync.WaitGroup
	for _, t := range trials {
		running.Go(func() {
			if t.end = t.launch(ctx, config); t.end != nil {
				t.failed("container", "no container started: %v", t.end)
			}
		})
	}
	running.Wait() // each has said all it has to say, or failed
	for _, t := range trials {
		if t.end == nil {
			t.outside(ctx, config)
		}
	}
	distinct(trials)
	for _, t := range trials {
		running.Go(t.stop)
	}
	running.Wait()
	for _, t := range trials {
		all = append(all, t.results...)
	}
	return all
}

// idle are the slots with containers that have no job, and a result for each that
// has one: its proxy would remove the job's container before it starts another.
func idle(ctx context.Context, m doctor.Machine, slots []*node.Slot) (free []*node.Slot, busy []doctor.Result) {
	for _, s := range slots {
		if s.Platform != "docker" {
			continue
		}
		if state, job := status.Agent(ctx, m, s, "active"); state == "busy" {
			busy = append(busy, doctor.Result{Code: "container", Slot: s.Name, State: doctor.Skipped, Text: text.Line("not tried, for it has a job: "+job, 200), Fix: "kbnode drain " + s.Name})
			continue
		}
		free = append(free, s)
	}
	return free, busy
}

// endOfScript is what a trial prints when the script is over.
const endOfScript = "kbnode-trial-status="

// launch starts the container and reads what it says, up to the script's end.
func (t *containerTrial) launch(ctx context.Context, config *node.Config) error {
	script, env, err := isolationScript(t.slot)
	if err != nil {
		return err
	}
	// List the devices, run the script in a subshell, then wait while kbnode
	// inspects the container.
	command := `ls -d /dev/nvidia[0-9]* /dev/dri/renderD* /dev/accel* 2>/dev/null; (` + "\n" + script + "\n); echo " + endOfScript + "$?; read _ || true"
	if t.dir, t.cmd, err = container(ctx, config, t.slot, env, command); err != nil {
		return err
	}
	return t.listen()
}

// container makes a job's directory in a slot, and a command that runs a shell command in
// a container of the slot's, as its user and through its proxy.
func container(ctx context.Context, config *node.Config, s *node.Slot, env []pipelines.Var, command string) (dir string, cmd *exec.Cmd, err error) {
	u, err := system.LookupUser(s.User)
	if err != nil {
		return "", nil, err
	}
	if dir, err = os.MkdirTemp(s.TempDir(), "buildkite-job-trial"); err != nil {
		return "", nil, err
	}
	// The directory is inside one that belongs to the slot's user. The container's user is
	// in the same group.
	if err := errors.Join(os.Chmod(dir, 0o770), os.Lchown(dir, u.UID, u.GID)); err != nil {
		return dir, nil, err
	}
	pins, err := node.ReadPins("/")
	if err != nil {
		return dir, nil, err
	}
	at := slices.IndexFunc(s.Images, func(ref string) bool { _, ok := pins.Images[ref]; return ok })
	if at < 0 {
		return dir, nil, errors.New("none of its images is pinned: kbnode image update --all")
	}
	args := []string{"run", "--rm", "--interactive", "--init", "--network", "none", "--user", fmt.Sprintf("%d:%d", u.UID, u.GID),
		"--volume", dir + ":/workdir", "--workdir", "/workdir", "--tmpfs", "/tmp:exec,size=64m,mode=1777"}
	for _, v := range env {
		args = append(args, "--env", v.Name+"="+v.Value)
	}
	cmd = exec.CommandContext(ctx, config.Docker.CLI, append(args, s.Images[at], "/bin/sh", "-c", command)...)
	cmd.Env = append(system.Environ(), "DOCKER_HOST=unix://"+s.ProxySocket(), "HOME=/nonexistent")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}}
	cmd.Dir = "/"
	cmd.WaitDelay = 10 * time.Second
	return dir, cmd, nil
}

// isolationScript is what kbgen's isolation step runs on the slot's GPU type, with
// the slot's own numbers of cores and memory.
func isolationScript(s *node.Slot) (script string, env []pipelines.Var, err error) {
	p, request, err := pipelineOn(s, "isolation")
	if err != nil {
		return "", nil, err
	}
	steps, err := p.Steps(request)
	if err != nil {
		return "", nil, err
	}
	return strings.Join(steps[0].Command, "\n"), steps[0].Env, nil
}

// pipelineOn returns a pipeline, and a request for it on the slot's GPU type, with the slot's
// own numbers of cores and memory. A machine is tried before its row is on.
func pipelineOn(s *node.Slot, pipeline string) (p pipelines.Pipeline, r pipelines.Request, err error) {
	row, err := pipelines.Fleet.Lookup(s.GPUType)
	if row.Name == "" {
		return p, r, err
	}
	row.Off, row.MemoryGiB = "", max(1, int(s.MemoryBytes>>30))
	if cpus, err := cpulist.Parse(s.CPUs); err == nil && len(cpus) > 0 {
		row.CPUs = len(cpus)
	}
	r = pipelines.Request{GPUs: []pipelines.GPUType{row}}
	p, err = pipelines.Find(pipeline)
	return p, r, err
}

// listen runs the command until the script has ended.
func (t *containerTrial) listen() error {
	in, err := t.cmd.StdinPipe()
	if err != nil {
		return err
	}
	t.in = in
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var errs strings.Builder
	t.cmd.Stderr = &errs
	if err := t.cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(io.LimitReader(out, 1<<20))
	for lines.Scan() {
		status, ok := strings.CutPrefix(lines.Text(), endOfScript)
		if !ok {
			t.output = append(t.output, lines.Text())
			continue
		}
		go io.Copy(io.Discard, out)
		t.inside(status)
		return nil
	}
	err = t.cmd.Wait()
	return fmt.Errorf("%v: %s", err, text.Line(errs.String(), 300))
}

// inside judges what the script said.
func (t *containerTrial) inside(status string) {
	bad := 0
	for _, line := range t.output {
		if what, ok := strings.CutPrefix(line, "FAIL "); ok {
			bad++
			t.failed("inside", "in a container: %s", what)
		}
	}
	switch {
	case bad > 0:
	case status != "0":
		t.failed("inside", "in a container the isolation script ended with status %s", status)
	default:
		t.passed("inside", "in a container: its own devices and limits, no network, no privileges, no token")
	}
	want, got := deviceNodes(limits.Nodes(t.slot)), deviceNodes(t.output)
	if !slices.Equal(want, got) {
		t.failed("device-nodes", "a container sees %s, want %s", cmp.Or(strings.Join(got, " "), "no device"), cmp.Or(strings.Join(want, " "), "no device"))
	}
}

// deviceOfOne matches device nodes that belong to one device, not to a driver.
var deviceOfOne = regexp.MustCompile(`^/dev/(nvidia[0-9]+|dri/renderD[0-9]+|accel[0-9]+)$`)

// deviceNodes picks the device nodes among lines.
func deviceNodes(lines []string) []string {
	nodes := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !deviceOfOne.MatchString(line) })
	slices.Sort(nodes)
	return nodes
}

// outside reads what the kernel enforces on the container that runs.
func (t *containerTrial) outside(ctx context.Context, config *node.Config) {
	dir := t.slot.CgroupDir()
	scopes, err := filepath.Glob(dir + "/docker-*.scope")
	if err != nil || len(scopes) != 1 {
		t.failed("outside", "%d containers in %s, want its one", len(scopes), dir)
		return
	}
	read := func(name string) string {
		body, err := os.ReadFile(filepath.Join(scopes[0], name))
		if err != nil {
			return "not there"
		}
		return strings.TrimSpace(string(body))
	}
	before := len(t.results)
	for _, limit := range limits.Job(t.slot) {
		if got := read(limit.File); got != limit.Want {
			t.failed("outside", "its container's %s is %s, want %s", limit.File, got, limit.Want)
		}
	}
	id := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(scopes[0]), "docker-"), ".scope")
	out, err := system.Run(ctx, config.Docker.CLI, "--host", "unix://"+config.Docker.Socket, "inspect", "--format",
		"{{.HostConfig.Privileged}} {{.HostConfig.NetworkMode}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CgroupParent}}", id)
	if want := "false none true " + t.slot.Slice(); err != nil || strings.TrimSpace(string(out)) != want {
		t.failed("outside", "the engine says %q of its container, want %q (%v)", strings.TrimSpace(string(out)), want, err)
	}
	if len(t.results) == before {
		t.passed("outside", "the kernel holds its container to cores %s, %d MiB, %d processes", t.slot.CPUs, t.slot.MemoryBytes>>20, t.slot.Pids)
	}
}

// distinct finds devices that two slots see at once.
func distinct(trials []*containerTrial) {
	whose := map[string]*containerTrial{}
	for _, t := range trials {
		for _, n := range deviceNodes(t.output) {
			if other, ok := whose[n]; ok {
				t.failed("distinct", "a container sees %s, and so does one of %s", n, other.slot.Name)
			}
			whose[n] = t
		}
	}
}

// stop ends the container and removes the job's directory.
func (t *containerTrial) stop() {
	if t.in != nil {
		t.in.Close()
	}
	if t.cmd != nil && t.cmd.Process != nil && t.end == nil {
		if err := t.cmd.Wait(); err != nil {
			t.failed("container", "its container ended with %v", err)
		}
	}
	if t.dir != "" {
		os.RemoveAll(t.dir)
	}
}
