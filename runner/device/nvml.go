//go:build cgo

package device

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// HasNVML reports whether NVML is inside this build.
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

// An nvmlReader asks through NVML. Calling a function that an older driver lacks
// would end this process, so newer ones are looked up first.
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
		a := nvmlDevice{nvmlReader: r, Device: d, index: i}
		switch {
		case a.basic("handle", ret):
			out.Devices = append(out.Devices, a.device())
		case a.fault != "":
			out.Devices = append(out.Devices, schema.Device{Index: i}) // there, and of no use
		default:
			out.Faults = append(out.Faults, fmt.Sprintf("device %d: %s", i, nvml.ErrorString(ret)))
		}
		if a.fault != "" {
			out.Faults = append(out.Faults, deviceFault(i, a.fault))
		}
	}
	return out
}

// An nvmlDevice is one device, and the fault that its answers show so far.
type nvmlDevice struct {
	*nvmlReader
	nvml.Device
	index int
	fault string // "" while it works
}

// ok reports whether there is an answer. A device that is lost or must be reset
// answers every question with that; any other error may mean that it does not
// know the question.
func (a *nvmlDevice) ok(ret nvml.Return) bool {
	if a.fault == "" && (ret == nvml.ERROR_GPU_IS_LOST || ret == nvml.ERROR_RESET_REQUIRED) {
		a.fault = nvml.ErrorString(ret)
	}
	return ret == nvml.SUCCESS
}

// basic is ok for questions that every working device answers.
func (a *nvmlDevice) basic(what string, ret nvml.Return) bool {
	if a.fault == "" && ret == nvml.ERROR_UNKNOWN {
		a.fault = what + ": " + nvml.ErrorString(ret)
	}
	return a.ok(ret)
}

func (a *nvmlDevice) device() schema.Device {
	now := a.sample()
	out := schema.Device{
		Index: a.index, ECC: a.ecc(), ClockSM: now.ClockSM, ClockMemory: now.ClockMemory, Temperature: now.Temperature,
		PowerW: now.PowerW, Throttle: now.Throttle, ProcessBefore: now.Processes,
	}
	if v, ret := a.GetName(); a.ok(ret) {
		out.Name = v
	}
	if v, ret := a.GetUUID(); a.basic("UUID", ret) {
		out.UUID = v
	}
	if v, ret := a.GetPciInfo(); a.ok(ret) {
		out.PCI = fmt.Sprintf("%04x:%02x:%02x.0", v.Domain, v.Bus, v.Device)
	}
	if v, ret := a.GetMinorNumber(); a.ok(ret) {
		out.Node = fmt.Sprintf("/dev/nvidia%d", v)
	}
	if major, minor, ret := a.GetCudaComputeCapability(); a.ok(ret) {
		out.Arch = fmt.Sprintf("%d%d", major, minor)
	}
	if v, ret := a.GetMemoryInfo(); a.basic("memory", ret) {
		out.MemoryBytes = v.Total
	}
	if v, ret := a.GetMaxClockInfo(nvml.CLOCK_SM); a.ok(ret) {
		out.MaxClockSM = int(v)
	}
	if v, ret := a.GetMaxClockInfo(nvml.CLOCK_MEM); a.ok(ret) {
		out.MaxClockMem = int(v)
	}
	if v, ret := a.GetEnforcedPowerLimit(); a.ok(ret) {
		out.PowerLimitW = float64(v) / 1000
	}
	if v, ret := a.GetComputeMode(); a.ok(ret) {
		out.ComputeMode = computeMode(v)
	}
	if v, ret := a.GetPersistenceMode(); a.ok(ret) {
		out.Persistence = enabled(v)
	}
	if v, _, ret := a.GetMigMode(); a.ok(ret) {
		on := v == nvml.DEVICE_MIG_ENABLE
		out.MIG = &on
	}
	return out
}

func (a *nvmlDevice) ecc() *schema.ECC {
	mode, _, ret := a.GetEccMode()
	if !a.ok(ret) {
		return nil // the device has none
	}
	out := &schema.ECC{Enabled: mode == nvml.FEATURE_ENABLED}
	if n, ret := a.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); a.ok(ret) {
		out.Uncorrected = &n
	}
	if a.has("nvmlDeviceGetRemappedRows") {
		if _, _, pending, failed, ret := a.GetRemappedRows(); a.ok(ret) {
			out.RemapPending, out.RemapFailed = &pending, &failed
		}
	}
	if v, ret := a.GetRetiredPagesPendingStatus(); a.ok(ret) {
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
			a := nvmlDevice{nvmlReader: r, Device: d, index: i}
			out = append(out, a.sample())
		}
	}
	return out
}

func (a *nvmlDevice) sample() Sample {
	s := Sample{Index: a.index, Throttle: a.throttle(), Processes: a.processes()}
	if v, ret := a.GetClockInfo(nvml.CLOCK_SM); a.ok(ret) {
		s.ClockSM = int(v)
	}
	if v, ret := a.GetClockInfo(nvml.CLOCK_MEM); a.ok(ret) {
		s.ClockMemory = int(v)
	}
	temperature, heat := a.GetTemperature(nvml.TEMPERATURE_GPU)
	if a.ok(heat) {
		s.Temperature = int(temperature)
	}
	power, ret := a.GetPowerUsage()
	if a.ok(ret) {
		s.PowerW = float64(power) / 1000
	}
	if heat == nvml.ERROR_UNKNOWN { // one of the two is missing on devices that work
		a.basic("temperature and power", ret)
	}
	return s
}

func (a *nvmlDevice) throttle() []string {
	ask := a.GetCurrentClocksThrottleReasons
	if a.has("nvmlDeviceGetCurrentClocksEventReasons") {
		ask = a.GetCurrentClocksEventReasons
	}
	bits, ret := ask()
	if !a.ok(ret) {
		return nil
	}
	return reasons(bits)
}

// processes lists the processes with a compute context, and not those that draw
// a screen.
func (a *nvmlDevice) processes() []schema.Holder {
	list, ret := a.GetComputeRunningProcesses()
	if !a.ok(ret) {
		return nil
	}
	var out []schema.Holder
	for _, p := range list {
		h := schema.Holder{PID: int(p.Pid)}
		if known := p.UsedGpuMemory; known != ^uint64(0) { // NVML_VALUE_NOT_AVAILABLE
			h.Bytes = known
		}
		if name, ret := a.lib.SystemGetProcessName(int(p.Pid)); ret == nvml.SUCCESS {
			h.Name = text.Storable(name)
		}
		out = append(out, h)
	}
	return out
}
