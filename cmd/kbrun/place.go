package main

import (
	"strings"

	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/schema"
)

// deviceFlags say what the machine must have.
type deviceFlags struct {
	GPUVendor      string `name:"gpu-vendor" var:"KERNELBOT_GPU_VENDOR" enum:",none,nvidia,amd,google" default:"" placeholder:"NAME" help:"nvidia, amd or google: do not start without such a device; none: start whatever state the machine's devices are in; by default any will do, but not a broken or a busy one"`
	GPUCount       int    `name:"gpu-count" var:"KERNELBOT_GPU_COUNT" placeholder:"N" help:"the number of devices; default 1"`
	GPUName        string `name:"gpu-name" var:"KERNELBOT_GPU_NAME" placeholder:"NAMES" help:"the name that the driver must give each device: patterns with | between, where * is any text, as in 'NVIDIA A100-*|NVIDIA A100 *'"`
	GPUArch        string `name:"gpu-arch" var:"KERNELBOT_GPU_ARCH" placeholder:"NAME" help:"the architecture of the devices, as 90 or gfx942"`
	GPUMemoryGiB   int    `name:"gpu-memory-gib" var:"KERNELBOT_GPU_MEMORY_GIB" placeholder:"N" help:"the least memory of each device"`
	AllowSharedGPU bool   `name:"allow-shared-gpu" help:"start although another process uses the GPU, and do not call times ambiguous because of it"`
}

func (f *deviceFlags) requirements(gpuType string) device.Requirements {
	q := device.Requirements{
		Vendor: f.GPUVendor, Count: f.GPUCount, Shared: f.AllowSharedGPU, GPUType: gpuType,
		Type: schema.DeviceType{Arch: f.GPUArch, MemoryGiB: f.GPUMemoryGiB},
	}
	if q.Vendor == "google" {
		q.Vendor = device.TPU
	}
	for name := range strings.SplitSeq(f.GPUName, schema.GPUNameSeparator) {
		if name = strings.TrimSpace(name); name != "" {
			q.Type.Names = append(q.Type.Names, name)
		}
	}
	return q
}

// placeFlags say which row of the table the job runs for.
type placeFlags struct {
	GPUType string `name:"gpu-type" var:"KERNELBOT_STEP_GPU" placeholder:"NAME" help:"the GPU type for the result; default KERNELBOT_GPU. A build whose KERNELBOT_GPU names another type ends with 75"`
	Queue   string `var:"KERNELBOT_STEP_QUEUE" placeholder:"NAME" help:"the queue for the result; default KERNELBOT_QUEUE, else GPU_QUEUE. A build that names another queue ends with 75"`
}
