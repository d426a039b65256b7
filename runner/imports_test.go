package runner_test

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
)

// heavyModule makes an installation of python3 with a module of its own in it,
// that is called as one of those which are worth importing once, and returns the
// directory of its programs and how often the module was imported since asked.
func heavyModule(t testing.TB, r *shootingRange) (bin string, count func() int) {
	t.Helper()
	venv := installation(t, r)
	file := filepath.Join(venv.packages, "triton", "__init__.py")
	must(t, os.Mkdir(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, []byte("HEAVY = True\n"), 0o644))
	return venv.programs, countImports(t, file)
}

// installation makes what module venv would make, which not every machine has:
// the directory of its programs and that of its packages.
func installation(t testing.TB, r *shootingRange) (venv struct{ programs, packages string }) {
	t.Helper()
	name, err := exec.Command("/usr/bin/python3", "-I", "-c", "import sys; print('python%d.%d' % sys.version_info[:2], end='')").Output()
	if err != nil {
		t.Fatalf("the interpreter's version: %v", err)
	}
	dir := filepath.Join(r.base, "venv")
	venv.programs, venv.packages = filepath.Join(dir, "bin"), filepath.Join(dir, "lib", string(name), "site-packages")
	must(t, os.MkdirAll(venv.packages, 0o755))
	must(t, os.Mkdir(venv.programs, 0o755))
	must(t, os.Symlink("/usr/bin/python3", filepath.Join(venv.programs, "python3")))
	must(t, os.WriteFile(filepath.Join(dir, "pyvenv.cfg"), []byte("home = /usr/bin\ninclude-system-site-packages = true\n"), 0o644))
	return venv
}

// countImports adds a line to the module in file and returns how often the module
// was imported since the last call. Each import opens one of many files, chosen at
// random, because inotify joins equal events of imports at the same moment.
func countImports(t testing.TB, file string) func() int {
	t.Helper()
	dir := filepath.Join(filepath.Dir(file), "imports")
	must(t, os.Mkdir(dir, 0o755))
	for i := range 256 {
		must(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o644))
	}
	module, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = module.WriteString("\nimport os\nopen(os.path.join(os.path.dirname(__file__), 'imports', str(os.urandom(1)[0]))).close()\n")
	must(t, errors.Join(err, module.Close()))
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(t, err)
	_, err = unix.InotifyAddWatch(fd, dir, unix.IN_OPEN)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return func() (imported int) {
		buf := make([]byte, 64<<10)
		for {
			n, err := unix.Read(fd, buf)
			if errors.Is(err, unix.EAGAIN) {
				return imported
			}
			must(t, err)
			for at := 0; at < n; at += unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[at+12:])) {
				imported++
			}
		}
	}
}

// heavyHonest is the honest program, whose task imports a heavy module.
var heavyHonest = usualAttack{
	Name: "honest", Tries: "answers rightly", Mode: schema.ModeLeaderboard, imports: "import triton\n",
	Legacy: []string{schema.OutcomePassed}, Isolated: []string{schema.OutcomePassed},
}

// TestHeavyModulesAreImportedTwice: once by the judge, once for all workers. A
// harness of a task's own does it anew in every process of every phase.
func TestHeavyModulesAreImportedTwice(t *testing.T) {
	r := newRange(t)
	u := r.users[0]
	bin, count := heavyModule(t, r)
	u.bin = bin + ":"
	a := heavyHonest
	result := r.shotUsual(t, u, a, schema.HarnessIsolated)
	if got := count(); got != 2 || len(result.Harness.Preloaded) != 1 {
		t.Errorf("%q: imported %d times in %d phases, want 2", result.Harness.Preloaded, got, len(result.Runs))
	}
	r.shotUsual(t, u, a, schema.HarnessLegacy)
	if got := count(); got < 6 {
		t.Errorf("the harness that checks itself imported %d times, where every phase has two processes: this test sees nothing", got)
	}
}

// TestSlowModulesNotPreloaded imports the module in each process that needs it.
func TestSlowModulesNotPreloaded(t *testing.T) {
	testenv.NeedSlow(t)
	r := newRange(t)
	u := r.users[0]
	bin, count := heavyModule(t, r)
	u.bin, u.flags = bin+":", append(u.flags, "--no-preload")
	result := r.shotUsual(t, u, heavyHonest, schema.HarnessIsolated)
	if got := count(); got != 4 || result.Harness.NotPreloaded == "" {
		t.Errorf("not preloaded (%s): imported %d times, want 4", result.Harness.NotPreloaded, got)
	}
}

// BenchmarkLeaderboard is a whole leaderboard run of a small task with torch, by
// both harnesses in turn: how often they import it, and what that costs.
func BenchmarkLeaderboard(b *testing.B) {
	found, err := exec.Command("/usr/bin/python3", "-I", "-c", "import torch; print(torch.__file__, end='')").Output()
	if err != nil {
		b.Skip("/usr/bin/python3 has no torch")
	}
	r := newRange(b)
	venv := installation(b, r)
	// Its first file is a copy, which reports its imports.
	entries, err := os.ReadDir(filepath.Dir(string(found)))
	must(b, err)
	file := filepath.Join(venv.packages, "torch", "__init__.py")
	must(b, os.Mkdir(filepath.Dir(file), 0o755))
	for _, e := range entries {
		if e.Name() != "__init__.py" && e.Name() != "__pycache__" {
			must(b, os.Symlink(filepath.Join(filepath.Dir(string(found)), e.Name()), filepath.Join(filepath.Dir(file), e.Name())))
		}
	}
	text, err := os.ReadFile(string(found))
	must(b, err)
	must(b, os.WriteFile(file, text, 0o644))
	count := countImports(b, file)
	u := r.users[0]
	u.bin = venv.programs + ":"
	passed := []string{schema.OutcomePassed}
	a := usualAttack{Name: "torch_honest", Tries: "answers with tensors", Mode: schema.ModeLeaderboard, Torch: true, Legacy: passed, Isolated: passed}
	took, used, imports := map[string]time.Duration{}, map[string]time.Duration{}, map[string]int{}
	for b.Loop() {
		for _, harness := range schema.Harnesses() {
			count()
			begun, before := time.Now(), usedByChildren(b)
			r.shotUsual(b, u, a, harness)
			took[harness] += time.Since(begun)
			used[harness] += usedByChildren(b) - before
			imports[harness] += count()
		}
	}
	for _, harness := range schema.Harnesses() {
		b.ReportMetric(float64(imports[harness])/float64(b.N), harness+"-imports/op")
		b.ReportMetric(took[harness].Seconds()/float64(b.N), harness+"-s/op")
		b.ReportMetric(used[harness].Seconds()/float64(b.N), harness+"-cpu-s/op")
	}
	b.ReportMetric((took[schema.HarnessLegacy]-took[schema.HarnessIsolated]).Seconds()/float64(b.N), "saved-s/op")
	b.ReportMetric((used[schema.HarnessLegacy]-used[schema.HarnessIsolated]).Seconds()/float64(b.N), "saved-cpu-s/op")
}

// usedByChildren is the processor time of all programs that have ended, with those
// that they waited for: what else runs here is not in it.
func usedByChildren(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	must(t, unix.Getrusage(unix.RUSAGE_CHILDREN, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
