package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/schema"
)

// asUser marks the second run of this test binary, as an ordinary user.
const asUser = "SANDBOX_TEST_AS_USER"

func TestMain(m *testing.M) {
	Main()
	// Like kbrun: closed to its user, and the reaper of what is left.
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	os.Exit(m.Run())
}

// TestAsOrdinaryUser runs everything again without root's rights.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("this is the ordinary user already")
	}
	// A copy where that user can reach it.
	dir, err := os.MkdirTemp("/tmp", "sandbox-test-")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chmod(dir, 0o755))
	exe := filepath.Join(dir, "sandbox.test")
	data, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(exe, data, 0o755))
	must(t, os.Mkdir(filepath.Join(dir, "tmp"), 0o777))
	must(t, os.Chmod(filepath.Join(dir, "tmp"), 0o777))
	cmd := exec.Command(exe, "-test.v")
	cmd.Dir = filepath.Join(dir, "src")
	must(t, os.Mkdir(filepath.Join(dir, "src"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "src", "doc.go"), []byte("package x"), 0o644)) // as it is there for root
	cmd.Env = []string{"PATH=/usr/bin:/bin", "TMPDIR=" + filepath.Join(dir, "tmp"), asUser + "=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 64999, Gid: 64999}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as user 64999: %v", err)
	}
	t.Logf("%s", out)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A bench is one sandbox on one means, and what a program in it may know.
type bench struct {
	sandbox *Sandbox
	means   string
	dirs    Directories
}

// onEach runs f with every means that this machine and user have.
func onEach(t *testing.T, f func(t *testing.T, b *bench)) { onEachWith(t, Options{}, f) }

func onEachWith(t *testing.T, o Options, f func(t *testing.T, b *bench)) {
	t.Helper()
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("/usr/bin/python3 is not installed")
	}
	for _, means := range candidates() {
		t.Run(means, func(t *testing.T) {
			needMeans(t, means)
			f(t, newBench(t, o, means))
		})
	}
}

// refusals are what this machine said to each means, nil where it can be had.
var refusals = map[string]error{}

// needMeans skips a test of means that this machine refuses, such as user
// namespaces in a container.
func needMeans(t *testing.T, means string) {
	t.Helper()
	if _, tried := refusals[means]; !tried {
		b := newBench(t, Options{}, means)
		process, err := b.sandbox.Start(Command{Path: "/bin/true", Args: []string{"true"}, Dir: b.dirs.Work, Directories: b.dirs})
		if err == nil {
			_, err = process.Wait()
			must(t, err)
		}
		var weak *WeakError
		if !errors.As(err, &weak) || weak.Best != nil {
			err = nil // the test itself will meet it
		}
		refusals[means] = err
		if means == schema.MeansProcess {
			endChildren(t)
		}
	}
	if err := refusals[means]; err != nil {
		t.Skipf("NOT RUN: this machine refuses it: %v", err)
	}
}

func newBench(t *testing.T, o Options, means string) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "kbrun-test-")
	must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	b := &bench{means: means, dirs: Directories{Dir: filepath.Join(dir, "phase")}}
	p := &b.dirs
	p.Work, p.Home, p.Temp = filepath.Join(p.Dir, "work"), filepath.Join(p.Dir, "home"), filepath.Join(p.Dir, "tmp")
	o.Dir = filepath.Join(dir, "sandbox")
	for _, d := range []string{o.Dir, p.Dir, p.Work, p.Home, p.Temp} {
		must(t, os.Mkdir(d, 0o755))
	}
	must(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("hush"), 0o644)) // beside, not in, the directories
	if o.Minimum == "" {
		o.Minimum = schema.SandboxNone
	}
	if o.Environ == nil {
		o.Environ = []string{"PATH=/usr/bin:/bin"}
	}
	b.sandbox, err = Open(o)
	must(t, err)
	t.Cleanup(func() {
		if err := b.sandbox.Close(); err != nil {
			t.Error(err)
		}
	})
	must(t, b.sandbox.Prepare(b.dirs))
	b.sandbox.untried = []string{means}
	return b
}

// python runs a program and returns what it printed and how it ended.
func (b *bench) python(t *testing.T, text string) (string, State) {
	t.Helper()
	out, state, err := b.start(t, text)
	must(t, err)
	return out, state
}

func (b *bench) start(t *testing.T, text string) (string, State, error) {
	t.Helper()
	out, err := os.CreateTemp(t.TempDir(), "out")
	must(t, err)
	defer out.Close()
	process, err := b.sandbox.Start(Command{
		Path: "/usr/bin/python3", Args: []string{"python3", "-c", text}, Dir: b.dirs.Work, Directories: b.dirs, Stdout: out, Stderr: out,
		Env: []string{"PATH=/usr/bin:/bin", "HOME=" + b.dirs.Home, "TMPDIR=" + b.dirs.Temp},
	})
	var weak *WeakError
	if errors.As(err, &weak) && weak.Best == nil {
		t.Skipf("this machine refuses it: %v", err)
	}
	if err != nil {
		return "", State{}, err
	}
	timer := time.AfterFunc(5*time.Minute, process.Kill)
	defer timer.Stop()
	state, err := process.Wait()
	must(t, err)
	if b.means == schema.MeansProcess {
		endChildren(t) // the caller's part, see package runner
	}
	data, err := os.ReadFile(out.Name())
	must(t, err)
	return string(data), state, nil
}

func (b *bench) holds(guard string) bool {
	return b.sandbox.Report() != nil && slices.Contains(b.sandbox.Report().Held, guard)
}

// refused wants every line of a program's output to be a refusal. The program
// prints "got …" where it got somewhere; only without the guard is that no
// failure.
func (b *bench) refused(t *testing.T, guard, text string) {
	t.Helper()
	out, state := b.python(t, prelude+text)
	if state.Exit != 0 || out == "" {
		t.Fatalf("exit %d:\n%s", state.Exit, out)
	}
	if strings.Contains(out, "got ") && b.holds(guard) {
		t.Errorf("guard %s is reported as held:\n%s", guard, out)
	}
	if !b.holds(guard) {
		t.Logf("guard %s is missing here: %s", guard, out)
	}
}

// prelude: attempt(name, f) prints what f got, or that it was tried.
const prelude = `
import ctypes, os, signal, socket, subprocess, sys, time
def attempt(name, f):
    try:
        result = f()
    except Exception as err:
        print("tried", name, type(err).__name__, err)
    else:
        print("tried" if not result else "got " + repr(result)[:80], name)
libc = ctypes.CDLL(None, use_errno=True)
`

func TestProcessesAreHidden(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.refused(t, schema.GuardProcesses, `
seen = [int(p) for p in os.listdir("/proc") if p.isdigit()]
attempt("processes", lambda: [p for p in seen if p not in (1, os.getpid())])
`)
	})
}

func TestRunnerCannotBeSignalled(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.refused(t, schema.GuardSignals, fmt.Sprintf(`
for pid in (%d, %d):
    attempt("signal", lambda: os.kill(pid, 0) is None)
signal.signal(signal.SIGURG, signal.SIG_IGN)
attempt("first process", lambda: os.kill(1, signal.SIGKILL)) # no harm: it is still there below
attempt("everybody", lambda: os.kill(-1, signal.SIGURG))
print("tried")
`, os.Getpid(), os.Getppid()))
	})
}

func TestRunnerCannotBeReadOrTraced(t *testing.T) {
	t.Setenv("KERNELBOT_PAYLOAD", "hush")
	onEach(t, func(t *testing.T, b *bench) {
		b.refused(t, schema.GuardSecrets, fmt.Sprintf(`
pids = {%d, %d, os.getppid(), 1}
for pid in pids - {os.getpid()}:
    for name in ("environ", "mem", "maps", "auxv"):
        attempt(f"{pid}/{name}", lambda: open(f"/proc/{pid}/{name}", "rb").read(9))
    attempt(f"{pid}/fd", lambda: [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")])
    attempt(f"trace {pid}", lambda: libc.ptrace(16, pid, 0, 0) == 0)
    attempt(f"cwd {pid}", lambda: os.listdir(f"/proc/{pid}/root/"))
`, os.Getpid(), os.Getppid()))
	})
}

func TestEnvironmentIsWhatWasGiven(t *testing.T) {
	t.Setenv("ANOTHER", "hush")
	onEach(t, func(t *testing.T, b *bench) {
		out, _ := b.python(t, `import os; print(sorted(k for k in os.environ if k != "LC_CTYPE"), b"hush" in open("/proc/self/environ", "rb").read())`)
		if out != "['HOME', 'PATH', 'TMPDIR'] False\n" {
			t.Errorf("environment: %s", out)
		}
	})
}

func TestFilesAreHidden(t *testing.T) {
	here, err := os.Getwd()
	must(t, err)
	onEachWith(t, Options{Hide: []string{"/etc/apt"}}, func(t *testing.T, b *bench) {
		b.refused(t, schema.GuardFiles, fmt.Sprintf(`
dir, here, home = %q, %q, %q
for path in (os.path.dirname(dir) + "/secret", here + "/doc.go", home + "/.profile", "/proc/1/root/etc/shadow", "/etc/shadow"):
    attempt(path, lambda: open(path).read(9))
for path in (here, "/root", "/home", "/var/lib", "/etc/apt", os.path.dirname(dir) + "/sandbox"):
    attempt(path, lambda: os.listdir(path))
for path in ("/etc/x", "/usr/x", "/x", "/dev/x", "/sys/x", "/home/x", dir + "/x", "/proc/sys/kernel/core_pattern", here + "/x"):
    attempt(path, lambda: open(path, "w"))
`, b.dirs.Dir, here, "/root"))
	})
}

func TestOwnPlacesWork(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		out, state := b.python(t, `
import os, tempfile, multiprocessing as mp, ctypes, subprocess
open("x", "w").write("1"); os.mkdir(os.environ["HOME"] + "/d")
print(os.getcwd() == "`+b.dirs.Work+`", len(tempfile.mkstemp()))
m = mp.get_context("fork"); q = m.Queue(); p = m.Process(target=q.put, args=(7,)); p.start(); print(q.get()); p.join()
from multiprocessing import shared_memory
s = shared_memory.SharedMemory(create=True, size=1 << 20); s.buf[0] = 3; print(s.buf[0]); s.close(); s.unlink()
open("/dev/null", "w").write("x"); print(len(open("/dev/urandom", "rb").read(4)), open("/dev/zero", "rb").read(1))
open("f.py", "w").write("print('made')"); print(subprocess.check_output(["python3", "f.py"]))
`)
		if want := "True 2\n7\n3\n4 b'\\x00'\nb'made\\n'\n"; out != want || state.Exit != 0 {
			t.Errorf("exit %d, got %s, want %s", state.Exit, out, want)
		}
	})
}

func TestCompilerWorks(t *testing.T) {
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("g++ is not installed")
	}
	onEach(t, func(t *testing.T, b *bench) {
		out, state := b.python(t, `
import ctypes, subprocess
open("k.cpp", "w").write('#include <vector>\nextern "C" int f() { std::vector<int> v(42); return v.size(); }')
subprocess.check_call(["g++", "-shared", "-fPIC", "-o", "k.so", "k.cpp"])
print(ctypes.CDLL("./k.so").f())
`)
		if out != "42\n" || state.Exit != 0 {
			t.Errorf("exit %d: %s", state.Exit, out)
		}
	})
}

func TestNoNetwork(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	abstract, err := net.Listen("unix", fmt.Sprintf("@kbrun-test-%d", os.Getpid()))
	must(t, err)
	defer abstract.Close()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer packets.Close()
	onEach(t, func(t *testing.T, b *bench) {
		b.refused(t, schema.GuardNetwork, fmt.Sprintf(`
attempt("tcp", lambda: socket.create_connection(("127.0.0.1", %d), 5))
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\0kbrun-test-%d") is None)
attempt("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", %d)) and None) # its own device takes it
attempt("udp elsewhere", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 9)))
attempt("interfaces", lambda: [n for _, n in socket.if_nameindex() if n != "lo"])
`, listener.Addr().(*net.TCPAddr).Port, os.Getpid(), packets.LocalAddr().(*net.UDPAddr).Port))
		must(t, packets.SetReadDeadline(time.Now().Add(10*time.Millisecond))) // sent on this machine, it is there at once
		if n, _, _ := packets.ReadFrom(make([]byte, 9)); n > 0 && b.holds(schema.GuardNetwork) {
			t.Error("the machine's own network heard a packet")
		}
	})
}

func TestLoopbackIsItsOwn(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	for _, needed := range []bool{false, true} {
		onEachWith(t, Options{TCP: needed}, func(t *testing.T, b *bench) {
			out, _ := b.python(t, fmt.Sprintf(`
import socket
for family, address in (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"):
    try:
        s = socket.create_server((address, 0), family=family); c = socket.create_connection(s.getsockname()[:2], 60); print("met at", address)
        u = socket.socket(family, socket.SOCK_DGRAM); u.bind((address, 0)); u.sendto(b"x", u.getsockname()[:2]); print("heard", u.recv(1), "at", address)
    except OSError as err:
        print("alone at", address, err)
try:
    socket.create_connection(("127.0.0.1", %d), 5); print("got out")
except OSError:
    pass
for address in ("192.0.2.1", "169.254.169.254", "2001:db8::1"):
    try:
        socket.create_connection((address, 80), 5); print("got out to", address)
    except OSError as err:
        print("no way:", err.errno)
print(sorted(n for _, n in socket.if_nameindex()))
`, listener.Addr().(*net.TCPAddr).Port))
			own := b.means != schema.MeansProcess
			if own || needed {
				for _, want := range []string{"met at 127.0.0.1", "heard b'x' at 127.0.0.1"} {
					if !strings.Contains(out, want) {
						t.Errorf("TCP needed %v: want %q:\n%s", needed, want, out)
					}
				}
			}
			if _, err := os.Stat("/proc/net/if_inet6"); err == nil && own && !strings.Contains(out, "met at ::1") {
				t.Errorf("TCP needed %v: want it at ::1, too:\n%s", needed, out)
			}
			if own && strings.Count(out, "no way: 101") != 3 { // ENETUNREACH
				t.Errorf("TCP needed %v: a way out:\n%s", needed, out)
			}
			if strings.Contains(out, "got out") && b.holds(schema.GuardNetwork) || own && !strings.Contains(out, "['lo']") {
				t.Errorf("TCP needed %v:\n%s", needed, out)
			}
		})
	}
}

// Sockets to the host of a virtual machine belong to no network namespace.
func TestNoWayToTheHost(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		out, state := b.python(t, `
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
pair = (ctypes.c_int * 2)()
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    print(libc.socket(40, kind, 0), ctypes.get_errno(), libc.socketpair(40, kind, 0, pair), ctypes.get_errno())
print(libc.syscall(ctypes.c_long(41), ctypes.c_long(0x500000028), ctypes.c_long(1), ctypes.c_long(0)), ctypes.get_errno()) if os.uname().machine == "x86_64" else print("-1 1")
a, z = socket.socketpair(); a.send(b"x"); print(z.recv(1))
`)
		if want := strings.Repeat("-1 1 -1 1\n", 3) + "-1 1\nb'x'\n"; out != want || state.Exit != 0 { // EPERM, also where the kernel has no such sockets
			t.Errorf("exit %d, got %s, want %s", state.Exit, out, want)
		}
	})
}

func TestNoNewPrivileges(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.refused(t, schema.GuardPrivileges, `
status = dict(l.split(":\t", 1) for l in open("/proc/self/status").read().splitlines() if ":\t" in l)
attempt("capabilities", lambda: [k for k in ("CapPrm", "CapEff", "CapInh", "CapAmb") if int(status[k], 16)])
attempt("new privileges", lambda: status["NoNewPrivs"] != "1")
attempt("su", lambda: b"uid=0" in subprocess.run(["su", "-c", "id"], capture_output=True, stdin=subprocess.DEVNULL).stdout)
attempt("setuid", lambda: os.setuid(0) or os.getuid() == 0 and status["Uid"].split()[0] != "0")
attempt("user namespace", lambda: libc.unshare(0x10000000) == 0)
attempt("user namespace by clone", lambda: libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0) >= 0)
attempt("mount", lambda: libc.mount(b"x", b"/tmp", b"tmpfs", 0, b"") == 0)
attempt("mknod", lambda: os.mknod("disk", 0o60666, os.makedev(8, 0)))
attempt("keys", lambda: libc.syscall(250, 0, -3, 0) >= 0)
`)
	})
}

func TestHarnessFilesStay(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		if !b.sandbox.id.Own {
			t.Skip("the same user may do what he likes with his files")
		}
		must(t, os.WriteFile(filepath.Join(b.dirs.Work, "eval.py"), []byte("pass"), 0o644))
		out, _ := b.python(t, prelude+`
attempt("write", lambda: open("eval.py", "w"))
attempt("remove", lambda: os.remove("eval.py") is None)
open("mine", "w")
attempt("replace", lambda: os.rename("mine", "eval.py") is None)
attempt("directory", lambda: os.rename(".", "../other") is None)
attempt("mode", lambda: os.chmod("eval.py", 0o777) is None)
`)
		if strings.Contains(out, "got") || strings.Count(out, "tried") != 5 {
			t.Error(out)
		}
	})
}
