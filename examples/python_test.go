package examples

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Slow submissions take 2 to 20 times as long as right ones; a busy machine
// leaves less of the smallest ratios.
const slowFactor = 1.5

func find(t *testing.T, name string) Example {
	t.Helper()
	e, ok := Find(name)
	if !ok {
		t.Fatalf("no example %s", name)
	}
	return e
}

func TestVerdicts(t *testing.T) {
	for _, e := range List() {
		if e.Lang != "py" {
			continue
		}
		for _, mode := range []string{"test", "benchmark", "leaderboard"} {
			for _, file := range e.Submissions {
				name := strings.TrimSuffix(file, ".py")
				right := name == "right" || name == "slow" || (name == "cheat_clock" && mode == "test")
				if right && mode == "leaderboard" {
					continue // see TestSlowIsSlower
				}
				t.Run(e.Name+"/"+mode+"/"+name, func(t *testing.T) {
					t.Parallel()
					if v := run(t, e, mode, name); right && mode != "test" {
						expectTimed(t, v)
					} else {
						expect(t, v, right)
					}
				})
			}
		}
	}
}

// Runs alone, as its timings are compared.
func TestSlowIsSlower(t *testing.T) {
	needsQuiet(t)
	for _, e := range List() {
		if e.Lang != "py" {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			var faults []string
			for range 3 { // a busy machine may slow down the right one alone, once
				right, slow := run(t, e, "leaderboard", "right"), run(t, e, "leaderboard", "slow")
				expect(t, right, true)
				expect(t, slow, true)
				expectFigures(t, right, "0")
				if faults = tooFast(t, right, slow); len(faults) == 0 {
					return
				}
			}
			t.Error(strings.Join(faults, "\n"))
		})
	}
}

// run judges one of e's submissions on the cases of its task.yml.
func run(t *testing.T, e Example, mode, name string) verdict {
	t.Helper()
	cases := lines(readTask(t, e).Benchmarks)
	if mode == "test" {
		cases = lines(readTask(t, e).Tests)
	}
	v := judge(t, lay(t, e, submission(t, e, name)), mode, cases, "POPCORN_SEED=20260117")
	t.Logf("%s: exit %d in %v", name, v.exit, v.took)
	return v
}

func TestTemplatesAreRight(t *testing.T) {
	t.Parallel()
	for _, e := range List() {
		if e.Lang != "py" {
			continue
		}
		text, err := files.ReadFile(e.Dir + "/template.py")
		if err != nil {
			t.Fatal(err)
		}
		expect(t, judge(t, lay(t, e, string(text)), "test", lines(readTask(t, e).Tests)), true)
	}
}

func TestUnusableCases(t *testing.T) {
	t.Parallel()
	dir := lay(t, find(t, "vectoradd_py"), submission(t, find(t, "vectoradd_py"), "right"))
	for _, test := range []struct{ name, cases string }{
		{"no colon", "n 5; seed: 1"},
		{"no value", "n: ; seed: 1"},
		{"no name", "n: 5; : 1"},
		{"name twice", "n: 5; n: 6; seed: 1"},
		{"unknown name", "n: 5; seed: 1; m: 4"},
		{"missing name", "n: 5"},
		{"seed no integer", "n: 5; seed: one"},
		{"a call", "n: exit(0); seed: 1"},
		{"second line", "n: 5; seed: 1\nn: 5, seed: 1"},
		{"nothing to measure", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			v := judge(t, dir, "benchmark", test.cases)
			if v.exit != exitCases || len(v.report) != 0 || strings.Count(v.stderr, "\n") != 1 {
				t.Errorf("got exit %d, report %v, stderr %q; want %d, nothing, one line", v.exit, v.report, v.stderr, exitCases)
			}
		})
	}
	if v := start(t, dir, []string{"test", "missing.txt"}, []string{"POPCORN_FD=3"}); v.exit != exitCases {
		t.Errorf("missing file: got exit %d, want %d", v.exit, exitCases)
	}
	if v := judge(t, dir, "test", ""); v.exit != exitOK || !v.passed() || v.report["test-count"] != "0" {
		t.Errorf("no tests: got exit %d, report %v", v.exit, v.report)
	}
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	dir := lay(t, find(t, "vectoradd_py"), submission(t, find(t, "vectoradd_py"), "right"))
	for _, test := range []struct {
		name      string
		args, env []string
		want      int
	}{
		{"no pipe", []string{"test", "x"}, nil, exitPipe},
		{"pipe is no number", []string{"test", "x"}, []string{"POPCORN_FD=three"}, exitPipe},
		{"pipe is closed", []string{"test", "x"}, []string{"POPCORN_FD=77"}, exitPipe},
		{"profile", []string{"profile", "x"}, []string{"POPCORN_FD=3"}, exitUsage},
		{"unknown mode", []string{"trial", "x"}, []string{"POPCORN_FD=3"}, exitUsage},
		{"no cases", []string{"test"}, []string{"POPCORN_FD=3"}, exitUsage},
		{"seed is no number", []string{"test", "x"}, []string{"POPCORN_FD=3", "POPCORN_SEED=x"}, exitCases},
	} {
		if v := start(t, dir, test.args, test.env); v.exit != test.want {
			t.Errorf("%s: got exit %d, want %d; stderr %q", test.name, v.exit, test.want, v.stderr)
		}
	}
}

// The mixed seed of case seed 3 and secret 5 is 3 + 8*9/2 = 39.
func TestSecretSeedIsMixedIn(t *testing.T) {
	t.Parallel()
	dir := lay(t, find(t, "vectoradd_py"), "def custom_kernel(data):\n    print(list(data[0]))\n    return data[0]\n")
	secret := judge(t, dir, "test", "n: 4; seed: 3", "POPCORN_SEED=5")
	plain := judge(t, dir, "test", "n: 4; seed: 3")
	mixed := judge(t, dir, "test", "n: 4; seed: 39")
	if secret.stdout == "" || secret.stdout == plain.stdout || secret.stdout != mixed.stdout {
		t.Errorf("inputs with secret, without, and mixed by hand:\n%s%s%s", secret.stdout, plain.stdout, mixed.stdout)
	}
}

// Every way in which a kernel can leave, hang or talk nonsense is one clear
// line in the report; those that sleep do so for longer than this test may.
func TestBrokenKernels(t *testing.T) {
	e := find(t, "vectoradd_py")
	for _, test := range []struct{ name, body, want string }{
		{"exit", "os._exit(0)", "ended with exit status 0"},
		{"sys.exit", "sys.exit(3)", "ended with exit status 3"},
		{"segfault", "ctypes.string_at(0)", "signal 11 (SIGSEGV)"},
		{"hang", "time.sleep(3600)", "no answer within 0.5 s"},
		{"hang that ignores signals", "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64)); time.sleep(3600)", "no answer within"},
		{"child keeps the pipes", "os.fork() or time.sleep(3600); os._exit(0)", "ended with exit status 0"},
		{"daemon keeps the pipes", "os.fork() or (os.setsid(), os.fork() or time.sleep(3600)); os._exit(0)", "ended with exit status 0"},
		{"exception of many lines", "raise ValueError('one\\ncheck: pass\\x0btwo')", "custom_kernel: ValueError: one check: pass two"},
		{"list of numbers", "return list(data[0])", "custom_kernel: TypeError: got float, want an array.array"},
		{"lazy array", "return type('Lazy', (array,), {})('f', data[0])", "custom_kernel: TypeError: got Lazy"},
		{"nothing", "return None", "custom_kernel: TypeError: got NoneType"},
		{"rows", "return [data[0], data[1]]", "got list, want 4 float32"},
		{"pair", "return data", "got tuple, want 4 float32"},
		{"too short", "return data[0][:3]", "got 3 elements"},
		{"not a number", "return array('f', [float('nan')] * 4)", "got nan"},
		{"garbage answer", "os.write(int(sys.argv[3]), b'check: pass\\n' * 9); time.sleep(3600)", "malformed"},
		{"endless answer", "[os.write(int(sys.argv[3]), struct.pack('<cQ', b'V', 1 << 20)) for _ in iter(int, 1)]", "malformed"},
		{"impossible shape", "os.write(int(sys.argv[3]), struct.pack('<cQQBcBQQ', b'V', 27, 5, 1, b'f', 2, 1 << 62, 0)); time.sleep(3600)", "impossible shape"},
		{"half an answer", "os.write(int(sys.argv[3]), struct.pack('<cQ', b'V', 99)); os._exit(0)", "ended with exit status 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := lay(t, e, "import ctypes, os, signal, struct, sys, time\nfrom array import array\n\n"+
				"def custom_kernel(data):\n    "+test.body+"\n")
			if strings.HasPrefix(test.want, "no answer") {
				limit(t, dir, "0.5") // the others end by themselves, however busy the machine
			}
			v := judge(t, dir, "test", "n: 4; seed: 1")
			expect(t, v, false)
			if got := v.report["test.0.error"]; !strings.Contains(got, test.want) {
				t.Errorf("got error %q, want %q", got, test.want)
			}
		})
	}
}

// limit shortens the time that one call may take.
func limit(t *testing.T, dir, seconds string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(dir, "reference.py"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("\n\nCALL_LIMIT_S = " + seconds + "\n"); err != nil {
		t.Fatal(err)
	}
}

func TestLostWorkerEndsTheRun(t *testing.T) {
	t.Parallel()
	dir := lay(t, find(t, "vectoradd_py"), "import os\n\ndef custom_kernel(data):\n    os._exit(0)\n")
	for _, mode := range []string{"test", "benchmark", "leaderboard"} {
		v := judge(t, dir, mode, "n: 4; seed: 1\nn: 5; seed: 2")
		expect(t, v, false)
		kind := strings.Replace(mode, "leaderboard", "benchmark", 1)
		if got, want := v.report[kind+".1.error"], "not run: the worker was lost in "+kind+" 0"; got != want {
			t.Errorf("%s: got %q, want %q", mode, got, want)
		}
	}
}

func TestSubmissionThatCannotBeImported(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"import nothing_of_the_kind\n": "importing submission.py: ModuleNotFoundError: ",
		"def kernel(data): pass\n":     "importing submission.py: AttributeError: ",
		"def custom_kernel(:\n":        "importing submission.py: SyntaxError: ",
	} {
		v := judge(t, lay(t, find(t, "vectoradd_py"), text), "test", "n: 4; seed: 1")
		expect(t, v, false)
		if got := v.report["test.0.error"]; !strings.HasPrefix(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// What a submission must not find: a way to the judge. It raises on success.
const lookAround = `
import ctypes, os, subprocess, sys

def custom_kernel(data):
    judge = os.getppid()
    found = [k for k in os.environ if k.startswith("POPCORN_")]
    for name in ("environ", "mem", "maps", "fd/3"):
        try:
            open(f"/proc/{judge}/{name}", "rb").close()
            found.append(name)
        except OSError:
            pass
    if subprocess.run(["cat", f"/proc/{judge}/environ"], capture_output=True).returncode == 0:
        found.append("environ through exec")
    if ctypes.CDLL(None).ptrace(16, judge, 0, 0) == 0:
        found.append("ptrace")
    for fd in range(3, 64):
        try:
            os.fstat(fd)
        except OSError:
            continue
        if str(fd) not in sys.argv[2:]:
            found.append(f"descriptor {fd}")
    if found:
        raise RuntimeError(f"found {found}")
    a, b = data
    return type(a)("f", map(float.__add__, a, b))
`

func TestWorkerCannotLookIntoTheJudge(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("no /proc here")
	}
	expect(t, judge(t, lay(t, find(t, "vectoradd_py"), lookAround), "test", "n: 4; seed: 1", "POPCORN_SEED=5"), true)
}

// Files beside eval.py do not stand in for Python's own modules.
func TestFolderCannotShadowModules(t *testing.T) {
	t.Parallel()
	e := find(t, "vectoradd_py")
	dir := lay(t, e, submission(t, e, "right"))
	for _, name := range []string{"random", "array", "struct", "subprocess", "json", "select"} {
		text := "raise SystemExit('shadowed')\n"
		if err := os.WriteFile(filepath.Join(dir, name+".py"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, judge(t, dir, "test", "n: 4; seed: 1"), true)
}
