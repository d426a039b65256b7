// Package health says whether the devices of a slot are fit for a job: there, the
// ones that the slot was made for, in order, and nobody else's.
//
// It asks drivers and changes nothing. What becomes of a slot whose device is not
// fit is the caller's matter.
package health

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/limits"
	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/schema"
)

// Codes of what is wrong with a slot's devices. They are stable.
const (
	CodeNodeMissing  = "device-node-missing"  // the driver made no device node
	CodeDriver       = "driver-broken"        // the driver does not answer
	CodeDeviceGone   = "device-gone"          // the driver does not know the device any more
	CodeDeviceFault  = "device-fault"         // memory errors, a compute mode that takes no programs
	CodeDeviceBusy   = "device-busy"          // somebody else uses it
	CodeOwnDenied    = "device-denied"        // the slot's slice does not let its own device through
	CodeOthersOpened = "foreign-device-opens" // the slot's slice lets another device through
)

// A Fault is why a slot must not get a job.
type Fault struct {
	Code string
	Text string // one line
}

func (f *Fault) Error() string { return f.Text }

func fault(code, format string, args ...any) *Fault {
	return &Fault{code, fmt.Sprintf(format, args...)}
}

// Check asks the driver for the slot's devices. It returns nil, or the first
// *[Fault]. A slot without devices is always fit.
//
// The machine's Vendor and OneShot are set here. What a driver still lists of a
// process that was just killed is waited for, up to the machine's Settle.
func Check(ctx context.Context, slot *node.Slot, m device.Machine) error {
	for _, name := range limits.Nodes(slot) {
		switch info, err := os.Stat(filepath.Join(m.Root, name)); {
		case errors.Is(err, fs.ErrNotExist):
			return fault(CodeNodeMissing, "%s: there is no %s", slot.Name, name)
		case err == nil && m.Root == "/" && info.Mode()&fs.ModeCharDevice == 0: // some tool's redirection made it
			return fault(CodeNodeMissing, "%s: %s is a file and no device node", slot.Name, name)
		}
	}
	if len(slot.Devices) == 0 {
		return nil
	}
	m.Vendor, m.OneShot = slot.Devices[0].Vendor, true
	for until := time.Now().Add(m.Settle); ; {
		err := once(ctx, slot, m)
		var f *Fault
		if !errors.As(err, &f) || f.Code != CodeDeviceBusy || time.Now().After(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// once asks the driver one time.
func once(ctx context.Context, slot *node.Slot, m device.Machine) error {
	watch := device.Probe(ctx, m)
	defer watch.Close()
	report := watch.Report()
	var own []schema.Device
	for _, want := range slot.Devices {
		found, ok := find(report, want)
		switch {
		case !ok && len(report.Devices) == 0:
			return fault(CodeDriver, "%s: the driver shows no device, want %s", slot.Name, strings.TrimSuffix(name(want)+": "+strings.Join(report.Faults, "; "), ": "))
		case !ok:
			return fault(CodeDeviceGone, "%s: the driver shows %d devices, and %s is none of them", slot.Name, len(report.Devices), name(want))
		}
		own = append(own, found)
	}
	switch outcome, text := (device.Requirements{Vendor: m.Vendor, Count: len(own)}).Check(report, own); outcome {
	case "":
		return nil
	case schema.OutcomeGPUBusy:
		return fault(CodeDeviceBusy, "%s: %s", slot.Name, text)
	default:
		return fault(CodeDeviceFault, "%s: %s", slot.Name, text)
	}
}

// name is what people know the device by.
func name(d node.Device) string {
	switch {
	case d.UUID != "":
		return d.UUID
	case d.PCI != "":
		return d.PCI
	}
	return strings.Join(d.Nodes, " ")
}

// find looks for the slot's device in the report. A MIG instance that the driver's
// tool does not list by itself is fit when the tool lists any: its GPU is not known
// here.
func find(r *schema.DeviceReport, want node.Device) (schema.Device, bool) {
	for _, d := range r.Devices {
		switch {
		case want.UUID != "" && strings.EqualFold(d.UUID, want.UUID):
			return d, true
		case want.UUID == "" && want.PCI != "" && strings.EqualFold(d.PCI, want.PCI):
			return d, true
		case want.UUID == "" && slices.Contains(want.Nodes, d.Node):
			return d, true
		}
	}
	if strings.HasPrefix(want.UUID, "MIG-") && len(r.Devices) > 0 && r.Source != device.SourceNVML {
		return schema.Device{UUID: want.UUID, Index: -1}, true
	}
	return schema.Device{}, false
}

// Confined tries from inside a slot's slice whether the slot's devices can be
// opened and those of other slots cannot. The calling process must be in the
// slice. It returns nil or the first *[Fault].
//
// The device cgroup answers before the driver does: EPERM is its refusal, and
// anything else means that it let the call through.
func Confined(root string, slot *node.Slot, others []*node.Slot) error {
	nodes := limits.Nodes(slot)
	for _, n := range nodes {
		if err := open(root, n); errors.Is(err, unix.EPERM) {
			return fault(CodeOwnDenied, "%s: its slice does not let %s through", slot.Name, n)
		}
	}
	for _, other := range others {
		for _, n := range limits.Nodes(other) {
			if slices.Contains(nodes, n) || slices.Contains(shared, n) {
				continue
			}
			if err := open(root, n); !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOENT) {
				return fault(CodeOthersOpened, "%s: its slice lets %s through, which is %s's", slot.Name, n, other.Name)
			}
		}
	}
	return nil
}

// shared are device nodes that serve all devices of a vendor.
var shared = []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset", "/dev/kfd", "/dev/vfio/vfio"}

// open opens a device node and closes it again. It does not wait for a device
// that is in use.
func open(root, name string) error {
	fd, err := unix.Open(filepath.Join(root, name), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}
