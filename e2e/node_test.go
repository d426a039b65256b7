package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
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

// undo leaves the machine as it was.
func (r *nodeRig) undo(t *testing.T, before string) {
	t.Logf("undo:\n%s", r.guest.run("kbnode undo --purge"))
	if after := r.tree(); after != before {
		t.Errorf("the machine is not what it was:\n%s", treeDiff(before, after))
	}
}
