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
	harness := compileCUDA(t)
	right := buildCUDA(t, harness, submission(t, find(t, "vectoradd_cu"), "right"))
	t.Run("cases", func(t *testing.T) { testCUDACases(t, right) })
	t.Run("verdicts", func(t *testing.T) { testCUDAVerdicts(t, harness) })
	t.Run("worker knows nothing", func(t *testing.T) { testCUDAWorkerKnowsNothing(t, harness) })
	t.Run("symbols", func(t *testing.T) { testCUDASymbols(t, harness) })
	t.Run("trickle", testCUDATrickle)
	t.Run("benchmarks", func(t *testing.T) { testCUDABenchmarks(t, right) })
	t.Run("texts", func(t *testing.T) { testCUDATexts(t, harness) })
}

// TestSlowCUDA is what of [TestCUDA] rests on times.
func TestSlowCUDA(t *testing.T) {
	needsQuiet(t)
	harness := compileCUDA(t)
	t.Run("slower", func(t *testing.T) { testCUDASlower(t, harness) })
	t.Run("claims", func(t *testing.T) { testCUDAClaims(t, harness) })
}

// compileCUDA returns the harness as an object file.
func compileCUDA(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("g++ is missing")
	}
	dir := lay(t, find(t, "vectoradd_cu"), "")
	compile(t, dir, "-c", "-x", "c++", "eval.cu", "-o", "eval.o")
	return filepath.Join(dir, "eval.o")
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
	for _, name := range []string{"right", "slow", "wrong", "cheat"} {
		dir := buildCUDA(t, harness, submission(t, e, name))
		right := name == "right" || name == "slow"
		for _, mode := range []string{"test", "benchmark", "leaderboard"} {
			v := judge(t, dir, mode, cudaCases, "POPCORN_SEED=20260117")
			if !right || mode == "test" {
				expect(t, v, right)
			} else if expectTimed(t, v) {
				expectFigures(t, v, "1")
			}
		}
	}
}

func testCUDASlower(t *testing.T, harness string) {
	e := find(t, "vectoradd_cu")
	right, slow := buildCUDA(t, harness, submission(t, e, "right")), buildCUDA(t, harness, submission(t, e, "slow"))
	// Microseconds: the mean depends on who else computes here.
	const key = "benchmark.1.best"
	fault := ""
	for range 3 { // a busy machine may slow down the right one alone, once
		right, slow := judge(t, right, "leaderboard", cudaCases), judge(t, slow, "leaderboard", cudaCases)
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

// The right submission passes the task's own benchmarks even where one core
// plays the GPU.
func testCUDABenchmarks(t *testing.T, right string) {
	v := judge(t, right, "leaderboard", lines(readTask(t, find(t, "vectoradd_cu")).Benchmarks))
	if expectTimed(t, v) {
		expectFigures(t, v, "0")
		expectFigures(t, v, "1")
	}
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
