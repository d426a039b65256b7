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

// Cases for one core that plays the GPU; those of the task.yml are for one.
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
	verdicts := make(map[string]verdict) // of mode leaderboard
	for _, name := range []string{"right", "slow", "wrong", "cheat"} {
		dir := buildCUDA(t, harness, submission(t, e, name))
		right := name == "right" || name == "slow"
		for _, mode := range []string{"test", "benchmark", "leaderboard"} {
			v := judge(t, dir, mode, cudaCases, "POPCORN_SEED=20260117")
			expect(t, v, right)
			if right && mode != "test" {
				expectFigures(t, v, "1")
			}
			verdicts[name] = v
		}
	}
	// Microseconds: the mean depends on who else computes here.
	const key = "benchmark.1.best"
	if right, slow := verdicts["right"].number(t, key), verdicts["slow"].number(t, key); slow < slowFactor*right {
		t.Errorf("%s: slow took %v ns, want %v times right's %v ns", key, slow, slowFactor, right)
	}
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
		inputs = append(inputs, v.stdout)
	}
	// Case seed 3 and secret 5 make 3 + 8*9/2 = 39.
	if inputs[0] != inputs[1] || inputs[0] == inputs[2] {
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
