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
