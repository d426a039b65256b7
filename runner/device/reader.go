package device

import (
	"errors"
	"slices"

	"github.com/gpu-mode/kbgen/schema"
)

// ErrNoDriver is a machine, or a build, without NVIDIA's library.
var ErrNoDriver = errors.New("no NVIDIA driver library")

// Vendors as reports name them.
const (
	NVIDIA = "nvidia"
	AMD    = "amd"
	TPU    = "tpu"
)

// Sources as reports name them.
const (
	SourceNVML  = "nvml"
	SourceSMI   = "nvidia-smi"
	SourceSysfs = "sysfs"
	SourceNone  = "none"
)

// A Sample is one device at one moment. What could not be read is zero.
type Sample struct {
	Index       int             `json:"index"`
	ClockSM     int             `json:"clock_mhz"`
	ClockMemory int             `json:"memory_clock_mhz"`
	Temperature int             `json:"temperature_c"`
	PowerW      float64         `json:"power_w"`
	Throttle    []string        `json:"throttle,omitempty"`
	Processes   []schema.Holder `json:"processes,omitempty"`
}

// A reader asks the devices of one vendor.
type reader interface {
	report() *schema.DeviceReport
	samples() []Sample
}

// Reasons why clocks are lower than they could be. The first three are part of
// normal work or of the machine's own settings.
const (
	reasonIdle       = "idle"
	reasonAppClocks  = "application-clocks"
	reasonDisplay    = "display-clocks"
	reasonPowerCap   = "power-cap"
	reasonSyncBoost  = "sync-boost"
	reasonSWThermal  = "thermal"
	reasonHWSlowdown = "hw-slowdown"
	reasonHWThermal  = "hw-thermal"
	reasonPowerBrake = "power-brake"
)

// reasons names NVML's bits of clock event reasons.
//
// Source: nvml.h, nvmlClocksEventReason*.
func reasons(bits uint64) []string {
	var names []string
	for _, r := range []struct {
		bit  uint64
		name string
	}{
		{1, reasonIdle}, {2, reasonAppClocks}, {4, reasonPowerCap}, {8, reasonHWSlowdown}, {16, reasonSyncBoost},
		{32, reasonSWThermal}, {64, reasonHWThermal}, {128, reasonPowerBrake}, {256, reasonDisplay},
	} {
		if bits&r.bit != 0 {
			names = append(names, r.name)
		}
	}
	return names
}

// disturbs reports whether a reason makes a timing the machine's doing rather
// than the program's. A power cap is not among them: every dense kernel meets
// it, on every machine of the kind.
func disturbs(reason string) bool {
	return slices.Contains([]string{reasonSWThermal, reasonHWThermal, reasonHWSlowdown, reasonPowerBrake}, reason)
}

// modeProhibited is the compute mode of a device that takes no program.
const modeProhibited = "prohibited"
