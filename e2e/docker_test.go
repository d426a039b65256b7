package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema"
)

const (
	dockerImage = "kbgen-runner:test-cpu"
	pluginTag   = "v5.13.0"
	// jobUser is who runs the agent, and so who a step is in its container: a
	// user that neither the machine nor the image knows.
	jobUser = 64321
)

// Steps in containers, as kbgen writes them, on a real docker engine.
func TestDocker(t *testing.T) {
	needDocker(t)
	e := startDocker(t)
	start := time.Now()
	e.runnerImage(dockerImage)
	t.Logf("image imported and built in %.1f s", time.Since(start).Seconds())
	r := newDockerRig(t, e)
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

// The result written in the container reaches the launcher by the host.
func (r *dockerRig) verdicts(t *testing.T) {
	defer r.dump(t)
	r.use(t, dockerStep{})
	r.launch(t, "testdata/tiny/right.py", "--mode", "leaderboard").want(t, 0, "passed")
	_, j := r.last(t)
	if j.ExitStatus == nil || *j.ExitStatus != 0 {
		t.Errorf("the job ended with %v, want 0", j.ExitStatus)
	}
	r.launch(t, "testdata/tiny/crash.py", "--mode", "test").want(t, 1)
	r.launch(t, "testdata/tiny/chatty.py", "--mode", "test").want(t, 0, "passed")
	here := rig{Server: r.Server, t: t, dir: r.dir}
	here.launch("submit", impatientTask(t), "testdata/tiny/hang.py", "--gpu", "CPU_BK", "--mode", "test").want(t, 1)
}

// A step that carries the row's limits gets them.
func (r *dockerRig) stepIsolation(t *testing.T) {
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

// kbrun's container runs as the agent's user, without privileges or secrets.
func (r *dockerRig) container(t *testing.T) {
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

// A submission sees even less.
func (r *dockerRig) submission(t *testing.T) {
	defer r.dump(t)
	r.use(t, dockerStep{})
	s := r.launch(t, "testdata/docker/probe.py", "--mode", "test", "--json")
	s.want(t, 0)
	result := onlyResult(t, s.stdout)
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

// kbrun replaces a link in the result's place and does not follow it. When kbrun
// does not run, the node has to refuse the link: the agent
// would follow it to any file that it can read. The launcher does not take such a
// file for a result.
func (r *dockerRig) link(t *testing.T) {
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

// A wrong submission that writes a result of its own and tries to kill kbrun does
// not pass. kbrun is the first process of its container, which no signal from
// inside kills; and the submission does not know the run's id, without which the
// launcher takes no result.
func (r *dockerRig) forger(t *testing.T) {
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
func (r *dockerRig) cancel(t *testing.T) {
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
	if ids := r.engine.Run("ps", "--all", "--quiet"); ids != "" {
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

// A missing image makes no verdict and fails the build.
func (r *dockerRig) missingImage(t *testing.T) {
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
func (r *dockerRig) figures(t *testing.T) {
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
