package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
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

var (
	gpuTypeForm = regexp.MustCompile(`^[A-Za-z0-9_]{1,60}$`)
	queueForm   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)
)

// place returns the GPU type and the queue that the job runs for, each "" when
// nobody says, and why that is not what its build asks for; "" when it is.
//
// A step made for one build says it in the build's own variables. One that serves
// every build has names of its own for it, and the build's variables say what its
// launcher wants: a build for another type has come to the wrong queue.
func (f *placeFlags) place(env *cli.Env) (gpuType, queue, wrong string) {
	wantGPU := env.Getenv(schema.EnvGPU)
	wantQueue := cmp.Or(env.Getenv(schema.EnvQueue), env.Getenv(schema.EnvOldQueue))
	gpuType, queue = formed(cmp.Or(f.GPUType, wantGPU), gpuTypeForm), formed(cmp.Or(f.Queue, wantQueue), queueForm)
	switch {
	case f.GPUType != "" && wantGPU != "" && !among(wantGPU, f.GPUType):
		wrong = fmt.Sprintf("the build asks for GPU type %.60q, and its step serves %.60q", wantGPU, f.GPUType)
	case f.Queue != "" && wantQueue != "" && wantQueue != f.Queue:
		wrong = fmt.Sprintf("the build asks for queue %.80q, and its step serves %.80q", wantQueue, f.Queue)
	}
	return gpuType, queue, wrong
}

// formed is a value that has the form, else "": a list of types is no type.
func formed(value string, form *regexp.Regexp) string {
	if !form.MatchString(value) {
		return ""
	}
	return value
}

// among reports whether a list with commas names the type. Types are found
// without case.
func among(list, name string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(one), name) {
			return true
		}
	}
	return false
}
