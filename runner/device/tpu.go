package device

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
)

// googlePCI is Google's number among PCI vendors.
const googlePCI = "0x1ae0"

// tpuReport lists TPU chips: /dev/accel<n> on older machines, /dev/vfio/<group>
// on newer ones. Nothing else can be read of them without their library.
func tpuReport(root string) *schema.DeviceReport {
	out := &schema.DeviceReport{Source: SourceSysfs, Vendor: TPU}
	nodes, _ := filepath.Glob(filepath.Join(root, "dev/accel[0-9]*"))
	if len(nodes) == 0 && hasTPU(root) {
		nodes, _ = filepath.Glob(filepath.Join(root, "dev/vfio/[0-9]*"))
	}
	// "accel2" before "accel10"
	slices.SortFunc(nodes, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	for i, node := range nodes {
		out.Devices = append(out.Devices, schema.Device{Index: i, Name: "TPU", Node: "/" + strings.TrimPrefix(strings.TrimPrefix(node, root), "/")})
	}
	return out
}

// hasTPU reports whether some PCI device is Google's: a VFIO group alone may be
// anything.
func hasTPU(root string) bool {
	vendors, _ := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*/vendor"))
	return slices.ContainsFunc(vendors, func(file string) bool { return readLine(file) == googlePCI })
}
