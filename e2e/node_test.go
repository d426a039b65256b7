package e2e

import (
	"cmp"
	"context"
	"encoding/json"
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
	"github.com/gpu-mode/kbgen/node/audit"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/secrets"
)

// A vendor's machine, from kbnode's plan to the last trace of it: real systemd,
// real docker, real agents, eight GPUs that are none.
func TestNode(t *testing.T) {
	needGuest(t)
	r := newNodeRig(t)
	r.step(t, "services", func(t *testing.T) { r.services(t) })
	before := r.tree()
	r.step(t, "plan and apply", func(t *testing.T) { r.planAndApply(t) })
	if t.Failed() {
		return
	}
	r.agents(8)
	r.step(t, "own device", func(t *testing.T) { r.ownDevice(t) })
	r.step(t, "own disk", func(t *testing.T) { r.ownDisk(t) })
	r.step(t, "verdicts", func(t *testing.T) { r.verdicts(t) })
	r.step(t, "sealed", func(t *testing.T) { r.sealed(t) })
	r.step(t, "hostile steps", func(t *testing.T) { r.hostileSteps(t) })
	r.step(t, "cancelled", func(t *testing.T) { r.cancelled(t) })
	r.step(t, "image", func(t *testing.T) { r.image(t) })
	r.step(t, "drain", func(t *testing.T) { r.drain(t) })
	r.step(t, "doctor", func(t *testing.T) { r.doctor(t) })
	r.step(t, "verify", func(t *testing.T) { r.verify(t) })
	r.step(t, "reboot", func(t *testing.T) { r.reboot(t) })
	r.step(t, "host slot", func(t *testing.T) { r.hostSlot(t) })
	r.step(t, "undo", func(t *testing.T) { r.undo(t, before) })
}

// step runs a part of a test, whose faults in the guest are its own.
func (r *nodeRig) step(t *testing.T, name string, part func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		whole := r.guest.t
		r.guest.t = t
		defer func() { r.guest.t = whole }()
		part(t)
	})
}

// services: the units of kbserve and of the broker of secrets, as systemd runs them.
// A restart of kbserve turns nobody away.
func (r *nodeRig) services(t *testing.T) {
	g := r.guest
	g.put("/usr/bin", filepath.Join(bin, "kbserve"), filepath.Join(bin, "kbgen"))
	g.file("/root/services.sh", servicesScript)
	out := g.run("sh /root/services.sh 2>&1")
	for _, want := range []string{"200 of 200\n", "by the socket: 200\n", "broker: active\n", "broker with a credential: active\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("the services' script did not say %q:\n%s", want, out)
		}
	}
}

const servicesScript = `
mkdir -p /etc/kbserve /etc/kbnode
printf 'KBSERVE_DATABASE=sqlite:kbserve.db\nKBSERVE_MIGRATE=true\nBUILDKITE_API_TOKEN=x\nKBSERVE_API_URL=http://127.0.0.1:1/\n' >/etc/kbserve/kbserve.env
chmod 0600 /etc/kbserve/kbserve.env
kbserve unit >/etc/systemd/system/kbserve.service
kbserve unit --socket >/etc/systemd/system/kbserve.socket
systemctl daemon-reload
systemctl start kbserve.socket kbserve
get() { curl -s -m 300 -o /dev/null -w '%{http_code}\n' http://127.0.0.1:8080/health; }
(for i in $(seq 200); do get; done >/root/answers) &
systemctl restart kbserve
systemctl restart kbserve
wait
echo "$(grep -c 200 /root/answers) of 200"
systemctl stop kbserve
echo "by the socket: $(get)"
kbgen secret keygen --name guest --out /etc/kbnode/secret.key >/dev/null
cat >/etc/kbnode/secretd.yml <<Y
version: 1
keys: [secret.key]
host: {organization: 0190c0de-0000-4000-8000-000000000001, pipelines: [0190c0de-0000-4000-8000-0000000000aa]}
Y
chmod 0600 /etc/kbnode/secretd.yml
kbnode secretd --unit >/etc/systemd/system/kbnode-secretd.service
kbnode secretd --socket-unit >/etc/systemd/system/kbnode-secretd.socket
systemctl daemon-reload
systemctl start kbnode-secretd.socket
curl -s -m 60 --unix-socket /run/kbnode/secretd.sock http://broker/ >/dev/null
echo "broker: $(systemctl is-active kbnode-secretd.service)"
systemd-creds encrypt --name=secret.key /etc/kbnode/secret.key /etc/kbnode/secret.cred
kbnode secretd --unit --credential /etc/kbnode/secret.cred >/etc/systemd/system/kbnode-secretd.service
rm /etc/kbnode/secret.key
systemctl daemon-reload
systemctl restart kbnode-secretd.service
echo "broker with a credential: $(systemctl is-active kbnode-secretd.service)"
systemctl stop kbserve.socket kbserve kbnode-secretd.socket kbnode-secretd.service
rm -rf /etc/kbserve /etc/kbnode /run/kbnode /etc/systemd/system/kbserve.* /etc/systemd/system/kbnode-secretd.* /usr/bin/kbserve /usr/bin/kbgen /var/lib/private/kbserve /var/lib/kbserve
systemctl daemon-reload
`

// tree describes what kbnode may touch: files, modes, owners, units, users. What
// runs leave behind, and what holds times, is not in it, nor what is in a slot's disk.
func (r *nodeRig) tree() string {
	return r.guest.run(`cd / && find etc usr/bin usr/local var/lib/kbnode run/kbnode -xdev \( -name 'passwd-' -o -name 'group-' -o -name 'shadow-' -o -name 'gshadow-' -o -name 'sub?id-' -o -name '.pwd.lock' -o -name ld.so.cache -o -path var/lib/kbnode/ledger -o -path var/lib/kbnode/kbnode.prom -o -path 'var/lib/kbnode/slots/*/*/*' \) -prune -o -path 'var/lib/kbnode/disks/*' -printf '%p %m %u %g %s\n' -o \( -type f -printf '%p %m %u %g ' -exec sha256sum {} \; -o -printf '%p %y %m %u %g %l\n' \) 2>/dev/null | sed 's/  .*//' | sort
		systemctl list-unit-files --no-legend --no-pager | grep -i kbnode; getent passwd | sort; getent group | sort`)
}

// planAndApply sets the machine up, and again, which changes nothing.
func (r *nodeRig) planAndApply(t *testing.T) {
	g := r.guest
	_, flags, _ := strings.Cut(r.applyCommand(""), " --token-file /root/token ")
	plan := strings.Replace(r.page("kbnode plan"), "node.yml", r.queue, 1) + " " + flags
	out, errs, status := g.try(plan)
	if status != 2 || !strings.Contains(out, "start kbnode-SLOT.slice") {
		t.Fatalf("kbnode plan: exit status %d, want 2 and what it would do:\n%s%s", status, tail([]byte(out), 3000), errs)
	}
	t.Run("docker is not restarted without leave", func(t *testing.T) {
		out, errs, status := g.try(strings.Replace(r.applyCommand(""), " --allow-docker-restart", "", 1))
		if status == 0 || !strings.Contains(errs, "--allow-docker-restart") {
			t.Errorf("exit status %d, want a refusal that names the flag:\n%s%s", status, out, errs)
		}
	})
	start := time.Now()
	t.Logf("apply:\n%s", r.apply(""))
	t.Logf("the first apply took %.0f s in the guest", time.Since(start).Seconds())
	start = time.Now()
	if out := r.apply(""); !strings.Contains(out, "nothing to do") {
		t.Errorf("a second apply did something:\n%s", out)
	}
	t.Logf("the second apply took %.1f s in the guest", time.Since(start).Seconds())
	if out, errs, status := g.try(plan); status != 0 {
		t.Errorf("kbnode plan afterwards: exit status %d, want 0:\n%s%s", status, out, errs)
	}
	g.run(r.page("kbnode image update") + " --local") // no registry is to be had
	exposed := g.run(`for unit in kbnode-check kbnode-image kbnode-prepare kbnode-disk@gpu0 kbnode-agent@gpu0 kbnode-proxy@gpu0; do
		systemd-analyze security --no-pager --threshold=40 $unit.service >/dev/null || echo $unit; done`)
	if exposed != "" {
		t.Errorf("systemd-analyze security gives more than 4.0 to %s", exposed)
	}
	if out := g.run("ps axo args"); strings.Contains(out, r.AgentToken()) {
		t.Error("the token is in a process listing")
	}
	if _, _, status := g.try("grep -rqs " + r.AgentToken() + " /var/log /etc/systemd /run/systemd"); status == 0 {
		t.Error("the token is in a log or a unit")
	}
	if out, _, _ := g.try("journalctl --no-pager | grep -c " + r.AgentToken()); strings.TrimSpace(out) != "0" {
		t.Error("the token is in the journal")
	}
}

// agents waits until the slots' agents are connected.
func (r *nodeRig) agents(n int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guestPatience)
	defer cancel()
	if err := r.AwaitAgents(ctx, n+1); err != nil { // and the one of the bootstrap step
		out, _, _ := r.guest.try("systemctl --no-pager --failed; journalctl --no-pager -n 60 -u 'kbnode-*'")
		r.t.Fatalf("%v\n%s\n%s", err, out, r.passing())
	}
}

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

// sealed: a submission that nobody but the machine can read is judged in a container,
// which could not ask for it.
func (r *nodeRig) sealed(t *testing.T) {
	g := r.guest
	_, line, err := secrets.GenerateKey(secrets.X25519)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := secrets.ParsePrivateKeys([]byte(line))
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
		"--seal", here.sealFileOf("h100", keys[0], ", steps: [evaluate-h100], sources: [api]"))
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

// letGo makes the file that a slot's job waits for.
const letGo = `cd /var/lib/kbnode/slots/%s/tmp/buildkite-job-*/ && touch go`

// image is updated beside a job that runs in the old one; the next job has the new
// one, and a rollback brings the old one back.
func (r *nodeRig) image(t *testing.T) {
	g := r.guest
	b := r.build(t, nodeStep{slot: "gpu2", command: `echo busy; while [ ! -e go ]; do sleep 1; done; cat /version 2>/dev/null || echo old; echo ended-$((6 * 7))`})
	r.event(t, b, "busy\n")
	g.run(`docker create --name new ` + nodeImage + ` true && echo new-$((6 * 7)) >/root/version && docker cp /root/version new:/version && docker commit new ` + nodeImage + ` && docker rm new`)
	out := g.run("kbnode image update --local " + nodeImage + " 2>&1; kbnode image status")
	g.run(fmt.Sprintf(letGo, "gpu2"))
	if j, log := r.done(t, b); j.State != engine.JobPassed || !strings.Contains(log, "\nold\n") {
		t.Errorf("the job beside the update ended %s, want it to go on in the old image:\n%s\n%s", j.State, out, tail([]byte(log), 1500))
	}
	for _, image := range []struct{ command, want string }{{"true", "new-42"}, {"kbnode image rollback " + nodeImage, "old"}} {
		g.run(image.command)
		if _, log := r.job(t, nodeStep{slot: "gpu2", command: `cat /version 2>/dev/null || echo old`}); !strings.Contains(log, "\n"+image.want+"\n") {
			t.Errorf("after %s a job does not run in the image with %q:\n%s", image.command, image.want, tail([]byte(log), 1500))
		}
	}
}

// drain keeps a slot from taking jobs, and lets the job in hand end.
func (r *nodeRig) drain(t *testing.T) {
	g := r.guest
	b := r.build(t, nodeStep{slot: "gpu1", command: `echo busy; while [ ! -e go ]; do sleep 1; done; echo ended-$((6 * 7))`})
	r.event(t, b, "busy\n")
	if out := g.run("kbnode status --json"); !strings.Contains(out, `"busy"`) {
		t.Errorf("status says of a slot with a job:\n%s", out)
	}
	g.run(`kbnode drain gpu1 --no-wait --reason "fan exchange"`)
	g.run(fmt.Sprintf(letGo, "gpu1"))
	if j, log := r.done(t, b); j.State != engine.JobPassed || !strings.Contains(log, "ended-42") {
		t.Errorf("the job in hand ended %s", j.State)
	}
	g.run("kbnode drain gpu1")
	if out := g.run("kbnode status"); !strings.Contains(out, "paused") || !strings.Contains(out, "fan exchange") {
		t.Errorf("status does not say that the slot is paused, and why:\n%s", out)
	}
	r.connected(t, 1, "got no agent on queue h100 for GPU GPU-00000001-feed-beef-cafe-000000000001", "queue h100: 7 of 8 agents connected\n")
	g.run("kbnode resume gpu1")
	r.agents(8)
	r.connected(t, 0, "queue h100: 8 of 8 agents connected\n")

	// A GPU is lost for a while, and systemd reads its rules meanwhile: the watch
	// pauses the slot, and resume is all that it takes afterwards.
	g.run(`mv /dev/nvidia5 /dev/nvidia5-away; systemctl daemon-reload
		until [ -e /var/lib/kbnode/paused/gpu2 ]; do systemctl start kbnode-check.service; done; kbnode drain gpu2`)
	if out := g.run("kbnode doctor --slot gpu2 || true"); !strings.Contains(out, "takes no jobs: health: gpu2: there is no /dev/nvidia5") {
		t.Errorf("doctor does not say that the watch paused the slot:\n%s", out)
	}
	g.run("mv /dev/nvidia5-away /dev/nvidia5; kbnode resume gpu2")
	r.agents(8)
	j, log := r.job(t, nodeStep{slot: "gpu2", command: describe})
	if text := described(t, j, log); !strings.Contains(text, "/dev/nvidia5") {
		t.Errorf("a job lacks the device that was lost for a while:\n%s", text)
	}
}

// connected is what kblaunch says of the queue file, from anywhere: it agrees with
// kbnode status on the machine.
func (r *nodeRig) connected(t *testing.T, status int, wants ...string) {
	file := filepath.Join(t.TempDir(), "node.yml")
	if err := os.WriteFile(file, []byte(queueFileOfEight()), 0o644); err != nil {
		t.Fatal(err)
	}
	s := r.launch("queues", "--check", file)
	for _, want := range wants {
		if s.status != status || !strings.Contains(s.stdout, want) {
			t.Errorf("kblaunch queues --check: exit status %d, want %d and %q:\n%s%s", s.status, status, want, s.stdout, s.stderr)
		}
	}
}

// verify proves the machine with jobs of its own.
func (r *nodeRig) verify(t *testing.T) {
	out, errs, status := r.guest.try(r.page("kbnode verify") + " gpu0 gpu1 gpu2")
	if status != 0 {
		t.Errorf("kbnode verify: exit status %d\n%s%s", status, out, errs)
	}
	for _, want := range []string{"job-isolation", "job-right", "job-wrong", "outside", "inside"} {
		if strings.Count(out, want) < 3 {
			t.Errorf("no %s for each of three slots:\n%s", want, out)
		}
	}
	r.agents(8)
}

// reboot: the agents come back by themselves, once the driver has made its nodes.
func (r *nodeRig) reboot(t *testing.T) {
	g := r.guest
	g.run("sync")
	g.script("boot.sh", "--cut", g.dir)
	g.script("boot.sh", "--again", g.dir)
	g.script(filepath.Join("gpus", "gpus.sh"), "--after-boot", g.dir)
	r.reached()
	r.agents(8)
	j, log := r.job(t, nodeStep{slot: "gpu3", command: describe})
	if text := described(t, j, log); !strings.Contains(text, "/dev/nvidia4") {
		t.Errorf("after a reboot a job lacks its device:\n%s", text)
	}
}

// hostSlot gives the machine a slot without containers, whose jobs leave behind what a
// program can leave: the next job finds nothing of it, and both jobs are on record.
func (r *nodeRig) hostSlot(t *testing.T) {
	g := r.guest
	g.file(r.queue, queueFileOfEight()+"      - {type: CPU_BK, queue: cpu, count: 1, agent: {cpus: 1, memory_gib: 1, disk_gb: 1}}\n")
	r.apply("")
	defer func() {
		if t.Failed() {
			out, _, _ := g.try("systemctl --no-pager status kbnode-agent@cpu0; journalctl --no-pager -n 100 -u kbnode-agent@cpu0")
			t.Logf("the slot's agent:\n%s", out)
		}
	}()
	// The slot's commands are kbrun's, which is looked for here first.
	const kbrun = "/usr/local/bin/kbrun"
	g.file(kbrun, leaver)
	g.run("chmod 0755 " + kbrun)
	b := r.build(t, nodeStep{gpu: "CPU_BK"})
	r.event(t, b, "left\n")
	before := g.run("systemctl show -P InvocationID kbnode-agent@cpu0")
	found := g.run(leftovers)
	for _, want := range []string{"/dev/shm/left\n", "/dev/shm/dir\n", "/dev/mqueue/left\n", "/proc/sysvipc/shm\n", "/proc/sysvipc/msg\n", "/proc/sysvipc/sem\n"} {
		if !strings.Contains(found, want) {
			t.Errorf("the job that is to leave something has not made %q:\n%s", want, found)
		}
	}
	if n := strings.Count(found, kbrun); n < 2 {
		t.Errorf("the job that is to leave a process has %d, want two:\n%s", n, found)
	}
	g.run(fmt.Sprintf(letGo, "cpu0"))
	first, log := r.done(t, b)
	if first.State != engine.JobPassed || !strings.Contains(log, "ended-42") {
		t.Fatalf("the job ended %s:\n%s", first.State, tail([]byte(log), 3000))
	}
	g.run(fmt.Sprintf(anotherAgent, strings.TrimSpace(before)))
	if left := strings.TrimSpace(g.run(leftovers)); strings.Contains(left, "\n") || !strings.Contains(left, "buildkite-agent start") {
		t.Errorf("after the job the slot's user has\n%s\nwant the next agent only", left)
	}

	g.file(kbrun, "#!/bin/sh\necho second-$((6 * 7))\nexit 3\n")
	g.run("chmod 0755 " + kbrun)
	before = g.run("systemctl show -P InvocationID kbnode-agent@cpu0")
	second, log := r.job(t, nodeStep{gpu: "CPU_BK"})
	if !strings.Contains(log, "second-42") {
		t.Errorf("the second job ended %s:\n%s", second.State, tail([]byte(log), 3000))
	}
	g.run("rm " + kbrun)
	g.run(fmt.Sprintf(anotherAgent, strings.TrimSpace(before)))
	var records []audit.Record
	for lines := json.NewDecoder(strings.NewReader(g.run("cat /var/lib/kbnode/audit/cpu0.log"))); lines.More(); {
		var record audit.Record
		if err := lines.Decode(&record); err != nil {
			t.Fatal(err)
		}
		if record.Began.IsZero() || record.Ended.Before(record.Began) || record.Pipeline == "" || record.Build == "" {
			t.Errorf("recorded %+v, want times, pipeline and build", record)
		}
		records = append(records, audit.Record{Slot: record.Slot, Job: record.Job, Step: record.Step, Status: record.Status})
	}
	want := []audit.Record{{Slot: "cpu0", Job: first.ID, Step: "evaluate-cpu"}, {Slot: "cpu0", Job: second.ID, Step: "evaluate-cpu", Status: 3}}
	if !slices.Equal(records, want) {
		t.Errorf("recorded %+v, want %+v", records, want)
	}
}

// leaver is a program that leaves behind files in memory, IPC objects of each kind, and
// a process. The process is in a session of its own, has lost its parent, and ends only
// on SIGKILL.
const leaver = `#!/usr/bin/python3
import ctypes, os, signal, sys, time

libc = ctypes.CDLL(None, use_errno=True)

def made(what, result):
    if result < 0:
        sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")

open("/dev/shm/left", "w").close()
os.mkdir("/dev/shm/dir")
open("/dev/shm/dir/left", "w").close()
made("shmget", libc.shmget(0x6b62, 4096, 0o1600))
made("msgget", libc.msgget(0x6b62, 0o1600))
made("semget", libc.semget(0x6b62, 1, 0o1600))
made("mq_open", libc.mq_open(b"/left", os.O_CREAT | os.O_RDWR, 0o600, None))
if os.fork() == 0:
    for name in signal.SIGTERM, signal.SIGHUP, signal.SIGINT:
        signal.signal(name, signal.SIG_IGN)
    os.setsid()
    if os.fork() > 0:
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in 0, 1, 2:
        os.dup2(null, stream)
    os.chdir("/")
    while True:
        time.sleep(1)
os.wait()
print("left", flush=True)
while not os.path.exists("go"):
    time.sleep(1)
print("ended-" + str(6 * 7))
`

// leftovers lists the processes, files in memory and IPC objects of the user of cpu0.
const leftovers = `pgrep -a -u kbagent-cpu0; find /dev/shm /dev/mqueue -user kbagent-cpu0
	for kind in shm msg sem; do
		awk -v uid="$(id -u kbagent-cpu0)" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "uid") at = i; next } $at == uid { print FILENAME }' /proc/sysvipc/$kind
	done`

// anotherAgent waits until the unit of cpu0 runs again, in another invocation.
const anotherAgent = `until [ "$(systemctl is-active kbnode-agent@cpu0)" = active ] && [ "$(systemctl show -P InvocationID kbnode-agent@cpu0)" != %s ]; do sleep 1; done`

// undo leaves the machine as it was.
func (r *nodeRig) undo(t *testing.T, before string) {
	t.Logf("undo:\n%s", r.guest.run("kbnode undo --purge"))
	if after := r.tree(); after != before {
		t.Errorf("the machine is not what it was:\n%s", treeDiff(before, after))
	}
}
