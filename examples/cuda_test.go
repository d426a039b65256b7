package examples

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/runner/harness"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

// needNvcc returns a PATH that begins at the stand-in for nvcc: g++, for which
// device memory is host memory and a kernel runs one thread after the other. What
// only nvcc can say, and what only a GPU can do, is not tested.
func needNvcc(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("g++ is missing")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "cuda"))); err != nil {
		t.Fatal(err)
	}
	for at := dir; at != "/" && at != os.TempDir(); at = filepath.Dir(at) { // another user's compiler looks for it
		os.Chmod(at, 0o755)
	}
	cached := compiledOnce()
	if cached.err != nil {
		t.Fatal(cached.err)
	}
	for name, program := range cached.programs {
		if err := os.WriteFile(filepath.Join(dir, name), program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir + ":" + os.Getenv("PATH")
}

// compiledOnce are the example's launcher and judge as the stand-in makes them, by
// the digest of their sources: it takes what it finds beside it instead of making
// the same program for every test.
var compiledOnce = sync.OnceValue(func() (made struct {
	programs map[string][]byte
	err      error
}) {
	made.programs = map[string][]byte{}
	dir, err := os.MkdirTemp("", "kbexamples-")
	if err != nil {
		made.err = err
		return made
	}
	defer os.RemoveAll(dir)
	compiler, err := filepath.Abs("testdata/cuda/nvcc")
	ours := map[string][]string{plan.BuildLauncher: nil, plan.BuildJudge: {plan.TaskHeader, plan.ReferenceCUDA}}
	for name, task := range ours {
		work := filepath.Join(dir, name)
		err = errors.Join(err, os.Mkdir(work, 0o755))
		args := []string{"-ldl"}
		for _, f := range harness.Sources(name) {
			err = errors.Join(err, os.WriteFile(filepath.Join(work, f.Name), []byte(f.Text), 0o644))
			if strings.HasSuffix(f.Name, ".cu") {
				args = append(args, f.Name)
			}
		}
		for _, file := range task {
			text, readErr := fs.ReadFile(files, "vectoradd_cu/"+file)
			err = errors.Join(err, readErr, os.WriteFile(filepath.Join(work, file), text, 0o644))
		}
		sum := exec.Command("sh", "-c", "cat *.cu *.cuh *.h 2>/dev/null | sha256sum | cut -c1-64")
		cc := exec.Command(compiler, args...)
		sum.Dir, cc.Dir, cc.Env = work, work, append(os.Environ(), "TMPDIR="+dir)
		digest, sumErr := sum.Output()
		out, ccErr := cc.CombinedOutput()
		if err = errors.Join(err, sumErr, ccErr); err != nil {
			made.err = fmt.Errorf("compiling the %s: %w\n%s", name, err, out)
			return made
		}
		made.programs[strings.TrimSpace(string(digest))], err = os.ReadFile(filepath.Join(work, "eval.out"))
	}
	made.err = err
	return made
})

func cudaTask(t *testing.T, mode, submission string, seed *int64) *schema.Payload {
	t.Helper()
	return payload(t, find(t, "vectoradd_cu"), mode, submission, seed)
}

// What the submission, judge and worker are compiled with is the compiler's
// call as Kernelbot has it, once for all phases.
func TestCUDACompilation(t *testing.T) {
	t.Parallel()
	r := evaluate(t, cudaTask(t, schema.ModeTest, submission(t, find(t, "vectoradd_cu"), "right"), nil))
	wantOutcome(t, r, schema.OutcomePassed, "")
	run := r.Runs.Get(schema.ModeTest)
	c := run.Compilation
	if c == nil || !c.NvccFound || !c.Success || c.NvccVersion != "stand-in for nvcc 1.0\n" || c.ExitCode != 0 || !strings.Contains(c.Command, "nvcc --std=c++20 ") ||
		!strings.HasSuffix(c.Command, " kbrun_call.cu submission.cu -shared -fPIC -Xlinker --no-undefined -arch=native -o eval.out") {
		t.Errorf("compilation %+v", c)
	}
	if !strings.HasPrefix(run.Run.Command, "kbrun-harness test /") || r.Versions.Compiler != "nvcc: stand-in for nvcc 1.0" || r.Timing.Phases[0].Compile == nil {
		t.Errorf("command %q, compiler %q, timing %+v", run.Run.Command, r.Versions.Compiler, r.Timing.Phases)
	}
}

// An error in the submission is told with its line in the submitter's own file;
// the reference is not there to be read.
func TestCUDACompileErrors(t *testing.T) {
	cudaCompileErrors(t, "an unknown name", "the reference", "an embedded file")
}

// TestSlowCUDACompileErrors compiles all faulty submissions.
func TestSlowCUDACompileErrors(t *testing.T) {
	testenv.NeedSlow(t)
	cudaCompileErrors(t)
}

// cudaCompileErrors compiles the ones named, or all.
func cudaCompileErrors(t *testing.T, names ...string) {
	t.Parallel()
	for name, test := range map[string]struct {
		text, words string
		line        int
	}{
		"an unknown name": {"#include \"task.h\"\n\nvoid custom_kernel(const float*, const float*, float* c, std::size_t) { c[0] = no_such_name; }\n", "no_such_name", 3},
		"the reference":   {"#include \"task.h\"\n#include \"reference.cuh\"\n", "reference.cuh", 2},
		"the judge":       {"#include \"task.h\"\n#include \"kbrun_judge.cu\"\n", "kbrun_judge.cu", 2},
		"no kernel":       {"#include \"task.h\"\n", "custom_kernel", 0},
		"a second end":    {"#include \"task.h\"\nvoid custom_kernel(const float*, const float*, float*, std::size_t) {}\nextern \"C\" void kbrun_call(const void*, void* const*, void* const*) {}\n", "kbrun_call", 0},
		"an embedded file": {`#include "task.h"
asm(".data\nreference: .incbin \"reference.cuh\"\n.text\n");
void custom_kernel(const float*, const float*, float*, std::size_t) {}
`, "reference.cuh", 0},
	} {
		if names != nil && !slices.Contains(names, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := evaluate(t, cudaTask(t, schema.ModeLeaderboard, test.text, nil))
			wantOutcome(t, r, schema.OutcomeCompileFailed, "test: nvcc ends with status 1")
			run := r.Runs.Get(schema.ModeTest)
			if len(r.Runs) != 1 || run == nil || run.Compilation == nil || run.Compilation.Success || !strings.Contains(run.Compilation.Stderr, test.words) || run.Run == nil || run.Run.Success || run.Run.ExitCode != 1 {
				t.Fatalf("%+v", r.Runs)
			}
			if x := r.Explanation; test.line > 0 && (x == nil || x.File != plan.SubmissionCUDA || x.Line != test.line) {
				t.Errorf("explained by %+v, want line %d of %s", x, test.line, plan.SubmissionCUDA)
			}
		})
	}
}

// What is wrong in the task's own files is the task's fault, and nothing of the
// submission runs.
func TestCUDATaskFaults(t *testing.T) {
	cudaTaskFaults(t, "a syntax error", "a judge that crashes", "a missing argument")
}

// TestSlowCUDATaskFaults judges with all faulty tasks.
func TestSlowCUDATaskFaults(t *testing.T) {
	testenv.NeedSlow(t)
	cudaTaskFaults(t)
}

// cudaTaskFaults compiles the ones named, or all.
func cudaTaskFaults(t *testing.T, names ...string) {
	t.Parallel()
	good := testCase(t, "n", 5, "range", 1, "seed", 1)
	for name, test := range map[string]struct {
		file, old, text string
		cases           []schema.Case
		want            string
	}{
		"a syntax error":       {file: plan.ReferenceCUDA, old: "std::mt19937_64 draw(c.seed());", text: "std::mt19937_64 draw(c.seed()", want: "the task's own files do not compile: reference.cuh:2"},
		"no check":             {file: plan.ReferenceCUDA, old: "check_implementation", text: "check", want: "the task's own files do not compile: kbrun_judge.cu:"},
		"another call":         {file: plan.TaskHeader, old: "const Params& params, void* const* inputs", text: "void* const* inputs, const Params& params", want: "the task's own files do not compile: "},
		"a broken header":      {file: plan.TaskHeader, old: "struct Params {", text: "struct {", want: "the task's own files do not compile: "},
		"a judge that crashes": {file: plan.ReferenceCUDA, old: "in.expect<float>(n);", text: "in.expect<float>(n); *(volatile int*)8 = 1;", want: "they end the judge by signal 11 (segmentation fault)"},
		"a missing argument":   {cases: []schema.Case{testCase(t, "n", 5, "seed", 1)}, want: "range is missing"},
		"no room":              {cases: []schema.Case{testCase(t, "n", 0, "range", 1, "seed", 1)}, want: "n: got '0', want an integer from 1 to 268435456"},
		"a word":               {cases: []schema.Case{testCase(t, "n", "five", "range", 1, "seed", 1)}, want: "n: got 'five', want an integer"},
		"a seed of words":      {cases: []schema.Case{testCase(t, "n", 5, "range", 1, "seed", "one")}, want: `case 0: seed: got "one", want an integer`},
		"the second case":      {cases: []schema.Case{good, testCase(t, "n", 5, "range", -1, "seed", 1)}, want: "range: got '-1'"},
	} {
		if names != nil && !slices.Contains(names, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := cudaTask(t, schema.ModeTest, "#include <cstdio>\n#include \"task.h\"\nstatic const int loaded = std::puts(\"loaded\");\nvoid custom_kernel(const float* a, const float* b, float* c, std::size_t n) { for (std::size_t i = 0; i < n; i++) c[i] = a[i] + b[i] + 0 * float(loaded); }\n", nil)
			if test.cases != nil {
				p.Tests = test.cases
			}
			for i, f := range p.Headers {
				if f.Name != test.file {
					continue
				}
				if p.Headers[i].Text = strings.Replace(f.Text, test.old, test.text, 1); p.Headers[i].Text == f.Text {
					t.Fatalf("%s has no %q", f.Name, test.old)
				}
			}
			r := evaluate(t, p)
			wantOutcome(t, r, schema.OutcomeHarness, test.want)
			for _, run := range r.Runs {
				if run.Run.Passed || len(test.cases) < 2 && run.Run.Stdout != "" {
					t.Errorf("%s: passed %v, printed %q", run.Name, run.Run.Passed, run.Run.Stdout)
				}
			}
		})
	}
}

// A worker that looks around: it has its library and nothing else.
const cudaLookAround = `
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/ptrace.h>
#include <unistd.h>
#include <string>
#include "task.h"
extern char** environ;

static std::string text(const char* path) {
    std::string all;
    if (std::FILE* f = std::fopen(path, "r")) {
        char block[4096];
        for (std::size_t got; (got = std::fread(block, 1, sizeof block, f)) > 0;) all.append(block, got);
        std::fclose(f);
    }
    return all;
}

void custom_kernel(const float* a, const float* b, float* c, std::size_t n) {
    static bool looked = false;
    if (!looked) {
        looked = true;
        for (char** e = environ; *e; e++) if (!std::strncmp(*e, "POPCORN_", 8)) std::puts("found a variable");
        for (const char* name : {"environ", "mem", "maps", "fd/3"}) {
            const std::string path = "/proc/" + std::to_string(getppid()) + "/" + name;
            if (open(path.c_str(), O_RDONLY) >= 0) std::printf("found %s\n", path.c_str());
        }
        if (ptrace(PTRACE_ATTACH, getppid(), 0, 0) == 0) std::puts("found a process");
        const char needle[] = {'o', 'f', ' ', '%', 'z', 'u', ':', ' ', 'g', 'o', 't', 0};  // of the check's text
        if (text("/proc/self/exe").empty() || text("/proc/self/exe").find(needle) != std::string::npos) std::puts("found the check");
        DIR* here = opendir(".");
        while (const dirent* entry = readdir(here))
            if (entry->d_name[0] != '.' && std::strcmp(entry->d_name, "submission.so")) std::printf("found %s\n", entry->d_name);
        closedir(here);
        std::puts("looked");
    }
    for (std::size_t i = 0; i < n; i++) c[i] = a[i] + b[i];
}
`

func TestCUDAWorkerKnowsNothing(t *testing.T) {
	t.Parallel()
	r := evaluate(t, cudaTask(t, schema.ModeTest, cudaLookAround, nil))
	wantOutcome(t, r, schema.OutcomePassed, "")
	if run := r.Runs.Get(schema.ModeTest); run == nil || run.Run.Stdout != "looked\n" {
		t.Errorf("the worker says %+v, want that it found nothing", run)
	}
}

// Definitions of what judge and worker call by these names, and of what a clock
// or a check is made of: they reach no program but the submission's own library.
const cudaReplaces = `
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <string>
#include <vector>
#include <sys/socket.h>
#include "task.h"

extern "C" int memcmp(const void*, const void*, std::size_t) { return 0; }
extern "C" int clock_gettime(clockid_t, struct timespec* t) { t->tv_sec = t->tv_nsec = 0; return 0; }
extern "C" double fabs(double) { return 0; }
extern "C" void* dlsym(void*, const char*) { return nullptr; }
namespace kbrun {
struct Case;
template <class> struct Input;
struct Array;
struct Piece;
struct Device { void synchronize(); void flush(); };
void Device::synchronize() {}
void Device::flush() {}
}
kbrun::Input<Params> generate_input(const kbrun::Case&);
std::string check_implementation(const kbrun::Case&, const kbrun::Input<Params>&, const std::vector<kbrun::Array>&) { return ""; }
void custom_kernel(const float*, const float*, float*, std::size_t) {}
`

func TestCUDASymbols(t *testing.T) {
	t.Parallel()
	r := evaluate(t, cudaTask(t, schema.ModeTest, cudaReplaces, nil))
	wantOutcome(t, r, schema.OutcomeWrong, "element 0 of 1: got ")
}

// How a submission can end is told as for Python.
func TestCUDAEnds(t *testing.T) {
	cudaEnds(t, "an exception", "a fault", "an end at its start")
}

// TestSlowCUDAEnds has submissions end in every way.
func TestSlowCUDAEnds(t *testing.T) {
	testenv.NeedSlow(t)
	cudaEnds(t)
}

// cudaEnds compiles the ones named, or all.
func cudaEnds(t *testing.T, names ...string) {
	t.Parallel()
	const head = "#include <csignal>\n#include <cstdio>\n#include <cstdlib>\n#include <stdexcept>\n#include <unistd.h>\n#include \"task.h\"\n"
	const kernel = "void custom_kernel(const float* a, const float* b, float* c, std::size_t n) { "
	const right = "for (std::size_t i = 0; i < n; i++) c[i] = a[i] + b[i]; }\n"
	for name, test := range map[string]struct{ text, outcome, words string }{
		"an exception":        {kernel + "if (n > 1) throw std::runtime_error(\"not today\"); " + right, schema.OutcomeException, "test 1: Error: not today"},
		"a number thrown":     {kernel + "if (n > 1) throw 3; " + right, schema.OutcomeException, "test 1: Error: something that is no std::exception"},
		"a fault":             {kernel + "if (n > 1) raise(SIGSEGV); " + right, schema.OutcomeKilled, "test 1: the process was killed by signal 11"},
		"an end":              {kernel + "if (n > 1) std::_Exit(0); " + right, schema.OutcomeExited, "test 1: the submission ended its own process, with status 0"},
		"an end at its start": {"static const int ended = (std::_Exit(3), 0);\n" + kernel + "if (ended) return; " + right, schema.OutcomeExited, "loading the submission: the submission ended its own process, with status 3"},
		"a hang":              {kernel + "while (n > 1) pause(); " + right, schema.OutcomeTimeout, "test 1: passed the time limit of 3s"},
		"half of it":          {kernel + "n -= n / 2; " + right, schema.OutcomeWrong, "element "},
	} {
		if names != nil && !slices.Contains(names, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := cudaTask(t, schema.ModeTest, head+test.text, nil)
			p.TestTimeout = schema.Seconds(60)
			if test.outcome == schema.OutcomeTimeout {
				p.TestTimeout = schema.Seconds(3)
			}
			wantOutcome(t, evaluate(t, p), test.outcome, test.words)
		})
	}
}

// What is said about wrong outputs, with a secret and without, and about
// outputs that were made from a known seed.
func TestCUDATexts(t *testing.T) {
	cudaTexts(t, "a wrong value in secret", "a known seed")
}

// TestSlowCUDATexts has all wrong outputs told.
func TestSlowCUDATexts(t *testing.T) {
	testenv.NeedSlow(t)
	cudaTexts(t)
}

// cudaTexts compiles the ones named, or all.
func cudaTexts(t *testing.T, names ...string) {
	t.Parallel()
	seed := int64(5)
	const zero = "#include \"task.h\"\nvoid custom_kernel(const float*, const float*, float* c, std::size_t) { c[0] = 0; }\n"
	const known = `
#include <cstdio>
#include <random>
#include "task.h"

void custom_kernel(const float*, const float*, float* c, std::size_t) {
    std::mt19937_64 draw(SEED);
    float ab[2];
    for (float& x : ab) x = float(double(draw() >> 11) * 0x1p-52 - 1);
    c[0] = ab[0] + ab[1];
    std::printf("called\n");
}
`
	for _, test := range []struct {
		name, text, want, stdout string
		caseSeed                 int
		seed                     *int64
	}{
		{"a wrong value", zero, "element 0 of 1: got 0, want ", "", 4242, nil},
		{"a wrong value in secret", zero, "withheld: the run's seed is secret", "", 4242, &seed},
		{"a known seed", strings.Replace(known, "SEED", "4242", 1), " (with a fresh seed)", "called\ncalled\n", 4242, nil},
		{"a large seed", strings.Replace(known, "SEED", "18446744073709551611u", 1), " (with a fresh seed)", "called\ncalled\n", -5, nil},
	} {
		if names != nil && !slices.Contains(names, test.name) {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := cudaTask(t, schema.ModeTest, test.text, test.seed)
			p.Tests = []schema.Case{testCase(t, "n", 1, "range", 1, "seed", test.caseSeed)}
			r := evaluate(t, p)
			wantOutcome(t, r, schema.OutcomeWrong, "")
			if got := reported(r, schema.ModeTest, "test.0.error"); !strings.HasPrefix(got, test.want) && !strings.HasSuffix(got, test.want) {
				t.Errorf("got error %q, want %q", got, test.want)
			}
			if got := r.Runs.Get(schema.ModeTest).Run.Stdout; got != test.stdout {
				t.Errorf("got stdout %q, want %q", got, test.stdout)
			}
		})
	}
	// Case seed 3 and secret 5 make 3 + 8*9/2 = 39: right at the first call.
	p := cudaTask(t, schema.ModeTest, strings.Replace(strings.Replace(known, "SEED", "39", 1), "void custom_kernel(const float*, const float*,", "void custom_kernel(const float* a, const float* b,", 1), &seed)
	p.Sources[0].Text = strings.Replace(p.Sources[0].Text, "c[0] = ab[0] + ab[1];", "c[0] = a[0] + b[0]; static int calls = 0; if (calls++ == 0 && c[0] != ab[0] + ab[1]) c[0] += 1;", 1)
	p.Tests = []schema.Case{testCase(t, "n", 1, "range", 1, "seed", 3)}
	wantOutcome(t, evaluate(t, p), schema.OutcomePassed, "")
}

// nvcc compiles judge, worker and every submission where there is one; the flags
// are Kernelbot's, less what only prints.
func TestCUDACompiles(t *testing.T) {
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		t.Skip("nvcc is missing")
	}
	e := find(t, "vectoradd_cu")
	p := payload(t, e, schema.ModeTest, submission(t, e, "right"), nil)
	builds := plan.New(p, plan.Machine{Root: "/", Programs: map[string]string{"nvcc": nvcc}})[0].Builds
	for _, b := range builds {
		texts := []string{""}
		if b.Name == plan.BuildSubmission {
			texts = e.Submissions
		}
		for _, name := range texts {
			dir := t.TempDir()
			for _, f := range append(b.Files, harness.Sources(b.Name)...) {
				text := f.Text
				if f.Name == plan.SubmissionCUDA {
					text = submission(t, e, name)
				}
				if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			var args []string
			for _, a := range b.Compile.Argv[1:] {
				if a != "-arch=native" && !strings.HasPrefix(a, "--std=") { // there may be no GPU here
					args = append(args, a)
				}
			}
			cmd := exec.CommandContext(t.Context(), nvcc, append(args, "--std="+nvccStandard(t, nvcc))...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s %s: %v\n%s", b.Name, name, err, out)
			}
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

// The task has the files that its task.yml names, and no harness.
func TestCUDATaskHasNoHarness(t *testing.T) {
	names, err := fs.Glob(FS(), "vectoradd_cu/*")
	if err != nil {
		t.Fatal(err)
	}
	const want = "vectoradd_cu/reference.cuh vectoradd_cu/submissions vectoradd_cu/task.h vectoradd_cu/task.yml vectoradd_cu/template.cu"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
