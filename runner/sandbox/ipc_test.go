package sandbox

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/schema"
)

// makeIPC prints what became of an object of every kind that outlives its maker, one with
// a key and one without, some of them given away. SIZE is an unusual size by which the
// test recognizes them; message queues have none.
const makeIPC = `
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
try:
    libc.mq_open
except AttributeError:
    libc.mq_open = ctypes.CDLL("librt.so.1", use_errno=True).mq_open
def made(name, got):
    print(name, "made" if got >= 0 else errno.errorcode[ctypes.get_errno()])
for key in (0, 0x6b620000 + os.getpid() % 0xffff):
    made("shm", libc.shmget(key, SIZE, 0o1666))
    made("sem", libc.semget(key, SIZE, 0o1666))
    made("msg", libc.msgget(key, 0o1666))
held = libc.shmget(0, SIZE, 0o1600)
libc.shmat.restype = ctypes.c_void_p
libc.shmat(held, None, 0)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        made("shm", libc.shmget(0, SIZE, 0o1000)) # without a right for anybody
        print("last", flush=True)
        os._exit(0)
    os._exit(0)
os.wait()
made("mq", libc.mq_open(b"/kbrun-test-%d" % MARK, os.O_RDWR | os.O_CREAT, 0o666, None))
`

func TestObjectsAreGone(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		const size = 97 // unusual: databases of other tests may start meanwhile
		before := allIPC(t, b.sandbox.id.UID, size)
		out, state := b.python(t, fmt.Sprintf("MARK, SIZE = %d, %d", os.Getpid(), size)+makeIPC)
		if state.Exit != 0 {
			t.Fatalf("exit %d: %s", state.Exit, out)
		}
		b.sandbox.Report() // as it stands while the job runs
		must(t, b.sandbox.Close())
		for object := range allIPC(t, b.sandbox.id.UID, size) {
			if !before[object] {
				t.Errorf("%s is still there", object)
			}
		}
		if queue, err := openQueue(fmt.Sprintf("kbrun-test-%d", os.Getpid())); err == nil {
			unix.Close(queue)
			t.Error("the message queue is still there")
		}
		if !b.holds(schema.GuardSurvivors) {
			t.Errorf("survivors are missing: %+v", b.sandbox.Report().Missing)
		}
		// What was tried is what the means allows: nothing of this is vacuous.
		shm, mq := "made", "made"
		if b.means == schema.MeansProcess {
			mq = "EMFILE"
			if !b.sandbox.id.Own {
				shm = "EPERM"
			}
		}
		for _, want := range []string{"shm " + shm, "sem " + shm, "msg " + shm, "mq " + mq} {
			if !strings.Contains(out, want+"\n") {
				t.Errorf("want %q:\n%s", want, out)
			}
		}
	})
}

// What cannot be removed, or not be looked for, is said.
func TestObjectsThatStayAreTold(t *testing.T) {
	b := newBench(t, Options{}, schema.MeansProcess)
	if !b.sandbox.id.Own {
		t.Skip("under the runner's user none are made")
	}
	out, _ := b.python(t, "import ctypes; print(ctypes.CDLL(None).shmget(0, 4096, 0o1600) >= 0)")
	if out != "True\n" {
		t.Fatal(out)
	}
	real := b.sandbox.id.UID
	if ids, err := madeBy("/proc/sysvipc/shm", real); err != nil || len(ids) != 1 {
		t.Fatalf("madeBy = %v, %v, want one", ids, err)
	}
	ids, err := madeBy("/proc/sysvipc/shm", real)
	must(t, err)
	if err := as(real+1, func() error { return ipcKinds[0].remove(ids[0]) }); err != unix.EPERM {
		t.Errorf("removing it as somebody else: %v, want %v", err, unix.EPERM)
	}
	must(t, sweepIPC(real))
	if ids, err := madeBy("/proc/sysvipc/shm", real); err != nil || len(ids) != 0 {
		t.Errorf("madeBy after sweeping = %v, %v, want none", ids, err)
	}
	for _, text := range []string{"", "a b c\n", "key shmid cuid\n1 2\n", "key shmid cuid\n1 x 3\n"} {
		file := b.dirs.Work + "/table"
		must(t, os.WriteFile(file, []byte(text), 0o644))
		if ids, err := madeBy(file, 3); err == nil {
			t.Errorf("madeBy(%q) = %v, want an error", text, ids)
		}
	}
	if os.Geteuid() != 0 {
		t.Error("the sweeper's user stayed")
	}
}

// allIPC is the set of System V objects that the user made: segments with size bytes,
// sets with size semaphores, and all message queues.
func allIPC(t *testing.T, uid, size int) map[string]bool {
	t.Helper()
	set := map[string]bool{}
	for _, kind := range ipcKinds {
		ids, err := madeBy(kind.table, uid)
		if os.IsNotExist(err) {
			continue
		}
		must(t, err)
		data, err := os.ReadFile(kind.table)
		must(t, err)
		for line := range strings.Lines(string(data)) {
			fields := strings.Fields(line) // key, id, perms, size; or, of a message queue, its bytes
			id, _ := strconv.Atoi(fields[1])
			if slices.Contains(ids, id) && (kind.name == "message queue" || fields[3] == strconv.Itoa(size)) {
				set[fmt.Sprint(kind.name, " ", id)] = true
			}
		}
	}
	return set
}

func openQueue(name string) (int, error) {
	p, err := unix.BytePtrFromString(name)
	if err != nil {
		return 0, err
	}
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(p)), unix.O_RDONLY, 0, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(fd), nil
}
