package runner

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

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

func TestDemand(t *testing.T) {
	p := pythonPayload("return True")
	p.Mode = schema.ModeBenchmark
	for _, tt := range []struct {
		smi       string
		demand    device.Demand
		outcome   string
		ambiguous int
	}{
		{"", device.Demand{}, schema.OutcomePassed, 0},
		{"", device.Demand{Vendor: device.NVIDIA}, schema.OutcomeGPUMissing, 0},
		{standInSMI, device.Demand{Vendor: device.NVIDIA}, schema.OutcomePassed, 0},
		{standInSMI, device.Demand{Vendor: device.AMD}, schema.OutcomeGPUMissing, 0},
		{standInSMI, device.Demand{Vendor: device.NVIDIA, Count: 3}, schema.OutcomeGPUMissing, 0},
		{busySMI, device.Demand{}, schema.OutcomeGPUBusy, 0},
		{busySMI, device.Demand{Shared: true}, schema.OutcomePassed, 0},
	} {
		scripts := map[string]string{"nvidia-smi": tt.smi}
		if tt.smi == "" {
			scripts = nil
		}
		r := evaluateJob(t, context.Background(), Job{Payload: p, Demand: tt.demand, Devices: device.Machine{Root: t.TempDir()}, Environ: programs(t, scripts)})
		wantOutcome(t, r, tt.outcome, "")
		if (r.Outcome.ExitStatus() == 75) != (tt.outcome != schema.OutcomePassed) || len(r.Ambiguous) != tt.ambiguous {
			t.Errorf("%+v: %+v", tt.demand, r)
		}
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
