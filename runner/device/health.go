package device

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
)

// None as the vendor of [Requirements]: the job needs no device, whatever state
// those of the machine are in.
const None = "none"

// Requirements are what a job needs of a machine's devices before it starts.
type Requirements struct {
	Vendor string // NVIDIA, AMD, TPU; None; "" takes any device, or no device
	Count  int    // at least so many; 0 means one when a vendor is named

	// Type is what every device that the job would see must be; GPUType is what
	// people call it, "H100_BK", for the words of a refusal. A type makes at
	// least one device needed, as a vendor does.
	Type    schema.DeviceType
	GPUType string

	// Shared takes devices that somebody else uses too.
	Shared bool
}

// Named reports whether devices of some vendor or type are needed.
func (q Requirements) Named() bool { return q.Vendor != None && (q.Vendor != "" || !q.Type.Any()) }

// Check says why a job must not start on these devices of a report: an
// outcome's name and one line. "" means that it may. A driver lists a killed
// process for a moment longer, so a busy device should be probed again before it
// is refused for good: see [Watch.Settle].
func (q Requirements) Check(r *schema.DeviceReport, devices []schema.Device) (outcome, text string) {
	if q.Vendor == None {
		return "", ""
	}
	if driverBroken(r) && (q.Vendor == "" || q.Vendor == NVIDIA) {
		return schema.OutcomeGPUUnhealthy, "NVIDIA's driver is there and does not work: " + strings.Join(r.Faults, "; ")
	}
	if q.Named() && len(devices) > 0 && q.Vendor != "" && r.Vendor != q.Vendor {
		return schema.OutcomeWrongMachine, q.missing(r, len(devices))
	}
	if q.Named() && len(devices) < max(1, q.Count) {
		return schema.OutcomeGPUMissing, q.missing(r, len(devices))
	}
	for _, dev := range devices {
		if fault := unhealthy(r, dev); fault != "" {
			return schema.OutcomeGPUUnhealthy, label(dev) + " " + fault
		}
	}
	for _, dev := range devices {
		if why := q.Type.Mismatch(dev); why != "" {
			wanted := "what the job is for"
			if q.GPUType != "" {
				wanted = "of GPU type " + q.GPUType
			}
			return schema.OutcomeWrongMachine, fmt.Sprintf("%s is not %s: %s", label(dev), wanted, why)
		}
	}
	for _, dev := range devices {
		if len(dev.ProcessBefore) > 0 && !q.Shared {
			h := dev.ProcessBefore[0]
			return schema.OutcomeGPUBusy, fmt.Sprintf("%s is used by %d processes, first %d %s", label(dev), len(dev.ProcessBefore), h.PID, h.Name)
		}
	}
	return "", ""
}

// driverBroken reports whether NVIDIA's driver is loaded and does not answer, or
// whether its tool did not: who waits for an answer does not know what is there.
func driverBroken(r *schema.DeviceReport) bool {
	return r.Vendor == NVIDIA && r.Source != SourceNone && len(r.Devices) == 0 && len(r.Faults) > 0
}

func (q Requirements) missing(r *schema.DeviceReport, count int) string {
	shown := "no device"
	if count > 0 {
		shown = fmt.Sprintf("%d of %s", count, r.Vendor)
	}
	text := fmt.Sprintf("the machine shows %s, want at least %d", shown, max(1, q.Count))
	if q.Vendor != "" {
		text += " of " + q.Vendor
	}
	if count == 0 && q.Vendor != "" {
		text += "; a step names no device, the machine gives it one: kbnode sets that up"
	}
	if len(r.Faults) > 0 {
		text += ": " + strings.Join(r.Faults, "; ")
	}
	return text
}

// label is "device 0 (GPU-…)", with what else is known when it has no UUID.
func label(d schema.Device) string {
	if name := cmp.Or(d.UUID, d.Node, d.PCI); name != "" {
		return fmt.Sprintf("device %d (%s)", d.Index, name)
	}
	return fmt.Sprintf("device %d", d.Index)
}

// deviceFault is a report's fault about a device that no longer answers. A
// report has no other field for it, so [unhealthy] finds it by its beginning.
func deviceFault(index int, words string) string {
	return fmt.Sprintf("device %d %s%s", index, doesNotWork, words)
}

const doesNotWork = "does not work: "

// lost says that a device of a report no longer answers; "" when it does.
func lost(r *schema.DeviceReport, d schema.Device) string {
	for _, fault := range r.Faults {
		if words, ok := strings.CutPrefix(fault, deviceFault(d.Index, "")); ok {
			return doesNotWork + words
		}
	}
	return ""
}

// unhealthy says what keeps a device of a report from giving right answers or
// fair times.
func unhealthy(r *schema.DeviceReport, d schema.Device) string {
	if words := lost(r, d); words != "" {
		return words
	}
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
