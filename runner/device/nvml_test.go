//go:build cgo

package device

import (
	"errors"
	"slices"
	"strings"
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
		require Requirements
		outcome string
	}{
		{state{}, Requirements{}, ""},
		{state{throttle: 1 | 4}, Requirements{Vendor: NVIDIA, Count: 8}, ""},
		{state{}, Requirements{Vendor: NVIDIA, Count: 9}, schema.OutcomeGPUMissing},
		{state{}, Requirements{Vendor: AMD}, schema.OutcomeGPUMissing},
		{state{pending: true}, Requirements{}, schema.OutcomeGPUUnhealthy},
		{state{failed: true}, Requirements{}, schema.OutcomeGPUUnhealthy},
		{state{throttle: 64}, Requirements{}, schema.OutcomeGPUUnhealthy},
		{state{mode: nvml.COMPUTEMODE_PROHIBITED}, Requirements{}, schema.OutcomeGPUUnhealthy},
		{state{processes: []nvml.ProcessInfo{{Pid: 1}}}, Requirements{}, schema.OutcomeGPUBusy},
		{state{processes: []nvml.ProcessInfo{{Pid: 1}}}, Requirements{Shared: true}, ""},
	} {
		r, _, _ := openLibrary(dgx(tt.state))
		report := r.report()
		if got, text := tt.require.Check(report, report.Devices); got != tt.outcome || (got == "") != (text == "") {
			t.Errorf("%+v on %+v: %q %q, want %q", tt.require, tt.state, got, text, tt.outcome)
		}
	}
}

// Device 2 of eight gives these answers.
func TestNVMLHealth(t *testing.T) {
	const lost, reset, unknown = nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_UNKNOWN
	uuid := func(ret nvml.Return) func(*dgxa100.Device) {
		return func(d *dgxa100.Device) { d.GetUUIDFunc = func() (string, nvml.Return) { return "", ret } }
	}
	sensors := func(temperature, power nvml.Return) func(*dgxa100.Device) {
		return func(d *dgxa100.Device) {
			d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, temperature }
			d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 0, power }
		}
	}
	processes := func(ret nvml.Return) func(*dgxa100.Device) {
		return func(d *dgxa100.Device) {
			d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, ret }
		}
	}
	for _, tt := range []struct {
		name   string
		broken func(*dgxa100.Device)
		want   string // the fault
	}{
		{"lost, by its UUID", uuid(lost), nvml.ErrorString(lost)},
		{"lost, by its processes", processes(lost), nvml.ErrorString(lost)},
		{"to be reset, by its sensors", sensors(reset, nvml.SUCCESS), nvml.ErrorString(reset)},
		{"UUID", uuid(unknown), "UUID: " + nvml.ErrorString(unknown)},
		{"UUID not supported", uuid(nvml.ERROR_NOT_SUPPORTED), ""},
		{"memory", func(d *dgxa100.Device) {
			d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, unknown }
		}, "memory: " + nvml.ErrorString(unknown)},
		{"both sensors", sensors(unknown, unknown), "temperature and power: " + nvml.ErrorString(unknown)},
		{"temperature", sensors(unknown, nvml.SUCCESS), ""},
		{"power", sensors(nvml.SUCCESS, unknown), ""},
		{"no sensors", sensors(nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NOT_SUPPORTED), ""},
		{"processes", processes(unknown), ""},
	} {
		server := dgx(state{})
		tt.broken(server.Devices[2].(*dgxa100.Device))
		checkThird(t, tt.name, server, tt.want)
	}
	for ret, want := range map[nvml.Return]string{lost: nvml.ErrorString(lost), unknown: "handle: " + nvml.ErrorString(unknown)} {
		server := dgx(state{})
		handle := server.DeviceGetHandleByIndexFunc
		server.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
			if i == 2 {
				return nil, ret
			}
			return handle(i)
		}
		checkThird(t, "handle", server, want)
	}
}

// checkThird wants that fault of the third device, and nothing against the
// others: they stay where their numbers say.
func checkThird(t *testing.T, name string, server *dgxa100.Server, want string) {
	t.Helper()
	r, _, _ := openLibrary(server)
	report := r.report()
	if len(report.Devices) != 8 || report.Devices[7].Index != 7 {
		t.Fatalf("%s: %d devices", name, len(report.Devices))
	}
	for env, unhealthy := range map[string]bool{"": want != "", "CUDA_VISIBLE_DEVICES=2": want != "", "CUDA_VISIBLE_DEVICES=3": false} {
		seen := Visible(report, []string{env})
		got, text := Requirements{Vendor: NVIDIA}.Check(report, seen)
		if (got == schema.OutcomeGPUUnhealthy) != unhealthy || unhealthy && !strings.HasSuffix(text, "does not work: "+want) {
			t.Errorf("%s, %s: %q %q, want %q", name, env, got, text, want)
		}
	}
}
