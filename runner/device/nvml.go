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
	devices, faults := r.devices()
	out.Faults = append(out.Faults, faults...)
	for i := range devices {
		a := &devices[i]
		if a.Device == nil { // there, and of no use
			out.Devices = append(out.Devices, schema.Device{Index: a.index})
		} else {
			out.Devices = append(out.Devices, a.device())
		}
		if a.fault != "" {
			out.Faults = append(out.Faults, deviceFault(a.index, a.fault))
		}
	}
	return out
}

// devices lists the machine's GPUs, and in place of one that is split (MIG) its
// parts, which are what programs get. One that cannot be asked has no Device and
// a fault; what is no device of this machine is in faults only.
func (r *nvmlReader) devices() (all []nvmlDevice, faults []string) {
	n, ret := r.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		faults = append(faults, "counting devices: "+nvml.ErrorString(ret))
	}
	more := 0 // parts beyond one for each GPU
	for i := range n {
		d, ret := r.lib.DeviceGetHandleByIndex(i)
		a := nvmlDevice{nvmlReader: r, Device: d, index: i + more}
		switch {
		case a.basic("handle", ret):
			parts := a.parts()
			if len(parts) == 0 {
				all = append(all, a)
				break
			}
			for k, part := range parts {
				all = append(all, nvmlDevice{nvmlReader: r, Device: d, part: part, index: a.index + k})
			}
			more += len(parts) - 1
		case a.fault != "":
			a.Device = nil
			all = append(all, a)
		default:
			faults = append(faults, fmt.Sprintf("device %d: %s", i, nvml.ErrorString(ret)))
		}
	}
	return all, faults
}

// An nvmlDevice is one device, and the fault that its answers show so far.
type nvmlDevice struct {
	*nvmlReader
	nvml.Device             // the GPU
	part        nvml.Device // what programs get of it; nil: all
	index       int
	fault       string // "" while it works
}

// self is what programs get: it has a name, memory and processes of its own.
func (a *nvmlDevice) self() nvml.Device {
	if a.part != nil {
		return a.part
	}
	return a.Device
}

// parts lists what a GPU is split into; nil when it is not, or shows none.
func (a *nvmlDevice) parts() []nvml.Device {
	if mode, _, ret := a.GetMigMode(); ret != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE || !a.has("nvmlDeviceGetMigDeviceHandleByIndex") {
		return nil
	}
	n, ret := a.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil
	}
	var parts []nvml.Device
	for i := range n {
		if part, ret := a.GetMigDeviceHandleByIndex(i); ret == nvml.SUCCESS {
			parts = append(parts, part)
		}
	}
	return parts
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

// value returns a function that is the answer, or zero where there is none.
func value[T any](a *nvmlDevice) func(answer T, ret nvml.Return) T {
	return func(answer T, ret nvml.Return) (v T) {
		if a.ok(ret) {
			v = answer
		}
		return v
	}
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
	out.Name = text.Storable(value[string](a)(a.self().GetName()))
	if v, ret := a.self().GetUUID(); a.basic("UUID", ret) {
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
	if v, ret := a.self().GetMemoryInfo(); a.basic("memory", ret) {
		out.MemoryBytes = v.Total
	}
	out.MaxClockSM = int(value[uint32](a)(a.GetMaxClockInfo(nvml.CLOCK_SM)))
	out.MaxClockMem = int(value[uint32](a)(a.GetMaxClockInfo(nvml.CLOCK_MEM)))
	out.PowerLimitW = float64(value[uint32](a)(a.GetEnforcedPowerLimit())) / 1000
	if v, ret := a.GetComputeMode(); a.ok(ret) {
		out.ComputeMode = computeMode(v)
	}
	if v, ret := a.GetPersistenceMode(); a.ok(ret) {
		out.Persistence = new(v == nvml.FEATURE_ENABLED)
	}
	if v, _, ret := a.GetMigMode(); a.ok(ret) {
		out.MIG = new(v == nvml.DEVICE_MIG_ENABLE)
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
		out.RetirePending = new(v == nvml.FEATURE_ENABLED)
	}
	return out
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
	devices, _ := r.devices()
	for i := range devices {
		if a := &devices[i]; a.Device != nil {
			out = append(out, a.sample())
		}
	}
	return out
}

func (a *nvmlDevice) sample() Sample {
	s := Sample{Index: a.index, Throttle: a.throttle(), Processes: a.processes()}
	s.ClockSM = int(value[uint32](a)(a.GetClockInfo(nvml.CLOCK_SM)))
	s.ClockMemory = int(value[uint32](a)(a.GetClockInfo(nvml.CLOCK_MEM)))
	temperature, heat := a.GetTemperature(nvml.TEMPERATURE_GPU)
	s.Temperature = int(value[uint32](a)(temperature, heat))
	power, ret := a.GetPowerUsage()
	s.PowerW = float64(value[uint32](a)(power, ret)) / 1000
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
// a screen. A driver that may not or cannot tell is believed; one that fails
// leaves a device that may be in use.
func (a *nvmlDevice) processes() []schema.Holder {
	list, ret := a.self().GetComputeRunningProcesses()
	if !a.ok(ret) {
		if a.fault == "" && ret != nvml.ERROR_NOT_SUPPORTED && ret != nvml.ERROR_NO_PERMISSION {
			a.fault = "who uses it: " + nvml.ErrorString(ret)
		}
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
