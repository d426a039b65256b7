package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

func TestLimits(t *testing.T) {
	l := Limits{Processes: 64, OpenFiles: 100, FileSize: 1 << 20}
	onEachWith(t, Options{Limits: l}, func(t *testing.T, b *bench) {
		out, _ := b.python(t, prelude+`
import resource
print(resource.getrlimit(resource.RLIMIT_CORE))
made = 0
try:
    while made < 2000:
        if os.fork() == 0: time.sleep(1000)
        made += 1
except OSError: print("forks end", made <= 256)
files = []
try:
    while True: files.append(open("/dev/null"))
except OSError: print("files end", len(files) < 100)
for f in files: f.close()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    with open("big", "wb") as f:
        for _ in range(100): f.write(b"x" * 65536)
except OSError: print("size ends", os.path.getsize("big") <= 1 << 20)
try: resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000))
except Exception: print("stays")
`)
		if want := "(0, 0)\nforks end True\nfiles end True\nsize ends True\nstays\n"; out != want {
			t.Errorf("got %s, want %s", out, want)
		}
		b.gone(t)
	})
}

// endChildren kills and reaps everything below this process.
func endChildren(t *testing.T) {
	for end := time.Now().Add(2 * time.Minute); ; {
		for _, path := range glob("/proc/self/task/*/children") {
			data, _ := os.ReadFile(path)
			for _, field := range strings.Fields(string(data)) {
				pid, _ := strconv.Atoi(field)
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if _, err := syscall.Wait4(-1, nil, 0, nil); err == syscall.ECHILD {
			return
		}
		if time.Now().After(end) {
			t.Fatal("children cannot be ended")
		}
	}
}

// gone wants no process below this one.
func (b *bench) gone(t *testing.T) {
	t.Helper()
	for _, path := range glob("/proc/self/task/*/children") {
		if data, err := os.ReadFile(path); err != nil || len(data) > 0 {
			t.Errorf("children are left: %s, %v", data, err)
		}
	}
}

func TestNoCoreDump(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		_, state := b.python(t, `import os; os.kill(os.getpid(), 11)`)
		if files, _ := os.ReadDir(b.dirs.Work); state.Exit != -11 || len(files) > 0 {
			t.Errorf("exit %d, files %v", state.Exit, files)
		}
	})
}

// The control group counts the CPU time of the sandbox's processes only, also of those
// that have ended.
func TestCPU(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		const each = 200 * time.Millisecond
		before, ok := b.sandbox.CPU()
		_, state := b.python(t, fmt.Sprintf(`
import os, time
if os.fork() and os.fork():
    os.wait()
    os.wait()
end = time.process_time_ns() + %d  # what it took so far may lie before it joined the group
while time.process_time_ns() < end:
    pass
`, each.Nanoseconds()))
		after, _ := b.sandbox.CPU()
		if !ok {
			t.Skip("no control group can be made here: nothing counts CPU time")
		}
		if used := after - before; state.Exit != 0 || used < 3*each || used > 3*each+time.Second {
			t.Errorf("exit %d, %s on cores, want three times %s and what Python takes", state.Exit, used, each)
		}
	})
}

// The same without a control group.
func TestMemoryIsWatched(t *testing.T) {
	onEachWith(t, Options{Limits: Limits{Memory: 200 << 20}}, func(t *testing.T, b *bench) {
		if b.means == schema.MeansProcess {
			t.Skip("there is nobody in the sandbox to watch")
		}
		must(t, b.sandbox.group.remove())
		b.sandbox.group = &group{why: "taken away"}
		for what, text := range map[string]string{
			"private": "hog = []\nwhile True: hog.append(bytearray(b'x' * (1 << 20))); time.sleep(0.001)",
			"tmpfs":   "f = open('/dev/shm/x', 'wb')\nwhile True:\n    try: f.write(b'x' * (1 << 20)); f.flush(); time.sleep(0.001)\n    except OSError: f = open('/tmp/y', 'wb')",
		} {
			_, state := b.python(t, "import time\n"+text)
			if state.Exit != -9 || !state.OutOfMemory {
				t.Errorf("%s: %+v", what, state)
			}
		}
		if !b.holds(schema.GuardMemory) {
			t.Errorf("report %+v", b.sandbox.Report())
		}
	})
}

func TestMemoryEnds(t *testing.T) {
	onEachWith(t, Options{Limits: Limits{Memory: 200 << 20}}, func(t *testing.T, b *bench) {
		if b.sandbox.group.memory == "" && b.means == schema.MeansProcess {
			t.Skip("no control group can be made here: " + b.sandbox.group.why)
		}
		out, state := b.python(t, `
import os, time
for _ in range(4):
    if os.fork() == 0: break
hog = []
while True:
    hog.append(bytearray(b"x" * (10 << 20)))
    time.sleep(0.01)
`)
		if state.Exit != -9 || !state.OutOfMemory {
			t.Errorf("exit %d, out of memory %v: %s", state.Exit, state.OutOfMemory, out)
		}
		b.gone(t)
		_, state = b.python(t, `pass`)
		if state.Exit != 0 || state.OutOfMemory {
			t.Errorf("after it: %+v", state)
		}
	})
}

// Whom the kernel ends elsewhere on the machine is no matter of this sandbox's.
func TestStrangersMemory(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		bomb := newBench(t, Options{Limits: Limits{Memory: 100 << 20}}, candidates()[0])
		if bomb.sandbox.group.memory == "" {
			t.Skip("no control group can be made here: " + bomb.sandbox.group.why)
		}
		beside := func() State {
			r, w, err := os.Pipe()
			must(t, err)
			defer w.Close()
			process, err := b.sandbox.Start(Command{
				Path: "/usr/bin/python3", Args: []string{"python3", "-c", "import os; os.read(3, 1); os.kill(os.getpid(), 9)"},
				Dir: b.dirs.Work, Directories: b.dirs, Files: []*os.File{r},
			})
			r.Close()
			if err != nil {
				t.Skipf("this machine refuses it: %v", err)
			}
			_, state := bomb.python(t, `
hog = []
while True: hog.append(bytearray(b"x" * (10 << 20)))
`)
			if state.Exit != -9 || !state.OutOfMemory || state.OOMKills < 1 {
				t.Errorf("the bomb: %+v", state)
			}
			w.Close()
			state, err = process.Wait()
			must(t, err)
			return state
		}
		if state := beside(); state.Exit != -9 || state.OutOfMemory || state.OOMKills != 0 {
			t.Errorf("beside it: %+v", state)
		}
		// Without a group it cannot be told apart, and nobody says that it can.
		must(t, b.sandbox.group.remove())
		b.sandbox.group = &group{why: "taken away", counter: "/proc/vmstat"}
		if state := beside(); state.Exit != -9 || state.OutOfMemory || state.OOMKills < 1 {
			t.Errorf("beside it, without a group: %+v", state)
		}
		if _, alone := b.sandbox.OOMKills(); alone {
			t.Error("it says that it counts its own alone")
		}
	})
}

func TestNothingSurvives(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		if b.means == schema.MeansProcess {
			t.Skip("without a process namespace the caller walks the tree")
		}
		mark := fmt.Sprintf("1000.%d", os.Getpid())
		_, state := b.python(t, `
import os, signal, subprocess, time
subprocess.Popen(["sleep", "`+mark+`"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for s in range(1, 32):
            try: signal.signal(s, signal.SIG_IGN)
            except (OSError, ValueError): pass
        os.execvp("sleep", ["sleep", "`+mark+`"])
    os._exit(0)
stopped = subprocess.Popen(["sleep", "`+mark+`"]); os.kill(stopped.pid, signal.SIGSTOP)
time.sleep(0.2)
`)
		if state.Exit != 0 {
			t.Errorf("exit %d", state.Exit)
		}
		b.gone(t)
		for _, path := range glob("/proc/[0-9]*/cmdline") {
			if data, _ := os.ReadFile(path); bytes.HasPrefix(data, []byte("sleep\x00"+mark)) {
				t.Errorf("%s is alive", path)
			}
		}
	})
}

func glob(pattern string) []string {
	found, _ := filepath.Glob(pattern)
	return found
}

func TestKillEndsTheWholeSandbox(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		r, w, err := os.Pipe()
		must(t, err)
		defer r.Close()
		process, err := b.sandbox.Start(Command{
			Path: "/usr/bin/python3", Args: []string{"python3", "-c", "import time; print('up', flush=True); time.sleep(1000)"},
			Dir: b.dirs.Work, Directories: b.dirs, Stdout: w, Env: []string{},
		})
		w.Close()
		var weak *WeakError
		if errors.As(err, &weak) {
			t.Skip(err)
		}
		must(t, err)
		r.Read(make([]byte, 2))
		process.Kill()
		state, err := process.Wait()
		if err != nil || state.Exit != -9 {
			t.Errorf("Wait = %+v, %v", state, err)
		}
	})
}

// The first process of a sandbox is of the submission's user where there is no
// other; ending it must not look like a good end.
func TestFirstProcessMayBeKilled(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		out, state := b.python(t, `
import os, signal, time
for s in range(1, 32):
    if b"kbrun-sandbox" not in open("/proc/1/cmdline", "rb").read(): break
    try: os.kill(1, s)
    except OSError: pass
time.sleep(0.1); print("alive")
`)
		if (state.Exit == 0) != (out == "alive\n") {
			t.Errorf("exit %d, %q", state.Exit, out)
		}
	})
}

func TestExitStatus(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		for text, want := range map[string]int{"": 0, "raise SystemExit(7)": 7, "import os; os.abort()": -6} {
			if _, state := b.python(t, text); state.Exit != want || state.Wall <= 0 || state.MaxRSS < 1<<20 {
				t.Errorf("%s: %+v, want exit %d", text, state, want)
			}
		}
		_, err := b.sandbox.Start(Command{Path: "/nowhere", Args: []string{"x"}, Dir: "/", Directories: b.dirs})
		if err == nil || !strings.Contains(err.Error(), "/nowhere") {
			t.Errorf("Start of nothing: %v", err)
		}
	})
}

func TestStaleGroupsAreRemoved(t *testing.T) {
	b := newBench(t, Options{}, schema.MeansProcess)
	if b.sandbox.group.memory == "" {
		t.Skip("no control group can be made here: " + b.sandbox.group.why)
	}
	gone := exec.Command("true")
	must(t, gone.Run())
	stale := filepath.Join(filepath.Dir(b.sandbox.group.memory), groupPrefix+strconv.Itoa(gone.Process.Pid)+"-1")
	must(t, os.Mkdir(stale, 0o755))
	must(t, b.sandbox.group.remove())
	b.sandbox.group = newGroup(Limits{}.orDefault())
	if _, err := os.Stat(stale); err == nil {
		t.Errorf("%s is still there", stale)
	}
	if b.sandbox.group.memory == "" {
		t.Errorf("a second group: %s", b.sandbox.group.why)
	}
}
