package generator

import (
	"errors"
	"fmt"

	"github.com/gpu-mode/kbgen/pipelines"
)

// What a vendor means stands in this file, one switch for each platform. With
// node isolation the node or the cluster adds the devices, whoever made them.

// addDevices names a container's devices where the step has to.
func addDevices(n *node, g pipelines.GPUType) error {
	step := g.Isolation == pipelines.Step
	switch g.Vendor {
	case pipelines.NoGPU:
	case pipelines.NVIDIA:
		if step {
			// Right only because the row says that the machine has no more
			// GPUs than the job gets; a number would always mean GPU 0.
			n.set("gpus", str("all"))
		}
	case pipelines.AMD:
		if step {
			n.set("devices", strs([]string{"/dev/kfd", "/dev/dri"}))
			n.set("additional-groups", strs(g.DeviceGroups))
		}
	case pipelines.Google:
		if step {
			return errors.New("the device nodes of a TPU differ between its generations: only node isolation can name them")
		}
	default:
		return unknownVendor(g)
	}
	return nil
}

// vendorEnv is what a container for this vendor's devices needs to know.
func vendorEnv(g pipelines.GPUType) []pipelines.Var {
	if g.Vendor == pipelines.Google {
		// There is no metadata service behind network none, and libtpu would
		// wait for it.
		return []pipelines.Var{{Name: "TPU_SKIP_MDS_QUERY", Value: "1"}}
	}
	return nil
}

// resourceName is what a vendor's device plugin calls its devices.
func resourceName(g pipelines.GPUType) (string, error) {
	switch g.Vendor {
	case pipelines.NoGPU:
		return "", nil
	case pipelines.NVIDIA:
		if g.Slice != "" {
			return "nvidia.com/mig-" + g.Slice, nil
		}
		return "nvidia.com/gpu", nil
	case pipelines.AMD:
		return "amd.com/gpu", nil
	case pipelines.Google:
		return "google.com/tpu", nil
	}
	return "", unknownVendor(g)
}

func unknownVendor(g pipelines.GPUType) error {
	return fmt.Errorf("vendor %q: kbgen does not know its devices", g.Vendor)
}
