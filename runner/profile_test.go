package runner

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/schema"
)

// programs makes a directory of scripts and returns an environment whose PATH
// begins there.
func programs(t *testing.T, scripts map[string]string) []string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{"PATH=" + dir + ":" + testenv.PythonPath(t)}
}

// standInSMI shows two GPUs that nobody uses.
const standInSMI = `#!/bin/sh
case $1 in --query-gpu=*)
  for i in 0 1; do echo "$i, Stand-in GPU, GPU-$i, 00000000:0$i:00.0, 550.54, 81559, 1980, 2619, 1980, 2619, 33, 71.20, 700.00, Default, Enabled, 0, 0x1"; done ;;
esac
`

// standInNCU takes Nsight Compute's two calls.
const standInNCU = `#!/bin/sh
if [ "$1" = --import ]; then
  test -f "$2" || exit 1
  printf '  void add(float *) (64, 1, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 9.0\n    Section: Speed\n    Table Name : GPU Throughput\n    Memory %% 88\n\n    Table Name : Other\n    x 1\n'
  exit
fi
calls="$*"
while [ "$1" != -- ]; do
  if [ "$1" = -o ]; then out=$2; fi
  shift
done
shift
echo "ncu: POPCORN_NCU=$POPCORN_NCU $calls" | sed "s|$out|OUT|"
"$@" || exit
echo report > "$out"
`

func TestProfileCUDA(t *testing.T) {
	p := pythonPayload(`print("profiled", spec, mode); return True`)
	p.Mode = schema.ModeProfile
	r := evaluateJob(t, context.Background(), Job{
		Payload: p, Devices: device.Machine{Root: t.TempDir()}, Environ: programs(t, map[string]string{"nvidia-smi": standInSMI, "ncu": standInNCU}),
	})
	wantOutcome(t, r, schema.OutcomePassed, "")
	if got := runNames(r); got != "profile.0 profile.1" {
		t.Fatalf("runs %q, outcome %+v", got, r.Outcome)
	}
	if s := r.System; s.GPU != "Stand-in GPU" || s.DeviceCount != 2 || s.Runtime != "CUDA" {
		t.Errorf("system %+v", s)
	}
	e := r.Runs.Get("profile.1")
	for _, want := range []string{
		"ncu: POPCORN_NCU=1 --set full --nvtx --nvtx-include custom_kernel/ --import-source 1 -c 10 -o OUT -- python3 eval.py profile /",
		"profiled n: 20 profile\n",
	} {
		if !strings.Contains(e.Run.Stdout, want) {
			t.Errorf("stdout %q lacks %q", e.Run.Stdout, want)
		}
	}
	if !strings.HasPrefix(e.Run.Command, "ncu --set full ") {
		t.Errorf("command %q", e.Run.Command)
	}
	report, err := base64.StdEncoding.DecodeString(reported(t, r, "profile.1", "benchmark.0.report"))
	want := "  void add(float *) (64, 1, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 9.0\n\n    Table Name : GPU Throughput\n    Memory % 88\n"
	if err != nil || string(report) != want {
		t.Errorf("benchmark.0.report %q (%v), want %q", report, err, want)
	}
	if e.Profile == nil || e.Profile.Profiler != "Nsight-Compute" || e.Profile.DownloadURL != nil {
		t.Fatalf("profile %+v", e.Profile)
	}
	if diff := cmp.Diff(map[string]string{"profile.ncu-rep": "report\n"}, unpack(t, e.Profile.Trace)); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
}

// standInROCProf writes what rocprofv3 and the runtime leave behind.
const standInROCProf = `#!/bin/sh
calls="$*"
while [ "$1" != -- ]; do
  if [ "$1" = -d ]; then out=$2; fi
  shift
done
shift
echo "rocprofv3: GPU_DUMP_CODE_OBJECT=$GPU_DUMP_CODE_OBJECT $calls" | sed "s|$out|DIR|"
mkdir -p "$out"
printf one > "$out/1.pftrace"; printf two > "$out/2.pftrace"; echo csv > "$out/1_kernel_trace.csv"
ln -s /etc/hostname "$out/escape.csv"; mkfifo "$out/pipe.csv"
echo object > _code_object0001.o; echo other > other.o
exec "$@"
`

func amdRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	node := filepath.Join(root, "sys/class/kfd/kfd/topology/nodes/1")
	if err := os.MkdirAll(node, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(node, "properties"), []byte("drm_render_minor 128\ngfx_target_version 90402\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(node, "name"), []byte("aqua\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestProfileROCm(t *testing.T) {
	p := pythonPayload("return True")
	p.Mode, p.Benchmarks = schema.ModeProfile, p.Benchmarks[:1]
	r := evaluateJob(t, context.Background(), Job{Payload: p, Devices: device.Machine{Root: amdRoot(t)}, Environ: programs(t, map[string]string{"rocprofv3": standInROCProf})})
	wantOutcome(t, r, schema.OutcomePassed, "")
	e := r.Runs.Get("profile.0")
	if e == nil || e.Profile == nil || e.Profile.Profiler != "rocPROF" || r.System.Runtime != "ROCm" || r.System.GPU != "aqua" {
		t.Fatalf("%+v", r)
	}
	call := "rocprofv3: GPU_DUMP_CODE_OBJECT=1 --log-level fatal --hip-trace --kernel-trace --rccl-trace --marker-trace --hip-trace --memory-copy-trace " +
		"--scratch-memory-trace --output-format pftrace csv -d DIR -o %pid% -- python3 eval.py profile /"
	if !strings.Contains(e.Run.Stdout, call) {
		t.Errorf("stdout %q lacks %q", e.Run.Stdout, call)
	}
	want := map[string]string{"combined.pftrace": "onetwo", "1_kernel_trace.csv": "csv\n", "_code_object0001.o": "object\n"}
	if diff := cmp.Diff(want, unpack(t, e.Profile.Trace)); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
}

func unpack(t *testing.T, trace string) map[string]string {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(trace)
	if err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = string(text)
	}
	return files
}

func TestProfileThatFails(t *testing.T) {
	wrong := pythonPayload(`if spec == "n: 10": raise KeyError("x")
return True`)
	wrong.Mode = schema.ModeProfile
	r := evaluateJob(t, context.Background(), Job{
		Payload: wrong, Devices: device.Machine{Root: t.TempDir()}, Environ: programs(t, map[string]string{"nvidia-smi": standInSMI, "ncu": standInNCU}),
	})
	wantOutcome(t, r, schema.OutcomeException, "profile.0: ")
	if got := runNames(r); got != "profile.0 profile.1" || r.Runs[0].Profile != nil || r.Runs[1].Profile == nil {
		t.Errorf("runs %q: a profile does not depend on the one before", got)
	}
	right := pythonPayload("return True")
	right.Mode = schema.ModeProfile
	multi := *right
	multi.MultiGPU = true
	for _, tt := range []struct {
		p       *schema.Payload
		root    string
		scripts map[string]string
		outcome string
	}{
		{right, t.TempDir(), map[string]string{"nvidia-smi": standInSMI}, schema.OutcomeNoProfiler},
		{right, amdRoot(t), nil, schema.OutcomeNoProfiler},
		{&multi, t.TempDir(), map[string]string{"nvidia-smi": standInSMI, "ncu": standInNCU}, schema.OutcomeUnsupported},
	} {
		r := evaluateJob(t, context.Background(), Job{Payload: tt.p, Devices: device.Machine{Root: tt.root}, Environ: programs(t, tt.scripts)})
		if wantOutcome(t, r, tt.outcome, "profile.0: "); len(r.Runs) != 0 || r.Outcome.ExitStatus() == 0 {
			t.Errorf("%+v", r)
		}
	}
}

// A profiler that does not work is the machine's fault; a program that does not
// is not.
func TestProfilerThatFails(t *testing.T) {
	const run = "#!/bin/sh\n[ \"$1\" = --import ] && exit 1\nwhile [ \"$1\" != -- ]; do shift; done; shift\n"
	for _, tt := range []struct{ name, script, body, outcome, text string }{
		{"ncu", "#!/bin/sh\necho '==ERROR== Failed to initialize'; exit 1\n", "return True", schema.OutcomeNoProfiler, "ncu: ==ERROR== Failed to initialize"},
		{"ncu", "#!/bin/sh\nexit 127\n", "return True", schema.OutcomeNoProfiler, "ncu ended with status 127"},
		{"ncu", run + "\"$@\"; echo '==ERROR== ERR_NVGPUCTRPERM - no permission'\n", "return True", schema.OutcomeNoProfiler, "ncu: ==ERROR== ERR_NVGPUCTRPERM"},
		{"ncu", run + "exec \"$@\"\n", "return True", schema.OutcomePassed, "Nsight-Compute recorded nothing"},
		{"ncu", run + "\"$@\" && exit; echo '==ERROR== The application returned an error code (1).'; exit 1\n", "raise KeyError(1)", schema.OutcomeException, "profile.0: submission.py:4: KeyError: 1"},
		{"ncu", run + "exec \"$@\"\n", "return False", schema.OutcomeWrong, "benchmark.0 failed"},
		{"rocprofv3", "#!/bin/sh\nexit 127\n", "return True", schema.OutcomeNoProfiler, "rocprofv3 ended with status 127"},
		{"rocprofv3", run + "exec \"$@\"\n", "return True", schema.OutcomePassed, "rocPROF recorded nothing"},
	} {
		p := pythonPayload(tt.body)
		p.Mode, p.Benchmarks, p.Seed = schema.ModeProfile, p.Benchmarks[:1], nil
		job := Job{Payload: p, Devices: device.Machine{Root: t.TempDir()}, Environ: programs(t, map[string]string{"nvidia-smi": standInSMI, tt.name: tt.script})}
		if tt.name == "rocprofv3" {
			job.Devices.Root, job.Environ = amdRoot(t), programs(t, map[string]string{tt.name: tt.script})
		}
		r := evaluateJob(t, context.Background(), job)
		wantOutcome(t, r, tt.outcome, tt.text)
		if e := r.Runs.Get("profile.0"); e != nil && e.Profile != nil {
			t.Errorf("%q: a profile of nothing", tt.script)
		}
	}
}
