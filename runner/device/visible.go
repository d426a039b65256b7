package device

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
)

// Visible returns the devices of a report that programs with this environment
// use. Variables of the vendors' libraries hide the others, but protect none.
//
// Sources: CUDA C++ Programming Guide, environment variables; ROCm's guide on
// GPU isolation.
func Visible(r *schema.DeviceReport, environ []string) []schema.Device {
	names := []string(nil)
	switch r.Vendor {
	case NVIDIA:
		names = []string{"CUDA_VISIBLE_DEVICES"}
	case AMD:
		names = []string{"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"} // the second counts what the first leaves
	}
	seen := r.Devices
	for _, name := range names {
		if list, set := schema.LookupEnv(environ, name); set {
			seen = choose(seen, list)
		}
	}
	return seen
}

// choose picks devices by number or by the beginning of a UUID, up to the
// first that does not exist, as CUDA does.
func choose(devices []schema.Device, list string) []schema.Device {
	var out []schema.Device
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		at := slices.IndexFunc(devices, func(d schema.Device) bool {
			return item != "" && strings.HasPrefix(d.UUID, item)
		})
		if n, err := strconv.Atoi(item); err == nil && n >= 0 && n < len(devices) {
			at = n
		}
		if at < 0 {
			break
		}
		out = append(out, devices[at])
	}
	return out
}
