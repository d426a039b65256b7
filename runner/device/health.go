package device

import (
	"fmt"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
)

// A Demand is what a job needs of a machine's devices before it starts.
type Demand struct {
	Vendor string // NVIDIA, AMD, TPU; "" makes no demand
	Count  int    // at least so many; 0 means one when a vendor is named
	// Shared takes devices that somebody else uses too.
	Shared bool
}

// Check says why a job must not start on these devices of a report: an
// outcome's name and one line. "" means that it may.
func (d Demand) Check(r *schema.DeviceReport, devices []schema.Device) (outcome, text string) {
	if d.Vendor != "" && (len(devices) < max(1, d.Count) || r.Vendor != d.Vendor) {
		return schema.OutcomeGPUMissing, d.missing(r, len(devices))
	}
	if r.Vendor == NVIDIA && r.Source != SourceNone && len(r.Devices) == 0 && len(r.Faults) > 0 {
		return schema.OutcomeGPUUnhealthy, "NVIDIA's driver is there and does not work: " + strings.Join(r.Faults, "; ")
	}
	for _, dev := range devices {
		if fault := unhealthy(dev); fault != "" {
			return schema.OutcomeGPUUnhealthy, fmt.Sprintf("device %d (%s) %s", dev.Index, nameOf(dev), fault)
		}
	}
	for _, dev := range devices {
		if len(dev.ProcessBefore) > 0 && !d.Shared {
			h := dev.ProcessBefore[0]
			return schema.OutcomeGPUBusy, fmt.Sprintf("device %d (%s) is used by %d processes, first %d %s", dev.Index, nameOf(dev), len(dev.ProcessBefore), h.PID, h.Name)
		}
	}
	return "", ""
}

func (d Demand) missing(r *schema.DeviceReport, count int) string {
	shown := "no device"
	if count > 0 {
		shown = fmt.Sprintf("%d of %s", count, r.Vendor)
	}
	text := fmt.Sprintf("the machine shows %s, want at least %d of %s", shown, max(1, d.Count), d.Vendor)
	if len(r.Faults) > 0 {
		text += ": " + strings.Join(r.Faults, "; ")
	}
	return text
}

func nameOf(d schema.Device) string {
	if d.UUID != "" {
		return d.UUID
	}
	return d.Node
}

// unhealthy says what keeps a device from giving right answers or fair times.
func unhealthy(d schema.Device) string {
	is := func(b *bool) bool { return b != nil && *b }
	if e := d.ECC; e != nil {
		switch {
		case is(e.RemapFailed):
			return "could not replace broken memory rows: it must be retired"
		case is(e.RemapPending), is(e.RetirePending):
			return "has broken memory to replace: it must be reset"
		}
	}
	if d.ComputeMode == modeProhibited {
		return "takes no programs: its compute mode is prohibited"
	}
	for _, reason := range d.Throttle {
		if reason == reasonHWThermal || reason == reasonPowerBrake {
			return "is slowed down before any work (" + reason + ")"
		}
	}
	return ""
}
