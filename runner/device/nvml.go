//go:build cgo

package device

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-mode/kbgen/schema"
)

// HasNVML tells whether NVML is inside this build.
const HasNVML = true

// openNVML loads NVIDIA's library.
//
// Errors: [ErrNoDriver], or NVML's own words for a driver that does not work.
func openNVML() (reader, func(), error) { return openLibrary(nvml.New()) }

func openLibrary(lib nvml.Interface) (reader, func(), error) {
	switch ret := lib.Init(); ret {
	case nvml.SUCCESS:
		return &nvmlReader{lib}, func() { lib.Shutdown() }, nil
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, nil, ErrNoDriver
	default:
		return nil, nil, fmt.Errorf("starting NVML: %s", nvml.ErrorString(ret))
	}
}

// nvmlReader asks through NVML. A function that an older driver lacks would end
// this process, so newer ones are looked up first.
type nvmlReader struct{ lib nvml.Interface }

func (r *nvmlReader) has(symbol string) bool { return r.lib.Extensions().LookupSymbol(symbol) == nil }

func (r *nvmlReader) report() *schema.DeviceReport {
	out := &schema.DeviceReport{Source: SourceNVML, Vendor: NVIDIA}
	if v, ret := r.lib.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		out.Driver = v
	}
	if v, ret := r.lib.SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
		out.Runtime = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	n, ret := r.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		out.Faults = append(out.Faults, "counting devices: "+nvml.ErrorString(ret))
	}
	for i := range n {
		d, ret := r.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			out.Faults = append(out.Faults, fmt.Sprintf("device %d: %s", i, nvml.ErrorString(ret)))
			continue
		}
		out.Devices = append(out.Devices, r.device(i, d))
	}
	return out
}

func (r *nvmlReader) device(i int, d nvml.Device) schema.Device {
	now := r.sample(i, d)
	out := schema.Device{
		Index: i, ECC: r.ecc(d), ClockSM: now.ClockSM, ClockMemory: now.ClockMemory, Temperature: now.Temperature,
		PowerW: now.PowerW, Throttle: now.Throttle, ProcessBefore: now.Processes,
	}
	if v, ret := d.GetName(); ret == nvml.SUCCESS {
		out.Name = v
	}
	if v, ret := d.GetUUID(); ret == nvml.SUCCESS {
		out.UUID = v
	}
	if v, ret := d.GetPciInfo(); ret == nvml.SUCCESS {
		out.PCI = fmt.Sprintf("%04x:%02x:%02x.0", v.Domain, v.Bus, v.Device)
	}
	if v, ret := d.GetMinorNumber(); ret == nvml.SUCCESS {
		out.Node = fmt.Sprintf("/dev/nvidia%d", v)
	}
	if major, minor, ret := d.GetCudaComputeCapability(); ret == nvml.SUCCESS {
		out.Arch = fmt.Sprintf("%d%d", major, minor)
	}
	if v, ret := d.GetMemoryInfo(); ret == nvml.SUCCESS {
		out.MemoryBytes = v.Total
	}
	if v, ret := d.GetMaxClockInfo(nvml.CLOCK_SM); ret == nvml.SUCCESS {
		out.MaxClockSM = int(v)
	}
	if v, ret := d.GetMaxClockInfo(nvml.CLOCK_MEM); ret == nvml.SUCCESS {
		out.MaxClockMem = int(v)
	}
	if v, ret := d.GetEnforcedPowerLimit(); ret == nvml.SUCCESS {
		out.PowerLimitW = float64(v) / 1000
	}
	if v, ret := d.GetComputeMode(); ret == nvml.SUCCESS {
		out.ComputeMode = computeMode(v)
	}
	if v, ret := d.GetPersistenceMode(); ret == nvml.SUCCESS {
		out.Persistence = enabled(v)
	}
	if v, _, ret := d.GetMigMode(); ret == nvml.SUCCESS {
		on := v == nvml.DEVICE_MIG_ENABLE
		out.MIG = &on
	}
	return out
}

func (r *nvmlReader) ecc(d nvml.Device) *schema.ECC {
	mode, _, ret := d.GetEccMode()
	if ret != nvml.SUCCESS {
		return nil // the device has none
	}
	out := &schema.ECC{Enabled: mode == nvml.FEATURE_ENABLED}
	if n, ret := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); ret == nvml.SUCCESS {
		out.Uncorrected = &n
	}
	if r.has("nvmlDeviceGetRemappedRows") {
		if _, _, pending, failed, ret := d.GetRemappedRows(); ret == nvml.SUCCESS {
			out.RemapPending, out.RemapFailed = &pending, &failed
		}
	}
	if v, ret := d.GetRetiredPagesPendingStatus(); ret == nvml.SUCCESS {
		out.RetirePending = enabled(v)
	}
	return out
}

func enabled(s nvml.EnableState) *bool {
	on := s == nvml.FEATURE_ENABLED
	return &on
}

func computeMode(m nvml.ComputeMode) string {
	switch m {
	case nvml.COMPUTEMODE_DEFAULT:
		return "default"
	case nvml.COMPUTEMODE_PROHIBITED:
		return modeProhibited
	case nvml.COMPUTEMODE_EXCLUSIVE_PROCESS:
		return "exclusive-process"
	}
	return fmt.Sprint(m)
}

func (r *nvmlReader) samples() []Sample {
	var out []Sample
	n, _ := r.lib.DeviceGetCount()
	for i := range n {
		if d, ret := r.lib.DeviceGetHandleByIndex(i); ret == nvml.SUCCESS {
			out = append(out, r.sample(i, d))
		}
	}
	return out
}

func (r *nvmlReader) sample(i int, d nvml.Device) Sample {
	s := Sample{Index: i, Throttle: r.throttle(d), Processes: r.processes(d)}
	if v, ret := d.GetClockInfo(nvml.CLOCK_SM); ret == nvml.SUCCESS {
		s.ClockSM = int(v)
	}
	if v, ret := d.GetClockInfo(nvml.CLOCK_MEM); ret == nvml.SUCCESS {
		s.ClockMemory = int(v)
	}
	if v, ret := d.GetTemperature(nvml.TEMPERATURE_GPU); ret == nvml.SUCCESS {
		s.Temperature = int(v)
	}
	if v, ret := d.GetPowerUsage(); ret == nvml.SUCCESS {
		s.PowerW = float64(v) / 1000
	}
	return s
}

func (r *nvmlReader) throttle(d nvml.Device) []string {
	ask := d.GetCurrentClocksThrottleReasons
	if r.has("nvmlDeviceGetCurrentClocksEventReasons") {
		ask = d.GetCurrentClocksEventReasons
	}
	bits, ret := ask()
	if ret != nvml.SUCCESS {
		return nil
	}
	return reasons(bits)
}

// processes lists who has a compute context. Who draws a screen is left out.
func (r *nvmlReader) processes(d nvml.Device) []schema.Holder {
	list, ret := d.GetComputeRunningProcesses()
	if ret != nvml.SUCCESS {
		return nil
	}
	var out []schema.Holder
	for _, p := range list {
		h := schema.Holder{PID: int(p.Pid)}
		if known := p.UsedGpuMemory; known != ^uint64(0) { // NVML_VALUE_NOT_AVAILABLE
			h.Bytes = known
		}
		if name, ret := r.lib.SystemGetProcessName(int(p.Pid)); ret == nvml.SUCCESS {
			h.Name = schema.Clean(name)
		}
		out = append(out, h)
	}
	return out
}
