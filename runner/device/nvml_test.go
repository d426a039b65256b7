//go:build cgo

package device

import (
	"errors"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"github.com/gpu-mode/kbgen/schema"
)

// state is what the mock answers beyond what it knows by itself.
type state struct {
	pending, failed bool
	throttle        uint64
	processes       []nvml.ProcessInfo
	mode            nvml.ComputeMode
}

// dgx is a machine of eight GPUs that are all in that state.
func dgx(s state) *dgxa100.Server {
	server := dgxa100.New()
	server.SystemGetProcessNameFunc = func(pid int) (string, nvml.Return) {
		if pid == 4711 {
			return "trainer", nvml.SUCCESS
		}
		return "", nvml.ERROR_NOT_FOUND
	}
	for i := range server.Devices {
		d := server.Devices[i].(*dgxa100.Device)
		d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{Domain: 0, Bus: 0x3b}, nvml.SUCCESS }
		d.GetClockInfoFunc = func(t nvml.ClockType) (uint32, nvml.Return) { return 1000 + uint32(t), nvml.SUCCESS }
		d.GetMaxClockInfoFunc = func(t nvml.ClockType) (uint32, nvml.Return) { return 2000, nvml.SUCCESS }
		d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 41, nvml.SUCCESS }
		d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 61500, nvml.SUCCESS }
		d.GetEnforcedPowerLimitFunc = func() (uint32, nvml.Return) { return 400000, nvml.SUCCESS }
		d.GetComputeModeFunc = func() (nvml.ComputeMode, nvml.Return) { return s.mode, nvml.SUCCESS }
		d.GetPersistenceModeFunc = func() (nvml.EnableState, nvml.Return) { return nvml.FEATURE_ENABLED, nvml.SUCCESS }
		d.GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) {
			return nvml.FEATURE_ENABLED, nvml.FEATURE_ENABLED, nvml.SUCCESS
		}
		d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return 2, nvml.SUCCESS }
		d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 0, s.pending, s.failed, nvml.SUCCESS }
		d.GetRetiredPagesPendingStatusFunc = func() (nvml.EnableState, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
		d.GetCurrentClocksEventReasonsFunc = func() (uint64, nvml.Return) { return s.throttle, nvml.SUCCESS }
		d.GetCurrentClocksThrottleReasonsFunc = d.GetCurrentClocksEventReasonsFunc
		d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return s.processes, nvml.SUCCESS }
	}
	return server
}

func TestNVMLReport(t *testing.T) {
	r, done, err := openLibrary(dgx(state{throttle: 4 | 64, processes: []nvml.ProcessInfo{{Pid: 4711, UsedGpuMemory: 1 << 20}, {Pid: 9, UsedGpuMemory: ^uint64(0)}}}))
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	got := r.report()
	if got.Source != SourceNVML || got.Vendor != NVIDIA || got.Driver != "550.54.15" || got.Runtime != "12.4" || len(got.Devices) != 8 || len(got.Faults) != 0 {
		t.Fatalf("report %+v", got)
	}
	d := got.Devices[3]
	if d.Index != 3 || d.PCI != "0000:3b:00.0" || d.Node != "/dev/nvidia3" || d.Arch != "80" || d.MemoryBytes != 40<<30 || d.ClockSM != 1000+int(nvml.CLOCK_SM) ||
		d.MaxClockSM != 2000 || d.Temperature != 41 || d.PowerW != 61.5 || d.PowerLimitW != 400 || d.ComputeMode != "default" || !*d.Persistence || *d.MIG {
		t.Errorf("device %+v", d)
	}
	if !slices.Equal(d.Throttle, []string{"power-cap", "hw-thermal"}) {
		t.Errorf("throttle %q", d.Throttle)
	}
	if e := d.ECC; !e.Enabled || *e.Uncorrected != 2 || *e.RemapPending || e.RetirePending != nil {
		t.Errorf("ECC %+v", e)
	}
	if want := []schema.Holder{{PID: 4711, Name: "trainer", Bytes: 1 << 20}, {PID: 9}}; !slices.Equal(d.ProcessBefore, want) {
		t.Errorf("processes %v, want %v", d.ProcessBefore, want)
	}
}

func TestNVMLOldDriverIsAskedByTheOldName(t *testing.T) {
	server := dgx(state{throttle: 8})
	server.LookupSymbolFunc = func(string) error { return errors.New("no such symbol") }
	for i := range server.Devices {
		d := server.Devices[i].(*dgxa100.Device)
		d.GetCurrentClocksEventReasonsFunc, d.GetRemappedRowsFunc = nil, nil // the mock panics when they are called
	}
	r, _, _ := openLibrary(server)
	if d := r.report().Devices[0]; !slices.Equal(d.Throttle, []string{"hw-slowdown"}) || d.ECC.RemapFailed != nil {
		t.Errorf("device %+v", d)
	}
}

func TestNVMLThatDoesNotStart(t *testing.T) {
	server := dgx(state{})
	server.InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }
	if _, _, err := openLibrary(server); !errors.Is(err, ErrNoDriver) {
		t.Errorf("no library: %v", err)
	}
	server.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED }
	if _, _, err := openLibrary(server); err == nil || errors.Is(err, ErrNoDriver) {
		t.Errorf("no driver: %v", err)
	}
}

func TestCheckOnNVML(t *testing.T) {
	for _, tt := range []struct {
		state   state
		demand  Demand
		outcome string
	}{
		{state{}, Demand{}, ""},
		{state{throttle: 1 | 4}, Demand{Vendor: NVIDIA, Count: 8}, ""},
		{state{}, Demand{Vendor: NVIDIA, Count: 9}, schema.OutcomeGPUMissing},
		{state{}, Demand{Vendor: AMD}, schema.OutcomeGPUMissing},
		{state{pending: true}, Demand{}, schema.OutcomeGPUUnhealthy},
		{state{failed: true}, Demand{}, schema.OutcomeGPUUnhealthy},
		{state{throttle: 64}, Demand{}, schema.OutcomeGPUUnhealthy},
		{state{mode: nvml.COMPUTEMODE_PROHIBITED}, Demand{}, schema.OutcomeGPUUnhealthy},
		{state{processes: []nvml.ProcessInfo{{Pid: 1}}}, Demand{}, schema.OutcomeGPUBusy},
		{state{processes: []nvml.ProcessInfo{{Pid: 1}}}, Demand{Shared: true}, ""},
	} {
		r, _, _ := openLibrary(dgx(tt.state))
		report := r.report()
		if got, text := tt.demand.Check(report, report.Devices); got != tt.outcome || (got == "") != (text == "") {
			t.Errorf("%+v on %+v: %q %q, want %q", tt.demand, tt.state, got, text, tt.outcome)
		}
	}
}
