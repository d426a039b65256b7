package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/node/audit"
)

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
