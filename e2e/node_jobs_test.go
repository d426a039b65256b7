package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/secrets"
)

// A nodeStep is a step of kbgen's, changed, for one slot or any.
type nodeStep struct {
	pipeline string              // "evaluate" when empty
	gpu      string              // its GPU type, "H100_BK" when empty
	slot     string              // empty: any
	command  string              // instead of the step's own
	edit     func(string) string // of the text
	env      map[string]string   // of the build
	message  string              // of the build; the test's name when empty
	author   string              // of the build, its branch and its commit
}

// job runs a step and returns its job and its log.
func (r *nodeRig) job(t *testing.T, s nodeStep) (engine.Job, string) {
	t.Helper()
	b := r.build(t, s)
	return r.done(t, b)
}

// build starts a step without waiting for it.
func (r *nodeRig) build(t *testing.T, s nodeStep) engine.Build {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pipeline := s.pipeline
	if pipeline == "" {
		pipeline = "evaluate"
	}
	out := command(t, ctx, []string{"KERNELBOT_PAYLOAD=x", "PATH=" + os.Getenv("PATH")}, "", filepath.Join(bin, "kbgen"), "render", pipeline, "--gpu", cmp.Or(s.gpu, "H100_BK"))
	out.want(t, 0, "command: ")
	// The guest's slots are smaller than the row promises.
	step := strings.NewReplacer("KERNELBOT_CPUS: \"8\"", "KERNELBOT_CPUS: \"1\"", "KERNELBOT_MEMORY_GIB: \"64\"", "KERNELBOT_MEMORY_GIB: \"1\"").Replace(out.stdout)
	if s.slot != "" {
		index := strings.TrimPrefix(s.slot, "gpu")
		step = strings.Replace(step, "      queue: h100\n", fmt.Sprintf("      queue: h100\n      gpu-uuid: GPU-%08s-feed-beef-cafe-%012s\n", index, index), 1)
	}
	if s.command != "" {
		step = strings.Replace(step, "command: exec kbrun evaluate", "command: "+quoteYAML(s.command), 1)
	}
	if s.edit != nil {
		changed := s.edit(step)
		if changed == step {
			t.Fatal("the step was not changed")
		}
		step = changed
	}
	slug := fmt.Sprintf("node-%d", len(r.Engine.Pipelines()))
	if _, err := r.Engine.CreatePipeline(engine.Pipeline{Slug: slug, Configuration: step, SkipCheckout: true}); err != nil {
		t.Fatal(err)
	}
	author := engine.Person{Name: s.author, Email: s.author}
	b, err := r.Engine.CreateBuild(slug, engine.NewBuild{Message: cmp.Or(s.message, t.Name()), Env: s.env, Author: author, Creator: author, Branch: s.author, Commit: s.author})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// quoteYAML is a value of a step that is not interpolated, of any characters.
func quoteYAML(value string) string {
	return strings.ReplaceAll(strconv.QuoteToASCII(value), "$", "$$")
}

// done waits for a build and returns its last job and the job's log.
func (r *nodeRig) done(t *testing.T, b engine.Build) (engine.Job, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guestPatience)
	defer cancel()
	b, err := r.Engine.Wait(ctx, b.ID)
	if err != nil {
		t.Fatalf("build %d: %v", b.Number, err)
	}
	j := b.Jobs[len(b.Jobs)-1]
	f, err := r.Engine.Log(j.ID)
	if err != nil {
		return j, ""
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return j, plain(text)
}

// plain is a log without the agent's times and carriage returns.
func plain(log []byte) string {
	return strings.ReplaceAll(timeMark.ReplaceAllString(string(log), ""), "\r", "")
}

// timeMark is what the agent puts before each line.
var timeMark = regexp.MustCompile(`\x1b_bk;t=[0-9]+\a`)

// describe is a job's command that says what surrounds it, between two marks. The
// plugin prints the command before it runs it, hence the arithmetic.
const describe = `echo BEGIN-$((6 * 7)); ls -d /dev/nvidia[0-9]*; cat /sys/fs/cgroup/cpuset.cpus.effective /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max; ` +
	`id -u; grep -E "CapEff|NoNewPrivs" /proc/self/status; ls /sys/class/net; env | cut -d = -f 1; touch /x 2>&1 || true; nvidia-smi -L; echo END-$((6 * 7))`

// described is what such a job said.
func described(t *testing.T, j engine.Job, log string) string {
	t.Helper()
	_, text, _ := strings.Cut(log, "BEGIN-42")
	text, _, whole := strings.Cut(text, "END-42")
	if !whole {
		t.Fatalf("the job ended %s without describing itself:\n%s", j.State, tail([]byte(log), 3000))
	}
	return text
}

// ownDevice runs jobs on all slots at once: each sees its own device and limits, and
// kbgen's isolation step passes on each.
func (r *nodeRig) ownDevice(t *testing.T) {
	builds := make([]engine.Build, 8)
	for i := range builds {
		builds[i] = r.build(t, nodeStep{slot: fmt.Sprintf("gpu%d", i), command: describe})
	}
	for i, b := range builds {
		j, log := r.done(t, b)
		text := described(t, j, log)
		for _, want := range []string{
			fmt.Sprintf("/dev/nvidia%d\n", 7-i), "\n1073741824\n", "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Read-only file system",
			fmt.Sprintf("GPU-%08d-feed-beef-cafe-%012d", i, i), "\n" + strings.TrimSpace(r.guest.run(fmt.Sprintf("id -u kbjob-gpu%d", i))) + "\n",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("gpu%d: a job lacks %q:\n%s", i, want, text)
			}
		}
		for _, secret := range []string{"TOKEN", "JOB_API", "DOCKER_HOST", "eth0"} {
			if strings.Contains(text, secret) {
				t.Errorf("gpu%d: a job has %q:\n%s", i, secret, text)
			}
		}
		if n := strings.Count(text, "GPU-0"); n != 1 {
			t.Errorf("gpu%d: nvidia-smi shows %d GPUs:\n%s", i, n, text)
		}
	}
	// The same user outside of a container reaches nothing of its agent's.
	for _, try := range []string{
		"cat /proc/$agent/environ", "kill -0 $agent", "ls /var/lib/kbnode/slots/gpu0/tmp",
		"curl -s --unix-socket /run/kbnode/gpu0/docker.sock http://engine/_ping",
	} {
		r.guest.run("agent=$(systemctl show -P MainPID kbnode-agent@gpu0); test $agent -gt 1; ! setpriv --reuid kbjob-gpu0 --regid kbagent-gpu0 --clear-groups " + try + " 2>&1")
	}
	for i := range builds {
		builds[i] = r.build(t, nodeStep{pipeline: "isolation", slot: fmt.Sprintf("gpu%d", i)})
	}
	for i, b := range builds {
		if j, log := r.done(t, b); j.State != engine.JobPassed {
			t.Errorf("gpu%d: kbgen's isolation step ended %s:\n%s", i, j.State, tail([]byte(log), 3000))
		}
	}
}

// ownDisk: a job that fills its disk takes nothing from its neighbour, and the slot's
// next job has all of it again.
func (r *nodeRig) ownDisk(t *testing.T) {
	const write = `head -c %d /dev/zero >/workdir/fill && echo wrote-$((6 * 7)); `
	full := r.build(t, nodeStep{slot: "gpu0", command: fmt.Sprintf(write, 2<<30) + `echo full; while [ ! -e /workdir/go ]; do sleep 1; done`})
	r.event(t, full, "full\n")
	if j, log := r.job(t, nodeStep{slot: "gpu1", command: fmt.Sprintf(write, 600<<20)}); j.State != engine.JobPassed || !strings.Contains(log, "wrote-42") {
		t.Errorf("beside a full disk a job cannot write 600 MiB: it ended %s:\n%s", j.State, tail([]byte(log), 2000))
	}
	r.guest.run("rm /var/lib/kbnode/slots/gpu0/tmp/buildkite-job-*/fill")
	r.guest.run(fmt.Sprintf(letGo, "gpu0"))
	if _, log := r.done(t, full); !strings.Contains(log, "No space left on device") || strings.Contains(log, "wrote-42") {
		t.Errorf("a job wrote 2 GiB to a disk of 1 GB:\n%s", tail([]byte(log), 2000))
	}
	if j, log := r.job(t, nodeStep{slot: "gpu0", command: fmt.Sprintf(write, 600<<20)}); j.State != engine.JobPassed {
		t.Errorf("after a job that filled the disk another ended %s:\n%s", j.State, tail([]byte(log), 2000))
	}
	t.Run("submission", func(t *testing.T) { r.fillingSubmission(t) })
}

// fillingSubmission runs a submission that fills all the space that its container may
// write. The submission is blamed, and no other machine retries it. Its /tmp is smaller
// than the row says, because the guest's slots have less memory than that.
func (r *nodeRig) fillingSubmission(t *testing.T) {
	p := &schema.Payload{Main: "eval.py", Lang: schema.LangPython, Mode: schema.ModeTest, Tests: []schema.Case{{{Name: "n", Value: schema.IntValue(1)}}}}
	p.TestTimeout, p.BenchmarkTimeout, p.RankedTimeout = schema.Seconds(120), schema.Seconds(120), schema.Seconds(120)
	for _, f := range []struct{ name, from string }{{"eval.py", "eval.py"}, {"submission.py", "fill.py"}} {
		text, err := os.ReadFile(filepath.Join(tiny, f.from))
		if err != nil {
			t.Fatal(err)
		}
		p.Sources = append(p.Sources, schema.File{Name: f.name, Text: string(text)})
	}
	encoded, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	j, log := r.job(t, nodeStep{slot: "gpu0", env: map[string]string{schema.EnvPayload: encoded}, edit: func(s string) string {
		return strings.Replace(s, "size=8g", "size=400m", 1)
	}})
	all, err := r.Engine.JobArtifacts(j.ID)
	if err != nil || len(all) != 1 {
		t.Fatalf("the job ended %s with %d artifacts, %v, want result.json:\n%s", j.State, len(all), err, tail([]byte(log), 3000))
	}
	text, err := os.ReadFile(r.Engine.ArtifactFile(all[0].ID))
	if err != nil {
		t.Fatal(err)
	}
	result, err := schema.DecodeResult(text)
	if err != nil {
		t.Fatal(err)
	}
	if result.Outcome.Name != schema.OutcomeOutOfDisk || j.State != engine.JobPassed {
		t.Errorf("outcome %+v, and the job ended %s, want %s and %s:\n%s", result.Outcome, j.State, schema.OutcomeOutOfDisk, engine.JobPassed, tail([]byte(log), 3000))
	}
}

// verdicts has two slots judge a right and a wrong submission at once.
func (r *nodeRig) verdicts(t *testing.T) {
	var wait sync.WaitGroup
	for _, s := range []struct {
		file   string
		status int
		want   string
	}{{"testdata/tiny/right.py", 0, "passed"}, {"testdata/tiny/crash.py", 1, ""}} {
		wait.Go(func() {
			here := rig{Server: r.Server, t: t, dir: r.dir}
			out := here.launch("submit", tiny, s.file, "--gpu", "H100_BK", "--mode", "test", "--timeout", "10m")
			if out.status != s.status || !strings.Contains(out.stdout+out.stderr, s.want) {
				t.Errorf("%s: exit status %d, want %d and %q:\n%s%s", s.file, out.status, s.status, s.want, out.stdout, out.stderr)
			}
		})
	}
	wait.Wait()
}

// sealed has a submission judged that only the machine can read, in a container that
// could not ask for the key.
func (r *nodeRig) sealed(t *testing.T) {
	g := r.guest
	key, line, err := secrets.GenerateKey(secrets.X25519)
	if err != nil {
		t.Fatal(err)
	}
	g.file("/etc/kbnode/secret.key", line+"\n")
	g.file("/etc/kbnode/secretd.yml", "version: 1\nkeys: [secret.key]\n"+strings.ReplaceAll(oidcPolicy, "URL", strings.TrimSuffix(r.URL(), "/")))
	g.run(`chmod 0600 /etc/kbnode/secret.key /etc/kbnode/secretd.yml
		kbnode secretd --unit >/etc/systemd/system/kbnode-secretd.service
		kbnode secretd --socket-unit --any-user >/etc/systemd/system/kbnode-secretd.socket
		systemctl daemon-reload && systemctl start kbnode-secretd.socket`)
	here := rig{Server: r.Server, t: t, dir: r.dir}
	out := here.launch("submit", tiny, filepath.Join(tiny, "right.py"), "--gpu", "H100_BK", "--mode", "test", "--timeout", "10m",
		"--seal", here.sealFileOf("h100", key, ", steps: [evaluate-h100], sources: [api]"))
	said := g.run("journalctl --sync; journalctl -u kbnode-secretd --no-pager -o cat")
	if out.status != 0 || !strings.Contains(out.stdout, "passed") || strings.Count(said, "msg=given") != 1 {
		t.Errorf("exit status %d:\n%s%s\nthe broker:\n%s", out.status, out.stdout, out.stderr, said)
	}
	builds := r.Engine.Builds(engine.BuildFilter{})
	if i := slices.IndexFunc(builds, func(b engine.Build) bool { return strings.HasPrefix(b.Env[schema.EnvPayload], schema.SealedPrefix) }); i < 0 {
		t.Error("no build carries a sealed payload")
	}
	g.run(`systemctl stop kbnode-secretd.socket kbnode-secretd.service
		rm /etc/kbnode/secret.key /etc/kbnode/secretd.yml /etc/systemd/system/kbnode-secretd.*
		systemctl daemon-reload`)
}

// hostileSteps are steps that a machine must refuse, or take without giving what
// they ask for. A refusal's reason stands in the job's log.
func (r *nodeRig) hostileSteps(t *testing.T) {
	const evil = "/var/lib/kbnode/slots/gpu0/tmp/broken"
	agent := r.guest.run(traceAgent)
	add := func(lines string) func(string) string {
		return func(step string) string {
			return strings.Replace(step, "          tty: false\n", "          tty: false\n"+lines, 1)
		}
	}
	for _, s := range []struct {
		name string
		step nodeStep
		want string // in the log
	}{
		{"privileged", nodeStep{edit: add("          privileged: true\n")}, "privileged"},
		{"all GPUs", nodeStep{edit: add("          gpus: all\n")}, "gpus"},
		{"a device", nodeStep{edit: add("          devices: [/dev/nvidia0]\n")}, "devices"},
		{"the host's root", nodeStep{edit: add("          volumes: [\"/:/host\"]\n")}, "volumes"},
		{"the host's processes", nodeStep{edit: add("          pid: host\n")}, "pid"},
		{"the host's network", nodeStep{edit: func(s string) string { return strings.Replace(s, "network: none", "network: host", 1) }}, "network"},
		{"root", nodeStep{edit: func(s string) string { return strings.Replace(s, "propagate-uid-gid: true", "user: \"0:0\"", 1) }}, "user"},
		{"the agent", nodeStep{edit: func(s string) string {
			return strings.Replace(s, "mount-buildkite-agent: false", "mount-buildkite-agent: true", 1)
		}}, "mount-buildkite-agent"},
		{"another image", nodeStep{edit: func(s string) string { return strings.Replace(s, "image: "+nodeImage, "image: busybox", 1) }}, "busybox"},
		{"another plugin", nodeStep{edit: func(s string) string { return strings.Replace(s, "docker#v5.13.0", "docker#v5.11.0", 1) }}, "v5.11.0"},
		{"no plugin", nodeStep{edit: func(s string) string { before, _, _ := strings.Cut(s, "    plugins:\n"); return before }}, "plugin"},
		{"a second plugin", nodeStep{edit: func(s string) string { return s + "      - docker#v5.13.0:\n          image: busybox\n" }}, "plugin"},
		{"an environment that a shell would evaluate", nodeStep{edit: func(s string) string {
			return strings.Replace(s, "          environment:\n", "          environment:\n            - "+quoteYAML("KERNELBOT_X[$(touch "+evil+")]")+"\n", 1)
		}}, "environment"},
		{"a setting of two lines", nodeStep{edit: add("          " + quoteYAML("init\nBUILDKITE_PLUGIN_DOCKER_ENVIRONMENT_0[$(touch "+evil+")]") + ": x\n")}, "docker plugin"},
		{"a variable that a shell would evaluate", nodeStep{env: map[string]string{"KERNELBOT_X[$(touch " + evil + ")]": "1"}}, "KERNELBOT_X"},
		{"BASH_ENV", nodeStep{env: map[string]string{"BASH_ENV": "$(touch " + evil + ")"}}, "BASH_ENV"},
		{"LD_PRELOAD", nodeStep{env: map[string]string{"LD_PRELOAD": "/x.so"}}, "LD_PRELOAD"},
		{"PATH", nodeStep{env: map[string]string{"PATH": "/tmp"}}, "PATH"},
		{"DOCKER_HOST", nodeStep{env: map[string]string{"DOCKER_HOST": "unix:///run/docker.sock"}}, "DOCKER_HOST"},
		{"a variable that kbnode does not know", nodeStep{env: map[string]string{"BUILDKITE_DOCKER": "1"}}, "BUILDKITE_DOCKER"},
		{"a label of two lines", nodeStep{edit: func(s string) string {
			return strings.Replace(s, "label: ", "label: "+quoteYAML("a\nBUILDKITE_PLUGIN_DOCKER_ENVIRONMENT_0[$(touch "+evil+")]")+" # ", 1)
		}}, "BUILDKITE_LABEL"},
		{"the plugin's own variables", nodeStep{env: map[string]string{"BUILDKITE_PLUGIN_DOCKER_PRIVILEGED": "true"}}, "BUILDKITE_PLUGIN_DOCKER_PRIVILEGED"},
	} {
		t.Run(s.name, func(t *testing.T) {
			s.step.slot = "gpu0"
			if s.step.env == nil && s.step.command == "" {
				s.step.command = "echo it-runs-$((6 * 7))"
			}
			j, log := r.job(t, s.step)
			if j.State == engine.JobPassed || strings.Contains(log, "it-runs-42") {
				t.Fatalf("it ran, and ended %s:\n%s", j.State, tail([]byte(log), 3000))
			}
			if !strings.Contains(log, s.want) {
				t.Errorf("the job's log does not say why (want %q); signal reason %q:\n%s", s.want, j.SignalReason, tail([]byte(log), 3000))
			}
		})
	}
	// The plugin's shell ran a line of a message, with the job's exit status 0.
	for i, value := range testenv.HostileValues(evil) {
		t.Run(fmt.Sprintf("value %d", i), func(t *testing.T) {
			several := "first\n" + value + "\nlast"
			j, log := r.job(t, nodeStep{
				slot: "gpu0", command: "echo ran-$((6 * 7)) # " + value, message: several, author: value,
				edit: func(s string) string { return strings.Replace(s, "label: ", "label: "+quoteYAML(value)+" # ", 1) },
				env:  map[string]string{"KERNELBOT_PAYLOAD": several, "SUBMISSION_PAYLOAD": several, "KERNELBOT_X": value},
			})
			if j.State != engine.JobPassed || !strings.Contains(log, "ran-42") {
				t.Errorf("the job with %q ended %s:\n%s", value, j.State, tail([]byte(log), 3000))
			}
		})
	}
	t.Run("link", func(t *testing.T) {
		j, _ := r.job(t, nodeStep{slot: "gpu0", command: "ln -s /etc/kbnode/slots.yml result.json"})
		all, err := r.Engine.JobArtifacts(j.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			if a.State == engine.ArtifactFinished {
				t.Errorf("a link was uploaded as %s", a.Path)
			}
		}
	})
	t.Run("bombs", func(t *testing.T) {
		j, log := r.job(t, nodeStep{slot: "gpu0", command: `python3 -c "x = bytearray(3 << 30); print(len(x))"`})
		if j.State == engine.JobPassed || strings.Contains(log, "3221225472\n") {
			t.Errorf("3 GiB in a slot of 1 GiB: the job ended %s", j.State)
		}
	})
	t.Run("proxy alone", func(t *testing.T) { r.proxyAlone(t) })
	t.Run("local network", func(t *testing.T) { r.localNetwork(t) })
	if _, _, status := r.guest.try("ls " + evil); status == 0 {
		t.Error("a hostile step ran a command on the host")
	}
	r.programs(t, agent, 9)
}

// traceAgent has the kernel record each program that the agent of gpu0 and its
// descendants start, and prints the agent's process. Jobs' containers are no
// descendants: the engine starts them.
const traceAgent = `cd /sys/kernel/tracing || exit
	[ -e options/event-fork ] || mount -t tracefs tracefs . && cd /sys/kernel/tracing || exit
	agent=$(systemctl show -P MainPID kbnode-agent@gpu0)
	echo >trace && echo 1 >options/event-fork && ls /proc/$agent/task >set_event_pid &&
	echo 1 >events/sched/sched_process_exec/enable && echo 1 >tracing_on && echo $agent`

// started matches the kernel's record of a program's start. stored matches two counts:
// the records stored and the records written.
var (
	started = regexp.MustCompile(`sched_process_exec: filename=(.*) pid=[0-9]+ old_pid=`)
	stored  = regexp.MustCompile(`entries-in-buffer/entries-written: ([0-9]+)/([0-9]+)`)
)

// programs stops the trace of an agent that ran at least this many jobs, and checks
// that they started nothing on the machine except the agent, its hook and kbnode.
func (r *nodeRig) programs(t *testing.T, agent string, jobs int) {
	trace := r.guest.run(`cd /sys/kernel/tracing && cat trace && echo 0 >events/sched/sched_process_exec/enable && echo >set_event_pid && echo 0 >options/event-fork`)
	if now := r.guest.run("systemctl show -P MainPID kbnode-agent@gpu0"); now != agent {
		t.Errorf("the agent is process %s, and was %s: not all that it started was recorded", now, agent)
	}
	if n := stored.FindStringSubmatch(trace); n == nil || n[1] != n[2] {
		t.Errorf("the kernel has stored %q of its records, want all", n)
	}
	count := map[string]int{}
	for _, m := range started.FindAllStringSubmatch(trace, -1) {
		count[m[1]]++
	}
	t.Logf("started on the machine: %v", count)
	hook, kbnode := count["/etc/kbnode/hooks/pre-bootstrap"], count["/usr/bin/kbnode"]
	if hook < jobs || kbnode < 2*jobs {
		t.Errorf("%d hooks and %d of kbnode's commands started, want one and two for each of %d jobs or more", hook, kbnode, jobs)
	}
	for _, expected := range []string{"/etc/kbnode/hooks/pre-bootstrap", "/usr/bin/kbnode", "/usr/bin/buildkite-agent"} {
		delete(count, expected)
	}
	if len(count) > 0 {
		t.Errorf("jobs started other programs on the machine: %v", count)
	}
}

// proxyAlone attacks the proxy as the slot's user, without agent and gate before it.
func (r *nodeRig) proxyAlone(t *testing.T) {
	const ask = `setpriv --reuid kbagent-gpu0 --regid kbagent-gpu0 --clear-groups curl -s -m 60 -o /dev/null -w '%%{http_code}' --unix-socket %s -X %s -H 'Content-Type: application/json' -d '%s' 'http://engine%s'`
	const create, image = "/v1.41/containers/create", `"Image":"` + nodeImage + `"`
	for _, a := range []struct{ socket, method, path, body, want string }{
		{"", "POST", create, `{` + image + `,"HostConfig":{"Privileged":true}}`, "403"},
		{"", "POST", create, `{` + image + `,"HostConfig":{"Binds":["/:/host"]}}`, "403"},
		{"", "POST", create, `{` + image + `,"HostConfig":{"Binds":["/var/lib/kbnode/slots/gpu1/tmp:/host"]}}`, "403"},
		{"", "POST", create, `{` + image + `,"HostConfig":{"Mounts":[{"Type":"bind","Source":"/run/docker.sock","Target":"/s"}]}}`, "403"},
		{"", "POST", create, `{` + image + `,"HostConfig":{"PidMode":"host"}}`, "403"},
		{"", "POST", create, `{` + image + `,"HostConfig":{"NetworkMode":"host"}}`, "403"},
		{"", "POST", create, `{` + image + `,"HostConfig":{"Devices":[{"PathOnHost":"/dev/vda","PathInContainer":"/dev/vda","CgroupPermissions":"rwm"}]}}`, "403"},
		{"", "POST", create, `{` + image + `,"HostConfig":{"CapAdd":["SYS_ADMIN"]}}`, "403"},
		{"", "POST", create, `{` + image + `,"HostConfig":{"CgroupParent":"system.slice"}}`, "403"},
		{"", "POST", create, `{"Image":"busybox"}`, "403"},
		{"", "POST", "/v1.41/images/create?fromImage=busybox", "", "403"},
		{"", "POST", "/v1.41/volumes/create", "{}", "403"},
		{"", "POST", "/v1.41/swarm/init", "{}", "403"},
		{"/run/kbnode/gpu1/docker.sock", "GET", "/version", "", "000"}, // a neighbour's
		{"/run/docker.sock", "GET", "/version", "", "000"},
		{"", "GET", "/version", "", "200"}, // the slot's own answers
	} {
		socket := cmp.Or(a.socket, "/run/kbnode/gpu0/docker.sock")
		if got, _, _ := r.guest.try(fmt.Sprintf(ask, socket, a.method, a.body, a.path)); got != a.want {
			t.Errorf("%s: %s %s %s: status %s, want %s", socket, a.method, a.path, a.body, got, a.want)
		}
	}
	if out := r.guest.run("docker ps --all --quiet --filter label=kbnode.slot=gpu0"); strings.TrimSpace(out) != "" {
		t.Errorf("there are containers: %s", out)
	}
}

// localNetwork: what runs in an agent's unit reaches the agent API, and not the network
// that the machine is in, where its stand-in has another address.
func (r *nodeRig) localNetwork(t *testing.T) {
	const inside = `echo $$ >/sys/fs/cgroup/kbnode.slice/kbnode-gpu0.slice/kbnode-agent@gpu0.service/cgroup.procs; `
	const get = "curl -s -m 20 -o /dev/null http://%s:%s/v3/ping"
	for _, c := range []struct {
		before, host string
		reached      bool
	}{{"", "10.0.2.2", true}, {inside, "10.0.2.2", false}, {inside, "127.0.0.1", true}} {
		_, _, status := r.guest.try(c.before + fmt.Sprintf(get, c.host, r.port(r.URL())))
		if reached := status == 0; reached != c.reached {
			t.Errorf("%s%s: exit status %d, want reached: %v", c.before, c.host, status, c.reached)
		}
	}
}

// cancelled: a container that ignores SIGTERM does not outlive its job.
func (r *nodeRig) cancelled(t *testing.T) {
	b := r.build(t, nodeStep{slot: "gpu0", command: `trap "" TERM; echo deaf; while :; do sleep 1; done`})
	r.event(t, b, "deaf\n")
	if _, err := r.Engine.CancelBuild(b.ID); err != nil {
		t.Fatal(err)
	}
	r.done(t, b)
	if out := r.guest.run("docker ps --quiet --filter label=kbnode.slot=gpu0"); strings.TrimSpace(out) != "" {
		t.Errorf("a container is left: %s", out)
	}
	j, log := r.job(t, nodeStep{slot: "gpu0", command: describe})
	described(t, j, log)
}

// event waits until a build's last job has said something.
func (r *nodeRig) event(t *testing.T, b engine.Build, want string) {
	t.Helper()
	sub := r.Engine.Subscribe()
	defer sub.Close()
	ctx, cancel := context.WithTimeout(context.Background(), guestPatience)
	defer cancel()
	for {
		now, err := r.Engine.BuildByID(b.ID)
		if err != nil {
			t.Fatal(err)
		}
		j := now.Jobs[len(now.Jobs)-1]
		if f, err := r.Engine.Log(j.ID); err == nil {
			text, _ := io.ReadAll(f)
			f.Close()
			if strings.Contains(plain(text), "\n"+want) {
				return
			}
		}
		step, stop := context.WithTimeout(ctx, time.Second) // the log has no event of its own
		_, err = sub.Next(step)
		stop()
		if ctx.Err() != nil {
			t.Fatalf("build %d did not say %q: %v", b.Number, want, err)
		}
	}
}
