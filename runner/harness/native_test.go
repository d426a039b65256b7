package harness

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

// Judge and worker of a C++ task, on the processor's memory and on a device that
// is shared memory: everything but the calls of class Device in native/device.h
// runs here for real.

//go:embed testdata/native/device.h
var standInDevice string

const nativeTask = `
#pragma once
#include <cstddef>
void custom_kernel(const float* a, float scale, float* out, int* index, std::size_t n);
struct Params { std::size_t n; float scale; };
inline void call_kernel(const Params& p, void* const* in, void* const* out) {
    custom_kernel(static_cast<const float*>(in[0]), p.scale, static_cast<float*>(out[0]), static_cast<int*>(out[1]), p.n);
}
`

// nativeReference scales an array and counts; two outputs of different types.
const nativeReference = `
#include "kbrun.h"
#include "task.h"
inline kbrun::Input<Params> generate_input(const kbrun::Case& c) {
    const std::size_t n = std::size_t(c.integer("n", 0, 1 << 28));
    if (n == 13) throw std::runtime_error("thirteen is no size");
    kbrun::Input<Params> in{{n, 3}, {}, {}};
    std::vector<float> a(n);
    for (std::size_t i = 0; i < n; i++) a[i] = float((c.seed() * 31 + i * 17) % 1009);
    in.add(a);
    in.add(std::vector<char>());
    in.expect<float>(n);
    in.expect<int>(n);
    return in;
}
inline std::string check_implementation(const kbrun::Case& c, const kbrun::Input<Params>& in, const std::vector<kbrun::Array>& out) {
    const std::size_t n = in.params.n;
    if (out[0].count<float>() != n || out[1].count<int>() != n || c.text("n") != std::to_string(n)) return "another size";
    for (std::size_t i = 0; i < n; i++) {
        if (out[0].as<float>()[i] != 3 * in.arrays[0].as<float>()[i]) return "value " + std::to_string(i) + " differs";
        if (out[1].as<int>()[i] != int(i)) return "index " + std::to_string(i) + " differs";
    }
    if (n == 17) throw std::runtime_error("seventeen cannot be checked");
    return "";
}
`

const nativeRight = `for (std::size_t i = 0; i < n; i++) { out[i] = a[i] * scale; index[i] = int(i); }`

// nativeSubmission is one whose kernel has this body.
func nativeSubmission(body string) string {
	return "#include <cstdio>\n#include <cstdlib>\n#include <cstring>\n#include <unistd.h>\n#include \"task.h\"\nvoid custom_kernel(const float* a, float scale, float* out, int* index, std::size_t n) {\n" + body + "\n}\n"
}

// compiledPrograms are those that were made already.
var compiledPrograms = map[string][]byte{}

// compiled compiles one of the programs of a task by g++.
func compiled(t *testing.T, name, device string, task schema.Files) string {
	t.Helper()
	key := fmt.Sprint(name, device, task)
	if program, ok := compiledPrograms[key]; ok {
		path := filepath.Join(t.TempDir(), plan.BuiltFile)
		must(t, os.WriteFile(path, program, 0o755))
		return path
	}
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("g++ is missing")
	}
	dir := t.TempDir()
	list := sources(name, device)
	args := []string{"-std=c++17", "-O0", "-Wall", "-Wextra", "-Wno-unused-function", "-Werror", "-x", "c++", list[0].Name}
	if name == plan.BuildSubmission {
		args = append(args, plan.SubmissionCUDA, "-shared", "-fPIC")
	}
	for _, f := range append(list, task...) {
		must(t, os.WriteFile(filepath.Join(dir, f.Name), []byte(f.Text), 0o644))
	}
	cmd := exec.CommandContext(t.Context(), "g++", append(args, "-x", "none", "-ldl", "-o", plan.BuiltFile)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	path := filepath.Join(dir, plan.BuiltFile)
	program, err := os.ReadFile(path)
	must(t, err)
	compiledPrograms[key] = program
	return path
}

func nativePayload(sizes ...int) *schema.Payload {
	p := &schema.Payload{
		Lang: schema.LangCUDA, Mode: schema.ModeTest, Extension: schema.Extension{Harness: schema.HarnessIsolated}, RankingBy: schema.RankGeom,
		Sources: schema.Files{{Name: plan.SubmissionCUDA}},
	}
	for i, n := range sizes {
		p.Tests = append(p.Tests, ints("n", n, "seed", i+1))
	}
	p.Benchmarks = p.Tests[:1]
	return p
}

// nativeTaskFiles is the task with a submission.
func nativeTaskFiles(submission string) schema.Files {
	return schema.Files{{Name: plan.TaskHeader, Text: nativeTask}, {Name: plan.ReferenceCUDA, Text: nativeReference}, {Name: plan.SubmissionCUDA, Text: submission}}
}

// openNative opens a session of this file's task, or of another one.
func openNative(t *testing.T, p *schema.Payload, device string, task ...schema.File) (*Session, error) {
	t.Helper()
	if task == nil {
		task = nativeTaskFiles("")
	}
	o := nativeOptions(t, device, task)
	o.Payload = p
	return openSession(t, o)
}

// nativeOptions are those of a session with judge and launcher of a task, but for the
// payload and the submission.
func nativeOptions(t *testing.T, device string, task schema.Files) Options {
	t.Helper()
	programs := map[string]string{}
	for _, name := range []string{plan.BuildJudge, plan.BuildLauncher} {
		programs[name] = compiled(t, name, device, task)
	}
	o := machineOptions(t, "")
	o.Programs = programs
	if strings.Contains(device, "stands in") {
		o.standIn.memory = standInMemory(t)
	}
	return o
}

// judgedNative runs one phase of an open session with a kernel of this body.
func judgedNative(t *testing.T, s *Session, mode, body string) (outcome, words string, run *Run) {
	t.Helper()
	return judgedLibrary(t, s, mode, compiled(t, plan.BuildSubmission, "", nativeTaskFiles(nativeSubmission(body))))
}

// judgedLibrary runs one phase of an open session with a library.
func judgedLibrary(t *testing.T, s *Session, mode, library string) (outcome, words string, run *Run) {
	t.Helper()
	s.o.Payload.Mode = mode
	s.o.Programs[plan.BuildSubmission] = library
	planned := plan.New(s.o.Payload, plan.Machine{Root: s.o.Dir, Environ: s.o.Environ, Programs: map[string]string{"nvcc": "/nvcc"}})
	p := planned[len(planned)-1]
	run, err := s.Phase(t.Context(), &p)
	must(t, err)
	if run.Outcome != nil {
		return run.Outcome.Name, run.Outcome.Text, run
	}
	v := judge.Phase(&p, &judge.Seen{Test: &run.Process})
	if v.SharedJudge || v.SelfChecked {
		t.Error("its judge is said to be shared")
	}
	if v.Outcome != nil {
		return v.Outcome.Name, v.Outcome.Text + "\n" + string(run.Process.Report.Head), run
	}
	return schema.OutcomePassed, string(run.Process.Report.Head), run
}

// A nativeKind is a kernel, and what becomes of it wherever its arrays lie.
type nativeKind struct{ name, body, outcome, words string }

var nativeKinds = []nativeKind{
	{"right", nativeRight, schema.OutcomePassed, ""},
	{"wrong", nativeRight + " if (n > 1999) out[1999]++;", schema.OutcomeWrong, "value 1999 differs"},
	{"wrong in the second output", nativeRight + " index[5] = 6;", schema.OutcomeWrong, "index 5 differs"},
	{"the last one left out", nativeRight + " if (n) out[n - 1] = out[0];", schema.OutcomeWrong, "differs"},
	{"nothing", "(void)a, (void)scale, (void)out, (void)index, (void)n;", schema.OutcomeWrong, "value 0 differs"},
	{"an exception", "(void)a, (void)scale, (void)out, (void)index, (void)n; throw 3;", schema.OutcomeException, "something that is no std::exception"},
	{"an end", "(void)a, (void)scale, (void)out, (void)index, (void)n; _exit(7);", schema.OutcomeExited, "with status 7"},
}

func TestNative(t *testing.T) {
	native(t, nativeKinds[1:2], nativeKinds[2:4], false)
}

// TestSlowNative compiles and judges every kind on the host and on the device, and
// measures on both.
func TestSlowNative(t *testing.T) {
	testenv.NeedSlow(t)
	native(t, nativeKinds, nativeKinds, true)
}

func native(t *testing.T, onHost, onDevice []nativeKind, measured bool) {
	for name, device := range map[string]string{"host": nativeFile(deviceFile), "device": standInDevice} {
		t.Run(name, func(t *testing.T) {
			p := nativePayload(2000, 2001, 0, 3)
			s, err := openNative(t, p, device)
			must(t, err)
			if s.onDevice != (name == "device") {
				t.Fatalf("the inputs are on the device: %v", s.onDevice)
			}
			kinds := onDevice
			if name == "host" {
				kinds = onHost
			}
			for _, k := range kinds {
				if outcome, words, _ := judgedNative(t, s, schema.ModeTest, k.body); outcome != k.outcome || !strings.Contains(words, k.words) {
					t.Errorf("%s: %s: %s, want %s with %q", k.name, outcome, words, k.outcome, k.words)
				}
			}
			if name == "host" && !measured {
				return
			}
			p.Tests = append(p.Tests, ints("n", 9<<20, "seed", 9)) // more than there is room for
			if outcome, words, _ := judgedNative(t, s, schema.ModeTest, nativeRight); outcome != schema.OutcomePassed {
				t.Errorf("a large one: %s: %s", outcome, words)
			}
			if name == "device" && (s.device[0].size < 36<<20 || s.device[1].size < 72<<20) {
				t.Errorf("arenas of %d and %d bytes", s.device[0].size, s.device[1].size)
			}
			outcome, words, run := judgedNative(t, s, schema.ModeBenchmark, "usleep(300); "+nativeRight)
			if outcome == schema.OutcomeAmbiguous {
				t.Logf("the machine is too busy to measure: %s", words)
			} else if outcome != schema.OutcomePassed || len(run.Measurements) != 1 {
				t.Errorf("benchmark: %s: %s", outcome, words)
			} else if m := run.Measurements[0]; m.Resolution <= 0 || len(m.Samples) < minRuns || m.Strict == nil || m.Samples[0] < 300e3 {
				t.Errorf("%+v", m)
			}
		})
	}
}

// TestSlowColdInputs: the caches are flushed where the task asks for it, which takes longer
// than to copy a small input.
func TestSlowColdInputs(t *testing.T) {
	testenv.NeedSlow(t)
	sessions := map[string]func(t *testing.T, inputs string) *Session{
		"Python": func(t *testing.T, inputs string) *Session {
			p := addPayload(right, ints("n", 64, "seed", 1))
			p.Inputs = inputs
			return mustOpen(t, "", p)
		},
		"C++": func(t *testing.T, inputs string) *Session {
			p := nativePayload(64)
			p.Inputs = inputs
			s, err := openNative(t, p, nativeFile(deviceFile))
			must(t, err)
			s.o.Programs[plan.BuildSubmission] = compiled(t, plan.BuildSubmission, "", nativeTaskFiles(nativeSubmission(nativeRight)))
			return s
		},
	}
	for name, session := range sessions {
		fastest := map[string]time.Duration{}
		for _, inputs := range []string{"", schema.InputsWarm, schema.InputsCold} {
			t.Run(name+" "+inputs, func(t *testing.T) {
				s := session(t, inputs)
				p := plan.New(s.o.Payload, plan.Machine{Root: s.o.Dir, Environ: s.o.Environ, Programs: map[string]string{"nvcc": "/nvcc"}})[0]
				r := &phaseRun{s: s, p: &p}
				var err error
				r.cases, err = s.rules.readCases(&p, s.o.Payload)
				must(t, err)
				r.w, err = s.startWorker(t.Context(), &p)
				must(t, err)
				in, err := s.makeInput(t.Context(), r.cases[0])
				must(t, err)
				must(t, r.w.growFor(t.Context(), in))
				for range 5 {
					took, err := s.fill(t.Context(), in)
					must(t, err)
					fastest[inputs] = min(took, cmp.Or(fastest[inputs], took))
				}
				must(t, r.w.end(t.Context()))
			})
		}
		if usual := max(fastest[""], fastest[schema.InputsWarm]); fastest[schema.InputsCold] < 5*time.Millisecond || usual > fastest[schema.InputsCold]/5 {
			t.Errorf("%s: copying an input in took %v, want cold ones to take far longer than the others", name, fastest)
		}
	}
}

// TestNativeBatches: several inputs in one call, one of which is checked.
func TestNativeBatches(t *testing.T) {
	for name, device := range map[string]string{"host": nativeFile(deviceFile), "device": standInDevice} {
		t.Run(name, func(t *testing.T) {
			s, err := openNative(t, nativePayload(500), device)
			must(t, err)
			for body, want := range map[string]bool{nativeRight: true, nativeRight + " out[3] = 0; out[4] = 0; index[n - 1] = 0;": false} {
				p := plan.New(s.o.Payload, plan.Machine{Root: s.o.Dir, Programs: map[string]string{"nvcc": "/nvcc"}})[0]
				p.Name = fmt.Sprint("batch ", want)
				s.o.Programs[plan.BuildSubmission] = compiled(t, plan.BuildSubmission, "", nativeTaskFiles(nativeSubmission(body)))
				r := &phaseRun{s: s, p: &p}
				r.cases, err = s.rules.readCases(&p, s.o.Payload)
				must(t, err)
				r.w, err = s.startWorker(t.Context(), &p)
				must(t, err)
				must(t, r.w.load(t.Context(), schema.CompileLimit))
				for range 3 { // the first has no places to look at
					_, err = r.try(t.Context(), false, true, 0, r.cases[0], r.cases[0].fresh(random), r.cases[0].fresh(random))
					var wrong caseError
					if want && err != nil || !want && !errors.As(err, &wrong) {
						t.Errorf("right: %v: %v", want, err)
					}
				}
				must(t, r.w.end(t.Context()))
			}
		})
	}
}

// TestNativeFaults: what the task's own files throw, in either place.
func TestNativeFaults(t *testing.T) {
	_, err := openNative(t, nativePayload(13), nativeFile(deviceFile))
	var broken *TaskError
	if !errors.As(err, &broken) || !strings.Contains(err.Error(), "thirteen is no size") {
		t.Errorf("Open: %v", err)
	}
	s, err := openNative(t, nativePayload(17), nativeFile(deviceFile))
	must(t, err)
	if outcome, words, _ := judgedNative(t, s, schema.ModeTest, nativeRight); outcome != schema.OutcomeWrong || !strings.Contains(words, "the output cannot be checked: seventeen cannot be checked") {
		t.Errorf("%s: %s", outcome, words)
	}
}

// TestNativeLate: who writes after "done" is found on a device, too, where the
// judge reads the places.
func TestNativeLate(t *testing.T) {
	for name, device := range map[string]string{"host": nativeFile(deviceFile), "device": standInDevice} {
		t.Run(name, func(t *testing.T) {
			s, err := openNative(t, nativePayload(2000), device)
			must(t, err)
			const late = `
    volatile unsigned* page = nullptr;
    char line[500];
    std::FILE* maps = std::fopen("/proc/self/maps", "r");
    while (std::fgets(line, sizeof line, maps))
        if (std::strstr(line, "memfd:page")) page = reinterpret_cast<volatile unsigned*>(std::strtoull(line, nullptr, 16));
    std::fclose(maps);
    page[16] = page[0];
    usleep(300000); // longer than any judge takes to look
` + nativeRight
			outcome, words, _ := judgedNative(t, s, schema.ModeTest, late)
			for n := 0; n < 10 && outcome == schema.OutcomePassed; n++ { // a judge that was kept waiting for so long
				outcome, words, _ = judgedNative(t, s, schema.ModeTest, late)
			}
			if outcome != schema.OutcomeForged || !strings.Contains(words, "written afterwards") {
				t.Errorf("%s: %s", outcome, words)
			}
		})
	}
}

// TestSlowNativeTrial: where memory on a device cannot be shared, Open says so and
// why, before there is a submission.
func TestSlowNativeTrial(t *testing.T) {
	testenv.NeedSlow(t)
	const allocate, open = "        void* const memory = mapped(size, files);\n", "        return mapped(size, files);\n    }\n    void copy_in"
	for _, c := range []struct{ name, old, new, want string }{
		{"no device", allocate, allocate + "        throw std::runtime_error(\"cudaErrorNoDevice: none\");\n", "cudaErrorNoDevice"},
		{"other memory", open, "        (void)files;\n        return new char[size]();\n    }\n    void copy_in", "the worker does not see what was written"},
		{"a worker that dies of it", open, "        _exit(int(9 + 0 * (size + files.size())));\n    }\n    void copy_in", "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			device := strings.Replace(standInDevice, c.old, c.new, 1)
			if device == standInDevice {
				t.Fatal("nothing was changed in the stand-in")
			}
			s, err := openNative(t, nativePayload(100), device)
			var cannot *UnsupportedError
			if !errors.As(err, &cannot) || !cannot.Machine || s != nil || !strings.Contains(cannot.What, c.want) {
				t.Errorf("Open: %v, want an UnsupportedError of the machine's with %q", err, c.want)
			}
		})
	}
}
