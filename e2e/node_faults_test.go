package e2e

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// doctor finds nothing wrong, and then each fault that is made.
func (r *nodeRig) doctor(t *testing.T) {
	g := r.guest
	if out, errs, status := g.try("kbnode doctor"); status != 0 {
		t.Errorf("kbnode doctor of a machine that is in order: exit status %d\n%s%s", status, out, errs)
	}
	out, errs, status := g.try("BUILDKITE_API_TOKEN=" + r.APIToken() + " KBLAUNCH_API_URL=" + r.URL() + "/ kbnode doctor --submit --all")
	if status != 0 || !strings.Contains(out, "submit-right") || !strings.Contains(out, "submit-wrong") {
		t.Errorf("kbnode doctor --submit: exit status %d\n%s%s", status, out, errs)
	}
	start := time.Now()
	g.run("kbnode doctor --slot gpu0 --preflight")
	t.Logf("a preflight took %.1f s in the guest", time.Since(start).Seconds())
	// The watch would see some of the faults as well, and take the slot out of use.
	g.run("systemctl stop kbnode-check.timer; systemctl stop kbnode-check.service")
	for _, f := range nodeFaults {
		t.Run(f.name, func(t *testing.T) {
			g.run(f.breaks)
			out, _, status := g.try("kbnode doctor --json " + cmp.Or(f.slot, "--slot gpu0"))
			g.run(f.mend)
			var d struct {
				Checks []struct{ Code, Slot, State, Text, Fix string }
			}
			if err := json.Unmarshal([]byte(out), &d); err != nil {
				t.Fatalf("kbnode doctor --json: %v\n%s", err, out)
			}
			for _, c := range d.Checks {
				if c.Code == f.code && (c.State == "failure" || c.State == "warning") && c.Fix != "" {
					return
				}
			}
			t.Errorf("exit status %d, and no %s among what was found:\n%s", status, f.code, out)
		})
	}
	if out, errs, status := g.try("kbnode doctor"); status != 0 {
		t.Errorf("kbnode doctor after all is mended: exit status %d\n%s%s", status, out, errs)
	}
}

// nodeFaults are faults of a booted machine, and how they are made and mended.
// (docker looks again at a CDI spec that is written, not at one that is moved in.)
var nodeFaults = []struct{ name, breaks, mend, slot, code string }{
	{"token readable", "chmod 0644 /etc/kbnode/token", "chmod 0600 /etc/kbnode/token", "", "token"},
	{"token gone", "mv /etc/kbnode/token /root/t", "mv /root/t /etc/kbnode/token", "", "token"},
	{"hook changed", "cp -p /etc/kbnode/hooks/pre-bootstrap /root/h; echo exit 0 >>/etc/kbnode/hooks/pre-bootstrap", "cp -p /root/h /etc/kbnode/hooks/pre-bootstrap", "", "files"},
	{"hook without #!", "cp -p /etc/kbnode/hooks/pre-bootstrap /root/h; echo exit 0 >/etc/kbnode/hooks/pre-bootstrap", "cp -p /root/h /etc/kbnode/hooks/pre-bootstrap", "", "hooks"},
	{"hook writable", "chmod 0777 /etc/kbnode/hooks/pre-bootstrap", "chmod 0755 /etc/kbnode/hooks/pre-bootstrap", "", "hooks"},
	{"hooks directory writable", "chmod 0777 /etc/kbnode/hooks", "chmod 0755 /etc/kbnode/hooks", "", "hooks"},
	{"agent gone", "mv /usr/bin/buildkite-agent /root/a", "mv /root/a /usr/bin/buildkite-agent", "", "agent-program"},
	{"docker down", "systemctl stop docker.socket docker.service", "systemctl start docker", "", "docker"},
	{"docker socket for everybody", "chmod 0666 /run/docker.sock", "chmod 0660 /run/docker.sock", "", "docker-socket"},
	{"CDI spec gone", "mv /etc/cdi/nvidia.yaml /root/n", "cp /root/n /etc/cdi/nvidia.yaml", "", "cdi-devices"},
	{"no driver", "umount /proc/driver", "sh /opt/fake-gpus/nodes.sh", "", "driver"},
	{"agents do not start at boot", "systemctl -q disable kbnode-agents.target", "systemctl -q enable kbnode-agents.target", "", "target"},
	{"user rules docker", "usermod -aG docker kbagent-gpu2", "gpasswd -d kbagent-gpu2 docker >/dev/null", "--slot gpu2", "agent-group"},
	{"drop-in rules docker", dropIn("SupplementaryGroups=docker"), dropInGone, "--slot gpu2", "agent-group"},
	{"drop-in opens the sandbox", dropIn("NoNewPrivileges=no"), dropInGone, "--slot gpu2", "sandbox"},
	{"disk not mounted", "systemctl stop kbnode-agent@gpu2 var-lib-kbnode-slots-gpu2.mount", "systemctl start kbnode-agent@gpu2", "--slot gpu2", "slot-disk"},
	{"no job directory", "mv /var/lib/kbnode/slots/gpu2/tmp /root/d", "mv /root/d /var/lib/kbnode/slots/gpu2/tmp", "--slot gpu2", "directories"},
	{"job directory for everybody", "chmod 0777 /var/lib/kbnode/slots/gpu2/tmp", "chmod 0700 /var/lib/kbnode/slots/gpu2/tmp", "--slot gpu2", "directories"},
	{"slice file gone", "mv /etc/systemd/system/kbnode-gpu2.slice /root/s; systemctl daemon-reload", "mv /root/s /etc/systemd/system/kbnode-gpu2.slice; systemctl daemon-reload", "--slot gpu2", "slice"},
	{"limit raised", "systemctl set-property --runtime kbnode-gpu2.slice MemoryMax=4G", "systemctl set-property --runtime kbnode-gpu2.slice MemoryMax=1342177280; rm -r /run/systemd/system.control/kbnode-gpu2.slice.d; systemctl daemon-reload", "--slot gpu2", "slice-limits"},
	{"all cores", "systemctl set-property --runtime kbnode-gpu2.slice AllowedCPUs=0-11", "systemctl set-property --runtime kbnode-gpu2.slice AllowedCPUs=3; rm -r /run/systemd/system.control/kbnode-gpu2.slice.d; systemctl daemon-reload", "--slot gpu2", "slice-limits"},
	{"device node gone", "mv /dev/nvidia5 /dev/nvidia5-away", "mv /dev/nvidia5-away /dev/nvidia5", "--slot gpu2", "device"},
	{"GPU off the bus", "cp /etc/fake-gpus /root/f; sed -i /GPU-00000002/d /etc/fake-gpus", "cp /root/f /etc/fake-gpus", "--slot gpu2", "device"},
	{"proxy down", "systemctl stop kbnode-proxy@gpu2.socket kbnode-proxy@gpu2.service", "systemctl start kbnode-proxy@gpu2.socket", "--slot gpu2", "proxy"},
	{"image gone from pins", "mv /var/lib/kbnode/pins.yml /root/p", "mv /root/p /var/lib/kbnode/pins.yml", "--slot gpu2", "image"},
	{"agent down", "systemctl stop kbnode-agent@gpu2", "systemctl start kbnode-agent@gpu2", "--slot gpu2", "agent-unit"},
	{"an agent of somebody else's", `mkfifo /root/start; cd /root; bash -c 'exec -a buildkite-agent cat start' >/dev/null 2>&1 </dev/null &
		until pgrep -f '^[b]uildkite-agent start$' >/dev/null; do :; done`, "pkill -f '^[b]uildkite-agent start$'; rm /root/start", "", "foreign-agents"},
	{"paused", "kbnode drain gpu2 --reason test", "kbnode resume gpu2", "--slot gpu2", "paused"},
	// The last, as its mending has the watch look again.
	{"timer off", "systemctl stop kbnode-check.timer", "systemctl start kbnode-check.timer", "", "timers"},
}

const (
	dropInDir  = "/etc/systemd/system/kbnode-agent@gpu2.service.d"
	dropInGone = "rm -r " + dropInDir + "; systemctl daemon-reload"
)

// dropIn is a command that changes a setting of an agent's unit.
func dropIn(setting string) string {
	return "mkdir " + dropInDir + "; printf '[Service]\\n" + setting + "\\n' >" + dropInDir + "/x.conf; systemctl daemon-reload"
}
