package runner

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/schema"
)

// busySMI shows one GPU that a process uses.
const busySMI = `#!/bin/sh
case $1 in
--query-gpu=*) echo "0, Stand-in GPU, GPU-0, 00000000:00:00.0, 550.54, 81559, 1980, 2619, 1980, 2619, 33, 71.20, 700.00, Default, Enabled, 0, 0x1" ;;
*) echo "GPU-0, 42, trainer, 512" ;;
esac
`

// silentSMI never says who uses its GPU.
const silentSMI = `#!/bin/sh
case $1 in
--query-gpu=*) echo "0, Stand-in GPU, GPU-0, 00000000:00:00.0, 550.54, 81559, 1980, 2619, 1980, 2619, 33, 71.20, 700.00, Default, Enabled, 0, 0x1" ;;
*) kill -KILL $$ ;;
esac
`

// brokenSMI finds no driver, and lostSMI a GPU that fell off the bus.
const (
	brokenSMI = "#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n"
	lostSMI   = `#!/bin/sh
case $1 in
--query-gpu=*) echo "0, [GPU is lost], [GPU is lost], 00000000:00:00.0, 550.54, [GPU is lost], 0, 0, 0, 0, 0, 0, 0, Default, [N/A], [N/A], [N/A]" ;;
esac
`
)

func TestMultiGPU(t *testing.T) {
	p := pythonPayload(`raise ValueError(os.environ.get("POPCORN_GPUS", "none"))`)
	p.MultiGPU = true
	for visible, want := range map[string]string{"": "2", "CUDA_VISIBLE_DEVICES=1": "1", "CUDA_VISIBLE_DEVICES=GPU-0,1": "2"} {
		env := append(programs(t, map[string]string{"nvidia-smi": standInSMI}), visible)
		r := evaluateJob(t, context.Background(), Job{Payload: p, Devices: device.Machine{Root: t.TempDir()}, Environ: env})
		if got := reported(t, r, "test", "test.0.error"); got != want || r.System.DeviceCount != len(device.Visible(r.Device, env)) {
			t.Errorf("%s: POPCORN_GPUS = %q, want %q; system %+v", visible, got, want, r.System)
		}
	}
	p.MultiGPU = false
	r := evaluateJob(t, context.Background(), Job{Payload: p, Devices: device.Machine{Root: t.TempDir()}, Environ: programs(t, map[string]string{"nvidia-smi": standInSMI})})
	if got := reported(t, r, "test", "test.0.error"); got != "none" {
		t.Errorf("POPCORN_GPUS = %q without multi_gpu", got)
	}
}

func TestRequirements(t *testing.T) { requirements(t, false) }

// TestSlowRequirements has all machines and requirements.
func TestSlowRequirements(t *testing.T) {
	testenv.NeedSlow(t)
	requirements(t, true)
}

func requirements(t *testing.T, all bool) {
	p := pythonPayload("return True")
	p.Mode = schema.ModeBenchmark
	for i, tt := range []struct {
		smi       string
		require   device.Requirements
		outcome   string
		ambiguous int
	}{
		{"", device.Requirements{}, schema.OutcomePassed, 0},
		{"", device.Requirements{Vendor: device.NVIDIA}, schema.OutcomeGPUMissing, 0},
		{standInSMI, device.Requirements{Vendor: device.AMD}, schema.OutcomeWrongMachine, 0},
		{standInSMI, device.Requirements{Vendor: device.NVIDIA, Type: schema.DeviceType{Names: []string{"Stand-in GPU"}, MemoryGiB: 1}}, schema.OutcomePassed, 0},
		{standInSMI, device.Requirements{Vendor: device.NVIDIA, Type: schema.DeviceType{Names: []string{"NVIDIA L40S"}}}, schema.OutcomeWrongMachine, 0},
		{silentSMI, device.Requirements{Vendor: device.NVIDIA}, schema.OutcomeGPUUnhealthy, 0},
		{busySMI, device.Requirements{}, schema.OutcomeGPUBusy, 0},
		{lostSMI, device.Requirements{}, schema.OutcomeGPUUnhealthy, 0},
		{busySMI, device.Requirements{Shared: true}, schema.OutcomePassed, 0},
		{standInSMI, device.Requirements{Vendor: device.NVIDIA}, schema.OutcomePassed, 0},
		{standInSMI, device.Requirements{Type: schema.DeviceType{Arch: "89"}}, schema.OutcomeWrongMachine, 0}, // which it does not tell
		{standInSMI, device.Requirements{Vendor: device.None, Type: schema.DeviceType{Names: []string{"NVIDIA L40S"}}}, schema.OutcomePassed, 0},
		{busySMI, device.Requirements{Vendor: device.NVIDIA, Type: schema.DeviceType{Names: []string{"NVIDIA L40S"}}}, schema.OutcomeWrongMachine, 0},
		{"", device.Requirements{Type: schema.DeviceType{Names: []string{"NVIDIA L40S"}}}, schema.OutcomeGPUMissing, 0},
		{silentSMI, device.Requirements{}, schema.OutcomeGPUUnhealthy, 0},
		{silentSMI, device.Requirements{Vendor: device.None}, schema.OutcomePassed, 0},
		{standInSMI, device.Requirements{Vendor: device.NVIDIA, Count: 3}, schema.OutcomeGPUMissing, 0},
		{busySMI, device.Requirements{Vendor: device.None}, schema.OutcomePassed, 0},
		{brokenSMI, device.Requirements{Vendor: device.NVIDIA}, schema.OutcomeGPUMissing, 0}, // no driver is loaded
		{lostSMI, device.Requirements{Vendor: device.None}, schema.OutcomePassed, 0},
	} {
		if i == 9 && !all {
			break
		}

		scripts := map[string]string{"nvidia-smi": tt.smi}
		if tt.smi == "" {
			scripts = nil
		}
		r := evaluateJob(t, context.Background(), Job{Payload: p, Requirements: tt.require, Devices: device.Machine{Root: t.TempDir()}, Environ: programs(t, scripts)})
		wantOutcome(t, r, tt.outcome, "")
		if (r.Outcome.ExitStatus() == 75) != (tt.outcome != schema.OutcomePassed) || len(r.Ambiguous) != tt.ambiguous {
			t.Errorf("%+v: %+v", tt.require, r)
		}
		if strings.ContainsAny(r.System.GPU, "[!") {
			t.Errorf("%+v: GPU %q", tt.require, r.System.GPU)
		}
	}
}

// A GPU that a submission could not open is as good as none, when one is
// needed.
func TestClosedDevice(t *testing.T) {
	root := amdRoot(t)
	p := pythonPayload("return True")
	multi := *p
	multi.MultiGPU = true
	amd := device.Requirements{Vendor: device.AMD}
	open := func(mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(root, "dev/dri"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"dev/kfd", "dev/dri/renderD128"} {
			if err := os.RemoveAll(filepath.Join(root, name)); err != nil { // a closed one could not be written by an ordinary user
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, name), nil, 0o666); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(root, name), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		before  func()
		p       *schema.Payload
		require device.Requirements
		outcome string
		text    string
	}{
		{func() {}, p, device.Requirements{}, schema.OutcomePassed, ""},
		{func() {}, p, amd, schema.OutcomeGPUMissing, "/dev/kfd is not there: give the job the device"},
		{func() { open(0) }, p, amd, schema.OutcomeGPUMissing, "/dev/kfd cannot be opened by a submission (mode ----------, group "},
		{func() {}, &multi, device.Requirements{}, schema.OutcomeGPUMissing, "/dev/kfd cannot be opened by a submission"},
		{func() {}, p, device.Requirements{Vendor: device.None}, schema.OutcomePassed, ""},
		{func() { open(0o666) }, p, amd, schema.OutcomePassed, ""},
		{func() {}, &multi, device.Requirements{}, schema.OutcomePassed, ""},
	} {
		tt.before()
		r := evaluateJob(t, context.Background(), Job{Payload: tt.p, Requirements: tt.require, Devices: device.Machine{Root: root}, Environ: programs(t, nil)})
		wantOutcome(t, r, tt.outcome, tt.text)
	}
}

// A stray nvidia-smi does not hide the GPU that the job is for.
func TestStrayTool(t *testing.T) {
	root := amdRoot(t)
	for vendor, want := range map[string]string{"": device.NVIDIA, device.AMD: device.AMD} {
		r := evaluateJob(t, context.Background(), Job{
			Payload: pythonPayload("return True"), Requirements: device.Requirements{Vendor: vendor}, Devices: device.Machine{Root: root}, Environ: programs(t, map[string]string{"nvidia-smi": brokenSMI}),
		})
		if r.Device.Vendor != want {
			t.Errorf("%q required: %+v", vendor, r.Device)
		}
	}
}

// The last job's process, killed and still listed, refuses nothing.
func TestLingeringProcess(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	smi := strings.Replace(busySMI, "*) echo \"GPU-0,", "--query-compute-apps=*) echo >>"+count+"; test $(wc -l <"+count+") -gt 1 || echo \"GPU-0,", 1)
	p := pythonPayload("return True")
	p.Mode = schema.ModeBenchmark
	r := evaluateJob(t, context.Background(), Job{Payload: p, Devices: device.Machine{Root: t.TempDir(), Settle: time.Minute}, Environ: programs(t, map[string]string{"nvidia-smi": smi})})
	wantOutcome(t, r, schema.OutcomePassed, "")
	if len(r.Ambiguous) > 0 || len(r.Device.Devices[0].ProcessBefore) > 0 {
		t.Errorf("ambiguous %q, device %+v", r.Ambiguous, r.Device)
	}
}

// Somebody on a GPU that the submission does not see is evidence, and no more.
func TestHiddenDeviceInUse(t *testing.T) {
	smi := strings.Replace(standInSMI, "esac", `--query-compute-apps=*) echo "GPU-1, 42, trainer, 512";; esac`, 1)
	p := pythonPayload("return True")
	p.Mode = schema.ModeBenchmark
	r := evaluateJob(t, context.Background(), Job{Payload: p, Devices: device.Machine{Root: t.TempDir()}, Environ: append(programs(t, map[string]string{"nvidia-smi": smi}), "CUDA_VISIBLE_DEVICES=0")})
	wantOutcome(t, r, schema.OutcomePassed, "")
	if len(r.Ambiguous) > 0 || len(r.Device.Devices[1].ProcessBefore) != 1 || len(r.Device.Devices[1].ProcessAfter) != 1 {
		t.Errorf("ambiguous %q, device %+v", r.Ambiguous, r.Device)
	}
}

// A process that comes while the submission runs makes its times ambiguous.
func TestForeignProcess(t *testing.T) {
	mark := t.TempDir() + "/mark"
	smi := strings.Replace(busySMI, "*) echo \"GPU-0,", "*) test -e "+mark+" && echo \"GPU-0,", 1)
	p := pythonPayload("return True")
	p.Mode = schema.ModeBenchmark
	r := evaluateJob(t, context.Background(), Job{
		Payload: p, Devices: device.Machine{Root: t.TempDir()}, Environ: programs(t, map[string]string{"nvidia-smi": strings.Replace(smi, "esac", "esac; true", 1)}),
		Progress: func(string, *schema.EvalResult) { os.WriteFile(mark, nil, 0o644) },
	})
	wantOutcome(t, r, schema.OutcomePassed, "")
	if len(r.Ambiguous) != 1 || r.Ambiguous[0] != "device 0 was also used by process 42 trainer" || len(r.Device.Devices[0].ProcessAfter) != 1 {
		t.Errorf("ambiguous %q, device %+v", r.Ambiguous, r.Device)
	}
}

// Nobody can say whether somebody else used the GPU when it cannot be asked at
// the end: a time is then doubtful, and a test's verdict is not.
func TestProbeThatFailsAtTheEnd(t *testing.T) {
	for mode, want := range map[string]int{schema.ModeBenchmark: 1, schema.ModeTest: 0} {
		mark := t.TempDir() + "/mark"
		smi := strings.Replace(standInSMI, "case $1 in", "test -e "+mark+" && kill -KILL $$\ncase $1 in", 1)
		p := pythonPayload("return True")
		p.Mode = mode
		r := evaluateJob(t, context.Background(), Job{
			Payload: p, Devices: device.Machine{Root: t.TempDir()}, Environ: programs(t, map[string]string{"nvidia-smi": smi}),
			Progress: func(string, *schema.EvalResult) { os.WriteFile(mark, nil, 0o644) },
		})
		wantOutcome(t, r, schema.OutcomePassed, "")
		if len(r.Ambiguous) != want || want > 0 && !strings.HasPrefix(r.Ambiguous[0], "the devices could not be asked who else used them: ") {
			t.Errorf("%s: ambiguous %q, want %d", mode, r.Ambiguous, want)
		}
	}
}

func TestEvidence(t *testing.T) {
	p := with(pythonPayload("sum(range(3000000)); return True"), "\n")
	r := evaluateJob(t, context.Background(), Job{Payload: p, Version: "v1", Image: "img", Decode: time.Second, Devices: device.Machine{Root: t.TempDir()}})
	ph := r.Timing.Phases[0]
	if r.Timing.Decode != 1 || r.Timing.Total <= ph.Run.Wall || r.Timing.Budget != 150 || ph.Name != "test" || ph.Write <= 0 || ph.WarmUp == nil || ph.Compile != nil {
		t.Errorf("timing %+v, phase %+v", r.Timing, ph)
	}
	if u := ph.Run; u.Wall <= 0 || u.User <= 0 || u.Peak < 1<<20 || u.Exit != 0 || u.Signal != "" || u.Killed != "" {
		t.Errorf("run %+v", u)
	}
	v := r.Versions
	if v.Runner != "v1" || v.Image != "img" || !strings.HasPrefix(v.Python, "python3") || len(v.Files) != 2 || v.Submission != v.Files[1].SHA256 || v.Files[0].Name != "eval.py" {
		t.Errorf("versions %+v", v)
	}
	seeded := *p
	seeded.Seed = nil
	if again := versions(Job{Payload: &seeded}, nil); again.Payload != v.Payload {
		t.Error("the payload's digest depends on the seed, which could be found by trying")
	}
	p.TestTimeout = schema.NoLimit()
	if _, limited := p.Budget(); limited {
		t.Error("a payload without a limit has a budget")
	}
}
