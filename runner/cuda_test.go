package runner

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/schema"
)

// standInNvcc understands nvcc's call and lets the host's compiler work.
const standInNvcc = `#!/bin/sh
if [ "$1" = --version ]; then echo "stand-in 1.0"; exit 0; fi
for a; do
  case $a in
    -D*|-I*|-l*) opts="$opts $a" ;;
    *.cu) files="$files $a" ;;
  esac
done
exec c++ -std=c++20 -x c++ $opts $files -o eval.out
`

const driver = `
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include "shapes.h"
int kernel(int);
int main(int argc, char **argv) {
	FILE *report = fdopen(atoi(getenv("POPCORN_FD")), "w");
	bool hidden = access("driver.cu", F_OK) && access("shapes.h", F_OK) && access("submission.cu", F_OK);
	fprintf(report, "test-count: 1\ntest.0.spec: n: 128\ntest.0.status: %s\n", hidden ? "pass" : "fail");
	fprintf(report, "mode: %s\ncheck: %s\n", argv[1], kernel(SHAPE) == TILE && hidden ? "pass" : "fail");
	return fclose(report);
}
`

func cudaPayload(submission string) *schema.Payload {
	tile := "64"
	return &schema.Payload{
		Sources: schema.Files{{Name: "driver.cu", Text: driver}, {Name: "submission.cu", Text: submission}},
		Headers: schema.Files{{Name: "shapes.h", Text: "#define SHAPE 32\n"}},
		Defines: []schema.Define{{Name: "TILE", Value: &tile}, {Name: "FAST"}},
		Lang:    schema.LangCUDA, Mode: schema.ModeTest, RankingBy: schema.RankLast,
		Tests: []schema.Case{{{Name: "n", Value: schema.IntValue(128)}}},
	}
}

// withNvcc is an environment whose nvcc is the script.
func withNvcc(t *testing.T, script string) []string {
	t.Helper()
	if _, err := exec.LookPath("c++"); err != nil {
		t.Skip("c++ is not installed")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nvcc"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
}

func TestCUDA(t *testing.T) {
	r := Evaluate(context.Background(), Job{Payload: cudaPayload("int kernel(int n) { return 2 * n; }"), Environ: withNvcc(t, standInNvcc), WorkDir: t.TempDir()})
	wantOutcome(t, r, schema.OutcomePassed, "")
	e := r.Runs.Get("test")
	if e == nil || !e.Compilation.Success || e.Compilation.NvccVersion != "stand-in 1.0\n" || !strings.HasPrefix(e.Run.Command, "./eval.out test /") {
		t.Fatalf("%+v", r)
	}
	if got := reported(t, r, "test", "mode"); got != "test" {
		t.Errorf("the binary ran in mode %q", got)
	}
}

func TestCUDACompileFails(t *testing.T) {
	r := Evaluate(context.Background(), Job{Payload: cudaPayload("int kernel(int n) { return no_such_name; }"), Environ: withNvcc(t, standInNvcc), WorkDir: t.TempDir()})
	wantOutcome(t, r, schema.OutcomeCompileFailed, "test: nvcc ends with status 1")
	e := r.Runs.Get("test")
	if e == nil || e.Compilation.Success || !e.Compilation.NvccFound || !strings.Contains(e.Compilation.Stderr, "no_such_name") {
		t.Fatalf("%+v", r)
	}
	if e.Run == nil || e.Run.Success || e.Run.Passed || e.Run.ExitCode != 1 || e.Run.Duration != 0 || len(e.Run.Result) != 0 {
		t.Errorf("stand-in run %+v", e.Run)
	}
}

// What the compiler made and the kernel refuses is the submission's doing.
func TestCUDAProgramThatCannotStart(t *testing.T) {
	const version = "#!/bin/sh\n[ \"$1\" = --version ] && exec echo 1.0\n"
	for script, want := range map[string]string{
		"exit 0":                              "no such file or directory",
		"echo x >eval.out":                    "permission denied",
		"echo x >eval.out; chmod +x eval.out": "exec format error",
		"ln -s eval.out eval.out":             "too many levels of symbolic links",
		"printf '#!/nowhere\n' >eval.out\nchmod +x eval.out": "no such file or directory",
	} {
		r := Evaluate(context.Background(), Job{Payload: cudaPayload(""), Environ: withNvcc(t, version+script+"\n"), WorkDir: t.TempDir()})
		wantOutcome(t, r, schema.OutcomeCrashed, "test: the compiled program cannot be started: "+want)
		e := r.Runs.Get("test")
		if e == nil || e.Compilation == nil || !e.Compilation.Success || e.Run == nil || e.Run.Success || e.Run.Passed || r.Outcome.ExitStatus() != 0 || r.Outcome.Phase != "test" {
			t.Errorf("%q: %+v, outcome %+v", script, e, r.Outcome)
		}
	}
}

func TestIncludeDirs(t *testing.T) {
	env := withNvcc(t, standInNvcc)
	here := t.TempDir()
	for _, tt := range []struct{ dir, outcome, text string }{
		{".", schema.OutcomePassed, ""},
		{here, schema.OutcomePassed, ""},
		{filepath.Join(here, "no"), schema.OutcomeMachine, "test: include directory"},
		{"include", schema.OutcomeBadPayload, "test: payload: include_dirs: got \"include\""},
		{"..", schema.OutcomeBadPayload, "test: payload: include_dirs: got \"..\""},
		{"/", schema.OutcomeMachine, "got \"/\""},
	} {
		p := cudaPayload("int kernel(int n) { return 2 * n; }")
		p.IncludeDirs = []string{tt.dir}
		r := Evaluate(context.Background(), Job{Payload: p, Environ: env, WorkDir: t.TempDir()})
		wantOutcome(t, r, tt.outcome, tt.text)
	}
}

func TestCompilerCallThatIsTooLong(t *testing.T) {
	p := cudaPayload("int kernel(int n) { return 2 * n; }")
	long := strings.Repeat("x", 200_000)
	p.Defines = append(p.Defines, schema.Define{Name: "LONG", Value: &long})
	r := Evaluate(context.Background(), Job{Payload: p, Environ: withNvcc(t, standInNvcc), WorkDir: t.TempDir()})
	wantOutcome(t, r, schema.OutcomeBadPayload, "test: payload: the compiler's command line")
}

func TestNoNvcc(t *testing.T) {
	for want, script := range map[string]string{"the machine has no nvcc": "", "nvcc --version ends with status 3": "#!/bin/sh\nexit 3\n"} {
		env := []string{"PATH=/nowhere"}
		if script != "" {
			env = withNvcc(t, script)
		}
		r := Evaluate(context.Background(), Job{Payload: cudaPayload(""), Environ: env, WorkDir: t.TempDir()})
		wantOutcome(t, r, schema.OutcomeNoCompiler, want)
		if e := r.Runs.Get("test"); e == nil || e.Compilation.NvccFound || e.Run == nil || r.Outcome.ExitStatus() != 75 {
			t.Errorf("%+v", r)
		}
	}
}

// standInHipcc takes hipcc's call.
const standInHipcc = `#!/bin/sh
if [ "$1" = --version ]; then echo "HIP version: 6.2"; exit 0; fi
for a; do
  case $a in
    -D*|-I*|-l*) opts="$opts $a" ;;
    *.cu) files="$files $a" ;;
  esac
done
exec c++ -std=c++20 -x c++ $opts $files -o eval.out
`

func TestHIP(t *testing.T) {
	if _, err := exec.LookPath("c++"); err != nil {
		t.Skip("c++ is not installed")
	}
	job := Job{
		Payload: cudaPayload("int kernel(int n) { return 2 * n; }"), Devices: device.Machine{Root: amdRoot(t)}, WorkDir: t.TempDir(),
		Environ: programs(t, map[string]string{"hipcc": standInHipcc}),
	}
	r := Evaluate(context.Background(), job)
	wantOutcome(t, r, schema.OutcomePassed, "")
	if c := r.Runs.Get("test").Compilation; c.NvccVersion != "HIP version: 6.2\n" || r.Versions.Compiler != "hipcc: HIP version: 6.2" || r.Timing.Phases[0].Compile == nil {
		t.Errorf("compilation %+v, versions %+v", c, r.Versions)
	}
	nvidia := "90a"
	job.Payload.Arch = &nvidia
	if r = Evaluate(context.Background(), job); r.Outcome.ExitStatus() != 78 {
		t.Errorf("%+v", r)
	}
	wantOutcome(t, r, schema.OutcomeUnsupported, `test: arch "90a" is not one of AMD's`)
	path, _, _ := strings.Cut(programs(t, map[string]string{"nvcc": standInNvcc})[0], ":") // without this machine's own programs
	job.Payload.Arch, job.Environ = nil, []string{path}
	r = Evaluate(context.Background(), job)
	wantOutcome(t, r, schema.OutcomeNoCompiler, "the machine has no hipcc")
}
