package harness

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

// leaver looks for what an earlier phase may have left, and leaves all of it
// itself: it raises when something is found, and prints what it could leave.
const leaver = `
import ctypes, os, platform, resource, socket, subprocess, sys

libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == "aarch64"
ADD_KEY, KEYCTL, SET_IO, GET_IO, SHMGET = (217, 219, 30, 31, 194) if arm else (248, 250, 251, 252, 29)
PLACES = (".", os.path.expanduser("~"), os.environ["TMPDIR"], "/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue")
NICE, CORES = %d, %d  # of kbrun


def connect(name="kbleft"):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\0" + name)
    return True


def leave_file():
    made = []
    for place in PLACES:
        try:
            with open(f"{place}/kbleft", "w") as file:
                file.write("x")
            made.append(place)
        except OSError:
            pass
    return made


def leave_process():
    ready, done = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        libc.prctl(15, b"kbleft")
        s = socket.socket(socket.AF_UNIX)
        s.bind("\0kbleft")
        s.listen()
        os.write(done, b"x")
        import time
        while True:
            time.sleep(1e6)
    os.read(ready, 1)
    return True


def leave_headless():
    """Leaves a process whose first thread has ended, so that it looks dead."""
    import threading, time
    ready, done = os.pipe()
    if os.fork() == 0:
        libc.prctl(15, b"kbheadless")

        def stay():
            first = f"/proc/self/task/{os.getpid()}/stat"
            while open(first).read().rsplit(")", 1)[1].split()[0] != "Z":
                time.sleep(0.01)
            s = socket.socket(socket.AF_UNIX)
            s.bind("\0kbheadless")
            s.listen()
            os.write(done, b"x")
            time.sleep(1e6)

        threading.Thread(target=stay).start()
        libc.syscall(93 if arm else 60, 0)
    os.read(ready, 1)
    return True


def names():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as file:
                yield file.read().strip()
        except OSError:
            pass


parent = os.getppid()
things = {
    "file": (lambda: any(os.path.exists(f"{place}/kbleft") for place in PLACES), leave_file),
    "process": (lambda: "kbleft" in names() or connect(), leave_process),
    "headless process": (lambda: "kbheadless" in names() or connect("kbheadless"), leave_headless),
    "shared memory": (lambda: libc.syscall(SHMGET, 0x6B62, 0, 0) >= 0, lambda: libc.syscall(SHMGET, 0x6B62, 4096, 0o1666) >= 0),
    "nice": (lambda: os.nice(0) > NICE, lambda: os.setpriority(os.PRIO_PROCESS, parent, NICE + 1) is None),
    "cores": (lambda: len(os.sched_getaffinity(0)) < CORES, lambda: CORES > 1 and os.sched_setaffinity(parent, {min(os.sched_getaffinity(0))}) is None),
    "I/O priority": (lambda: libc.syscall(GET_IO, 1, 0) & 7 == 7, lambda: libc.syscall(SET_IO, 1, parent, 2 << 13 | 7) == 0),
    "limit": (
        lambda: resource.getrlimit(resource.RLIMIT_MSGQUEUE)[0] == 12345,
        lambda: resource.prlimit(parent, resource.RLIMIT_MSGQUEUE, (12345, resource.getrlimit(resource.RLIMIT_MSGQUEUE)[1])),
    ),
    "key": (
        lambda: libc.syscall(KEYCTL, 10, -4, b"user", b"kbleft", 0) > 0,
        lambda: libc.syscall(ADD_KEY, b"user", b"kbleft", b"x", 1, -4) > 0,
    ),
}
found, left = [], []
for name, (look, leave) in things.items():
    try:
        found += [name] if look() else []
    except OSError:
        pass
if found:
    raise RuntimeError(f"found {found}")
for name, (look, leave) in things.items():
    try:
        left += [name] if leave() else []
    except OSError:
        pass
print("left:", *left, sep="|")
`

// What a phase's worker leaves is not there for the next one's, whether or not
// they are one user: processes are killed, files and objects removed, and the
// interpreter that workers come from is replaced when somebody changed how it
// runs. Limits of others and keys cannot be had at all.
func TestNothingOfAPhaseIsLeft(t *testing.T) {
	if level, again := os.LookupEnv("KBGEN_TEST_MEANS"); again {
		leaveAndLook(t, level)
		return
	}
	if os.Getuid() != 0 {
		leaveAndLook(t, schema.MeansUserNamespace)
		return
	}
	t.Run(schema.MeansNamespaces, func(t *testing.T) { leaveAndLook(t, schema.MeansNamespaces) })
	dir, err := os.MkdirTemp("", "kbleft-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "harness.test")
	os.Chmod(dir, 0o755)
	copyProgram(t, os.Args[0], program)
	for _, tt := range []struct {
		name, means string
		uid         uint32
		without     []uintptr
	}{
		{"an ordinary user", schema.MeansUserNamespace, 61000, nil},
		{"root that may not make namespaces", schema.MeansProcess, 0, []uintptr{unix.CAP_SYS_ADMIN}},
		{"root that has no other user", schema.MeansProcess, 0, []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETUID}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command(program, "-test.run", "^TestNothingOfAPhaseIsLeft$", "-test.v")
			cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "KBGEN_TEST_MEANS=" + tt.means, "HOME=" + dir}
			cmd.Dir = dir
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tt.uid, Gid: tt.uid}}
			var out []byte
			ran := make(chan error)
			go func() { // its thread has lost capabilities, and ends with it
				runtime.LockOSThread()
				for _, c := range tt.without {
					unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
				}
				var err error
				out, err = cmd.CombinedOutput()
				ran <- err
			}()
			if err := <-ran; err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// leaveAndLook does so three times in one session.
func leaveAndLook(t *testing.T, means string) {
	nice, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	nice = 20 - nice // as the bare call has it
	var cores unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cores); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil { // as kbrun is
		t.Fatal(err)
	}
	p := addPayload(right, ints("n", 4, "seed", 1))
	s, err := open(t, "", p)
	if err != nil && strings.Contains(err.Error(), "without a control group") && !sandbox.OwnUser() {
		t.Skipf("NOT RUN: this machine has no control group for it: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove("/dev/shm/kbleft") }) // without a user of its own it stays
	if got := s.Report(); got != nil && got.Means != means {
		t.Skipf("NOT RUN: this machine gives a sandbox by %s", got.Means)
	}
	text := fmt.Sprintf(leaver, nice, cores.Count()) + right
	if means == schema.MeansProcess && !sandbox.OwnUser() { // nothing tells its files there from those of other jobs
		text = strings.Replace(text, `"/dev/shm", `, "", 1)
	}
	for n := range 3 {
		r := phase(t, s, schema.ModeTest, text, p)
		r.want(t, schema.OutcomePassed, "")
		printed, _, _ := strings.Cut(r.Process.Stdout.Text(), "\n")
		left := strings.Split(printed, "|")
		t.Logf("phase %d: %q", n, left)
		want := []string{"file", "process", "headless process", "nice", "I/O priority"}
		if cores.Count() > 1 {
			want = append(want, "cores")
		}
		for _, thing := range want {
			if !slices.Contains(left, thing) {
				t.Errorf("phase %d could not leave %s: this test does not see whether it stays", n, thing)
			}
		}
		for _, thing := range []string{"limit", "key"} {
			if slices.Contains(left, thing) {
				t.Errorf("phase %d could leave a %s", n, thing)
			}
		}
	}
	if got := s.Report(); got == nil || got.Means != means {
		t.Errorf("sandbox %+v, want means %q", got, means)
	}
}
