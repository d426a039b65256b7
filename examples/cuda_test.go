package examples

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Cases for one core that plays the GPU; those of the task.yml are for one, and
// take longer.
const cudaCases = "n: 20011; range: 1; seed: 5236\nn: 60013; range: 100; seed: 9\n"

var launch = regexp.MustCompile(`(\w+)<<<(.+), (\w+)>>>\(`)

// TestCUDA compiles the task with g++ against the stand-in for CUDA, nvcc's
// way: sources in order, one program called eval.out. What only nvcc can say,
// and what only a GPU can do, is not tested.
func TestCUDA(t *testing.T) {
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("g++ is missing")
	}
	e := find(t, "vectoradd_cu")
	harness := filepath.Join(lay(t, e, ""), "eval.o")
	compile(t, filepath.Dir(harness), "-c", "-x", "c++", "eval.cu", "-o", harness)
	right := buildCUDA(t, harness, submission(t, e, "right"))
	t.Run("cases", func(t *testing.T) { testCUDACases(t, right) })
	t.Run("verdicts", func(t *testing.T) { testCUDAVerdicts(t, harness) })
	t.Run("worker knows nothing", func(t *testing.T) { testCUDAWorkerKnowsNothing(t, harness) })
	t.Run("symbols", func(t *testing.T) { testCUDASymbols(t, harness) })
	t.Run("claims", func(t *testing.T) { testCUDAClaims(t, harness) })
	t.Run("trickle", testCUDATrickle)
	t.Run("benchmarks", func(t *testing.T) { testCUDABenchmarks(t, right) })
	t.Run("texts", func(t *testing.T) { testCUDATexts(t, harness) })
}

// buildCUDA returns a folder that holds eval.out with text as the submission.
func buildCUDA(t *testing.T, harness, text string) string {
	t.Helper()
	text = "#include <cuda_runtime.h>\n" + launch.ReplaceAllString(text, "standInLaunch($2, $3, $1, ")
	dir := lay(t, find(t, "vectoradd_cu"), text)
	compile(t, dir, harness, "-x", "c++", "submission.cu", "-o", "eval.out")
	return dir
}

func compile(t *testing.T, dir string, args ...string) {
	t.Helper()
	standIn, err := filepath.Abs(filepath.Join("testdata", "cuda"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "g++", append([]string{"-std=c++20", "-Wall", "-Wextra", "-Werror", "-I" + standIn}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

func testCUDAVerdicts(t *testing.T, harness string) {
	e := find(t, "vectoradd_cu")
	dirs := make(map[string]string)
	for _, name := range []string{"right", "slow", "wrong", "cheat"} {
		dir := buildCUDA(t, harness, submission(t, e, name))
		right := name == "right" || name == "slow"
		for _, mode := range []string{"test", "benchmark", "leaderboard"} {
			v := judge(t, dir, mode, cudaCases, "POPCORN_SEED=20260117")
			expect(t, v, right)
			if right && mode != "test" {
				expectFigures(t, v, "1")
			}
		}
		dirs[name] = dir
	}
	// Microseconds: the mean depends on who else computes here.
	const key = "benchmark.1.best"
	fault := ""
	for range 3 { // a busy machine may slow down the right one alone, once
		right, slow := judge(t, dirs["right"], "leaderboard", cudaCases), judge(t, dirs["slow"], "leaderboard", cudaCases)
		expect(t, right, true)
		expect(t, slow, true)
		r, s := right.number(t, key), slow.number(t, key)
		if s >= slowFactor*r {
			return
		}
		fault = fmt.Sprintf("%s: slow took %v ns, want %v times right's %v ns", key, s, slowFactor, r)
	}
	t.Error(fault)
}

// testCUDACases checks what eval.out takes for cases and what it refuses.
func testCUDACases(t *testing.T, dir string) {
	for _, test := range []struct {
		cases string
		want  int
	}{
		{"seed: 1; range: 2; n: 5", exitOK},
		{"n: 5; range: 1; seed: 1; list: [1; 2]; word: bf16; flag: True", exitOK},
		{"", exitOK},
		{"n 5; range: 1; seed: 1", exitCases},
		{"n: 5; range: 1; seed: 1;", exitCases},
		{"n: 5; n: 5; range: 1; seed: 1", exitCases},
		{"n: 5; range: 1", exitCases},
		{"n: 0; range: 1; seed: 1", exitCases},
		{"n: 5x; range: 1; seed: 1", exitCases},
		{"n: 5; range: 1; seed: one", exitCases},
	} {
		v := judge(t, dir, "test", test.cases)
		if v.exit != test.want || v.passed() != (test.want == exitOK) {
			t.Errorf("%q: got exit %d, report %v, want %d; stderr %q", test.cases, v.exit, v.report, test.want, v.stderr)
		}
	}
	for _, test := range []struct {
		args, env []string
		want      int
	}{
		{[]string{"test", "missing.txt"}, []string{"POPCORN_FD=3"}, exitCases},
		{[]string{"test", "missing.txt"}, nil, exitPipe},
		{[]string{"test", "missing.txt"}, []string{"POPCORN_FD=77"}, exitPipe},
		{[]string{"profile", "missing.txt"}, []string{"POPCORN_FD=3"}, exitUsage},
	} {
		if v := start(t, dir, test.args, test.env); v.exit != test.want {
			t.Errorf("%q %q: got exit %d, want %d", test.args, test.env, v.exit, test.want)
		}
	}
}

// A worker that looks for a way to the judge, and prints its first input.
const cudaLookAround = `
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <unistd.h>
#include "task.h"
extern char** environ;

void custom_kernel(const float* a, const float* b, float* c, std::size_t n) {
    int found = fcntl(3, F_GETFD) >= 0;
    for (char** e = environ; *e; e++) found += !__builtin_strncmp(*e, "POPCORN_", 8);
    for (const char* name : {"environ", "mem", "maps", "fd/3"}) {
        char path[64];
        std::snprintf(path, sizeof path, "/proc/%d/%s", int(getppid()), name);
        found += open(path, O_RDONLY) >= 0;
    }
    found += ptrace(PTRACE_ATTACH, getppid(), 0, 0) == 0;
    std::FILE* own = std::fopen("/proc/self/environ", "r");
    static char text[65536];
    const std::size_t got = std::fread(text, 1, sizeof text - 1, own);
    std::fclose(own);
    for (std::size_t i = 0; i + 8 < got; i++) found += !__builtin_memcmp(text + i, "POPCORN_", 8);
    if (found) std::exit(found);
    std::printf("%.9g\n", double(a[0]));
    std::fflush(stdout);
    if (n == 13) raise(SIGSEGV);
    for (std::size_t i = 0; i < n; i++) c[i] = a[i] + b[i];
}
`

func testCUDAWorkerKnowsNothing(t *testing.T, harness string) {
	dir := buildCUDA(t, harness, cudaLookAround)
	var inputs []string
	for _, test := range []struct {
		seed int
		env  []string
	}{{3, []string{"POPCORN_SEED=5"}}, {39, nil}, {3, nil}} {
		v := judge(t, dir, "test", fmt.Sprintf("n: 4; range: 1; seed: %d", test.seed), test.env...)
		expect(t, v, true)
		first, _, _ := strings.Cut(v.stdout, "\n") // the second is of a fresh seed
		inputs = append(inputs, first)
	}
	// Case seed 3 and secret 5 make 3 + 8*9/2 = 39.
	if inputs[0] == "" || inputs[0] != inputs[1] || inputs[0] == inputs[2] {
		t.Errorf("first input with secret, mixed by hand, without: %q", inputs)
	}
	v := judge(t, dir, "leaderboard", "n: 13; range: 1; seed: 1\nn: 4; range: 1; seed: 1")
	expect(t, v, false)
	if got := v.report["benchmark.0.error"]; !strings.Contains(got, "signal 11") {
		t.Errorf("segfault: got %q, want signal 11", got)
	}
	if got := v.report["benchmark.1.error"]; !strings.Contains(got, "not run") {
		t.Errorf("after the segfault: got %q, want not run", got)
	}
}

// nvcc compiles every submission where there is one; the flags are
// Kernelbot's, less what only prints.
func TestCUDACompiles(t *testing.T) {
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		t.Skip("nvcc is missing")
	}
	e := find(t, "vectoradd_cu")
	for _, name := range e.Submissions {
		dir := lay(t, e, submission(t, e, name))
		cmd := exec.CommandContext(t.Context(), nvcc, "--std="+nvccStandard(t, nvcc), "-DNDEBUG", "-Xcompiler=-Wno-psabi",
			"-Xcompiler=-fno-strict-aliasing", "--expt-extended-lambda", "--expt-relaxed-constexpr",
			"-forward-unknown-to-host-compiler", "-O3", "eval.cu", "submission.cu", "-o", "eval.out")
		cmd.Dir, cmd.Env = dir, os.Environ()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// nvccStandard is c++20 where nvcc knows it, which is from 12.0 on.
func nvccStandard(t *testing.T, nvcc string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), nvcc, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), "c++20") {
		return "c++20"
	}
	return "c++17"
}

// Strong definitions of what the harness calls by these names. Were the
// harness's own symbols, weak as inline functions are, the linker would take
// these, in the judge too.
const cudaReplaces = `
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
#include <unistd.h>
#include "task.h"

struct Shape { std::size_t n; double range; };
struct Vectors { char at[64]; ~Vectors() {} };

Vectors read_cases(const char*) {
    const char text[] = "test-count: 1\ntest.0.spec: x\ntest.0.status: pass\ncheck: pass\n";
    if (write(3, text, sizeof text - 1) < 0) _exit(1);
    _exit(0);
}
std::string check(const Shape&, const std::vector<std::vector<float>>&, const std::vector<float>&) { return ""; }
std::vector<std::vector<float>> generate_input(const Shape& s, std::uint64_t) { return {2, std::vector<float>(s.n)}; }
std::int64_t now_ns() { return 1; }
void custom_kernel(const float*, const float*, float*, std::size_t) {}
`

func testCUDASymbols(t *testing.T, harness string) {
	v := judge(t, buildCUDA(t, harness, cudaReplaces), "test", "n: 4; range: 1; seed: 1")
	expect(t, v, false)
	if got, want := v.report["test.0.error"], "element 0 of 4: got "; !strings.HasPrefix(got, want) {
		t.Errorf("got error %q, want %q", got, want)
	}
	if _, err := exec.LookPath("nm"); err != nil {
		t.Skip("nm is missing")
	}
	out, err := exec.CommandContext(t.Context(), "nm", "--defined-only", "--extern-only", "--demangle", harness).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		_, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !librarySymbol.MatchString(name) {
			t.Errorf("the harness has a symbol %q, want main and those of libraries", name)
		}
	}
}

// Type letter and name of what the C++ library and the stand-in leave behind.
var librarySymbol = regexp.MustCompile(`^(T main|[VWu] (DW\.ref|operator (new|delete)|cuda[A-Z]|.*\b(std|__gnu_cxx)::|(blockIdx|threadIdx|gridDim|blockDim|TLS ).*).*)$`)

// The worker's half of the protocol, spoken by the submission itself: repeat
// n is answered as `answer` does it.
const cudaSpeaks = `
#include <cstdint>
#include <cstdlib>
#include <vector>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>
#include "task.h"

static std::int64_t now() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ll + t.tv_nsec; }
static void all(int fd, bool out, void* p, std::size_t n) {
    for (char* at = static_cast<char*>(p); n > 0;) {
        const ssize_t k = out ? write(fd, at, n) : read(fd, at, n);
        if (k <= 0) _exit(0);
        at += k, n -= std::size_t(k);
    }
}
static void answer(int fd, int n, std::vector<float>& c, std::int64_t took);

void custom_kernel(const float* a, const float* b, float*, std::size_t n) {
    int in = -1, out = -1;
    for (int fd = 3; fd < 20; fd++) {
        const int flags = fcntl(fd, F_GETFL);
        if (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY && in < 0) in = fd;
        if (flags >= 0 && (flags & O_ACCMODE) == O_WRONLY && out < 0) out = fd;
    }
    std::vector<float> va(a, a + n), vb(b, b + n), vc;
    for (int calls = 1;; calls++) {
        const std::int64_t start = now();
        if (calls > 1) usleep(20000);
        vc.clear();
        for (std::size_t i = 0; i < va.size(); i++) vc.push_back(va[i] + vb[i]);
        answer(out, calls, vc, now() - start);
        std::uint64_t head[4];
        all(in, false, head, sizeof head);
        va.resize(head[2]), vb.resize(head[3]);
        all(in, false, va.data(), 4 * va.size());
        all(in, false, vb.data(), 4 * vb.size());
    }
}
static void send(int fd, std::uint64_t ns, std::vector<float>& c) {
    std::uint64_t head[3] = {1, ns, c.size()};
    all(fd, true, head, sizeof head);
    all(fd, true, c.data(), 4 * c.size());
}
static void answer(int fd, int n, std::vector<float>& c, std::int64_t took) { `

func testCUDAClaims(t *testing.T, harness string) {
	const cases = "n: 100; range: 1; seed: 1"
	for claim, fault := range map[string]string{
		"n % 11 ? 0 : took":                 "timing: the worker's clock says 0 ns, the judge's ",
		"n == 3 ? took + 1000000000 : took": "timing: the worker's clock says 1",
		"n == 3 ? -1 : took":                "timing: the worker's clock says -1 ns",
		"n % 4 ? took : 0":                  "",
	} {
		v := judge(t, buildCUDA(t, harness, cudaSpeaks+"send(fd, std::uint64_t("+claim+"), c); }"), "leaderboard", cases)
		expect(t, v, fault == "")
		if got := v.report["benchmark.0.error"]; !strings.HasPrefix(got, fault) {
			t.Errorf("%s: got error %q, want %q", claim, got, fault)
		}
		if fault != "" {
			continue
		}
		if best := v.number(t, "benchmark.0.best"); best < 18.5e6 { // ns, of 20 ms slept
			t.Errorf("%s: best: got %v ns, want 20 ms less the allowance at least", claim, best)
		}
	}
}

// A worker that answers by and by is late, too.
func testCUDATrickle(t *testing.T) {
	e := find(t, "vectoradd_cu")
	dir := lay(t, e, "")
	file := filepath.Join(dir, "eval.cu")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	hasty := strings.Replace(string(text), "kCallLimit = 10;", "kCallLimit = 0.5;", 1)
	if hasty == string(text) {
		t.Fatal("eval.cu has no kCallLimit = 10")
	}
	if err := os.WriteFile(file, []byte(hasty), 0o644); err != nil {
		t.Fatal(err)
	}
	harness := filepath.Join(dir, "eval.o")
	compile(t, dir, "-c", "-x", "c++", "eval.cu", "-o", harness)
	v := judge(t, buildCUDA(t, harness, cudaSpeaks+`
    if (n == 1) return send(fd, std::uint64_t(took), c);
    std::uint64_t head[3] = {1, std::uint64_t(took), c.size()};
    for (std::size_t i = 0; i < sizeof head; i++) all(fd, true, reinterpret_cast<char*>(head) + i, 1), usleep(10000);
    for (std::size_t i = 0; i < 4 * c.size(); i++) all(fd, true, reinterpret_cast<char*>(c.data()) + i, 1), usleep(10000);
}`), "test", "n: 400; range: 1; seed: 1") // 16 s of trickle
	expect(t, v, false)
	if got := v.report["test.0.error"]; !strings.HasPrefix(got, "no answer in time") {
		t.Errorf("got error %q, want no answer in time", got)
	}
}

// The right submission passes the task's own benchmarks even where one core
// plays the GPU.
func testCUDABenchmarks(t *testing.T, right string) {
	v := judge(t, right, "leaderboard", lines(readTask(t, find(t, "vectoradd_cu")).Benchmarks))
	expect(t, v, true)
	expectFigures(t, v, "0")
	expectFigures(t, v, "1")
}

// What is said about wrong outputs, with a secret and without, and about
// outputs that were made from a known seed.
func testCUDATexts(t *testing.T, harness string) {
	const cases = "n: 1; range: 1; seed: 4242"
	zero := buildCUDA(t, harness, "#include \"task.h\"\nvoid custom_kernel(const float*, const float*, float* c, std::size_t) { c[0] = 0; }\n")
	plain, secret := judge(t, zero, "test", cases), judge(t, zero, "test", cases, "POPCORN_SEED=5")
	expect(t, plain, false)
	expect(t, secret, false)
	if got, want := plain.report["test.0.error"], "element 0 of 1: got 0, want "; !strings.HasPrefix(got, want) {
		t.Errorf("without a secret: got error %q, want %q", got, want)
	}
	if got, want := secret.report["test.0.error"], "element 0 of 1 is wrong"; got != want {
		t.Errorf("with a secret: got error %q, want %q", got, want)
	}
	known := buildCUDA(t, harness, `
#include <cstdio>
#include <random>
#include "task.h"

void custom_kernel(const float*, const float*, float* c, std::size_t) {
    std::mt19937_64 draw(4242);
    float ab[2];
    for (float& x : ab) x = float(double(draw() >> 11) * 0x1p-52 - 1);
    c[0] = ab[0] + ab[1];
    std::printf("called\n");
}
`)
	v := judge(t, known, "test", cases)
	expect(t, v, false)
	if got := v.report["test.0.error"]; !strings.HasPrefix(got, "element 0 of 1: got ") || !strings.HasSuffix(got, " (with a fresh seed)") {
		t.Errorf("known seed: got error %q, want element 0 of a fresh seed's", got)
	}
	if want := "called\ncalled\n"; v.stdout != want {
		t.Errorf("got stdout %q, want %q", v.stdout, want)
	}
}
