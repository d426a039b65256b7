//go:build cgo

package device

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
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

// a100 is what the mock's devices are.
var a100 = schema.DeviceType{Names: []string{"Mock NVIDIA A100-*", "NVIDIA A100-*"}, Arch: "80", MemoryGiB: 40}

func TestCheckOnNVML(t *testing.T) {
	for _, tt := range []struct {
		state   state
		require Requirements
		outcome string
	}{
		{state{}, Requirements{}, ""},
		{state{throttle: 1 | 4}, Requirements{Vendor: NVIDIA, Count: 8}, ""},
		{state{}, Requirements{Vendor: NVIDIA, Count: 9}, schema.OutcomeGPUMissing},
		{state{}, Requirements{Vendor: AMD}, schema.OutcomeWrongMachine},
		{state{}, Requirements{Vendor: NVIDIA, Type: a100}, ""},
		{state{}, Requirements{Type: a100}, ""},
		{state{}, Requirements{Vendor: NVIDIA, Type: schema.DeviceType{Names: a100.Names, Arch: "90"}}, schema.OutcomeWrongMachine},
		{state{}, Requirements{Vendor: NVIDIA, Type: schema.DeviceType{Names: []string{"NVIDIA A100 80GB PCIe"}}}, schema.OutcomeWrongMachine},
		{state{}, Requirements{Vendor: NVIDIA, Type: schema.DeviceType{MemoryGiB: 41}}, schema.OutcomeWrongMachine},
		{state{}, Requirements{Vendor: NVIDIA, Type: a100, Count: 9}, schema.OutcomeGPUMissing},
		{state{}, Requirements{Vendor: None, Type: schema.DeviceType{Arch: "90"}}, ""},
		{state{pending: true}, Requirements{Type: schema.DeviceType{Arch: "90"}}, schema.OutcomeGPUUnhealthy},
		{state{processes: []nvml.ProcessInfo{{Pid: 1}}}, Requirements{Type: schema.DeviceType{Arch: "90"}}, schema.OutcomeWrongMachine},
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
		{"processes", processes(unknown), "who uses it: " + nvml.ErrorString(unknown)},
		{"processes, not in time", processes(nvml.ERROR_TIMEOUT), "who uses it: " + nvml.ErrorString(nvml.ERROR_TIMEOUT)},
		{"processes, may not be told", processes(nvml.ERROR_NO_PERMISSION), ""},
		{"processes, not supported", processes(nvml.ERROR_NOT_SUPPORTED), ""},
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

// Programs get the parts of a GPU that is split, so they stand in its place:
// with a name, memory and processes of their own, and the GPU's sensors.
func TestNVMLParts(t *testing.T) {
	server := dgx(state{throttle: 4})
	whole := server.Devices[2].(*dgxa100.Device)
	whole.GetMigModeFunc = func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_ENABLE, nvml.DEVICE_MIG_ENABLE, nvml.SUCCESS }
	whole.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	whole.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 1 || i > 2 {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return &mock.Device{
			GetNameFunc:       func() (string, nvml.Return) { return "NVIDIA A100-SXM4-40GB MIG 1g.5gb", nvml.SUCCESS },
			GetUUIDFunc:       func() (string, nvml.Return) { return fmt.Sprintf("MIG-%d", i), nvml.SUCCESS },
			GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 5 << 30}, nvml.SUCCESS },
			GetComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) {
				return []nvml.ProcessInfo{{Pid: 4711}}[:i/2], nvml.SUCCESS
			},
		}, nvml.SUCCESS
	}
	r, done, err := openLibrary(server)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	report := r.report()
	if len(report.Devices) != 9 || len(report.Faults) > 0 || len(r.samples()) != 9 {
		t.Fatalf("%d devices, %d samples, faults %q", len(report.Devices), len(r.samples()), report.Faults)
	}
	for i, d := range report.Devices {
		if d.Index != i {
			t.Errorf("device %d has the index %d", i, d.Index)
		}
	}
	first, second := report.Devices[2], report.Devices[3]
	if first.UUID != "MIG-0" || second.UUID != "MIG-2" || first.MemoryBytes != 5<<30 || !*first.MIG || first.Arch != "80" || first.Temperature != 41 || first.PCI == "" ||
		len(first.ProcessBefore) != 0 || len(second.ProcessBefore) != 1 {
		t.Errorf("%+v, %+v", first, second)
	}
	part := Requirements{Vendor: NVIDIA, Type: schema.DeviceType{Names: []string{"NVIDIA A100-* MIG 1g.5gb"}, Arch: "80"}, GPUType: "A100_1G5GB"}
	for env, want := range map[string]string{
		"CUDA_VISIBLE_DEVICES=MIG-0": "", "CUDA_VISIBLE_DEVICES=MIG-2": schema.OutcomeGPUBusy, "CUDA_VISIBLE_DEVICES=0": schema.OutcomeWrongMachine,
	} {
		if got, text := part.Check(report, Visible(report, []string{env})); got != want {
			t.Errorf("%s: %q %q, want %q", env, got, text, want)
		}
	}
	if got, text := (Requirements{Vendor: NVIDIA, Type: a100}).Check(report, Visible(report, []string{"CUDA_VISIBLE_DEVICES=MIG-0"})); got != schema.OutcomeWrongMachine {
		t.Errorf("a part for a whole GPU: %q %q", got, text)
	}

	// Parts that are not shown leave a GPU that is known to be split.
	whole.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_NO_PERMISSION }
	report = r.report()
	for _, q := range []Requirements{part, {Vendor: NVIDIA, Type: a100}} {
		if got, text := q.Check(report, report.Devices[2:3]); got != schema.OutcomeWrongMachine {
			t.Errorf("no part shown: %q %q", got, text)
		}
	}
}
