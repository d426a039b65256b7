package pipelines

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// fault is the finding that a field of a row holds what it must not.
func fault(row, field string, got any, want string) *schema.Finding {
	return &schema.Finding{Path: "GPU type " + row + ": " + field, Got: fmt.Sprintf("%#v", got), Want: want}
}

// Limits of a job's timeout. A shorter one would leave no time beside starting
// a container. A longer one than Buildkite's smallest plan allows would be cut
// there without a word.
const (
	minTimeout = 5 * time.Minute
	maxTimeout = 4 * time.Hour
)

// Lengths of names, in bytes.
const (
	maxName = 60
	// maxQueue keeps a step key made from a queue within Buildkite's 100, which
	// is the limit of a queue as well.
	maxQueue = 80
	maxClass = 63 // of a Kubernetes label

	maxDeviceName  = 80 // NVML's own buffer has 96
	maxDeviceNames = 8
)

// maxDeviceMemory refuses memory in other units than GiB.
const maxDeviceMemory = 2048

// fits reports whether value has a form and n bytes at most.
func fits(value string, form func(string) bool, n int) bool {
	return len(value) <= n && form(value)
}

// Validate returns every fault of the table, joined; each is a [schema.Finding].
func (t Table) Validate() error {
	var faults []error
	names, queues := map[string]string{}, map[string]string{}
	for i, g := range t {
		row := g.Name
		row = cmp.Or(row, fmt.Sprintf("number %d", i+1))
		faults = append(faults, g.Validate())
		if other, taken := names[strings.ToLower(g.Name)]; taken {
			faults = append(faults, fault(row, "Name", g.Name, "a name of its own, not that of "+other))
		}
		if other, taken := queues[g.Queue]; taken {
			faults = append(faults, fault(row, "Queue", g.Queue, "a queue of its own, not that of "+other))
		}
		names[strings.ToLower(g.Name)], queues[g.Queue] = row, row
	}
	return errors.Join(faults...)
}

// Validate returns every fault of one row, joined; each is a [schema.Finding].
func (g GPUType) Validate() error {
	f := &faults{row: g.Name}
	f.check(fits(g.Name, isName, maxName), "Name", g.Name, "capitals, digits and _, as in H100_BK, and x before a count, as in MI300x8")
	f.check(fits(g.Queue, isQueue, maxQueue), "Queue", g.Queue, "letters, digits, - and _, at most 80")
	f.check(g.CPUs >= 1, "CPUs", g.CPUs, "at least 1")
	f.check(g.MemoryGiB >= 1, "MemoryGiB", g.MemoryGiB, "at least 1")
	f.check(g.ShmGiB >= 0 && g.ShmGiB <= g.MemoryGiB, "ShmGiB", g.ShmGiB, fmt.Sprintf("0 to MemoryGiB (%d): it is part of the memory", g.MemoryGiB))
	f.check(g.ShmGiB == 0 || g.Platform == Docker || g.Platform == Kubernetes && g.Isolation == Step, "ShmGiB", g.ShmGiB,
		"0 unless in docker, or on Kubernetes with step isolation")
	f.check(slices.Contains([]string{"", "none", "partial", "full"}, g.Sandbox), "Sandbox", g.Sandbox, "none, partial, full or nothing")
	f.check(g.Timeout >= minTimeout && g.Timeout <= maxTimeout && g.Timeout%time.Minute == 0,
		"Timeout", g.Timeout.String(), "whole minutes, 5 to 240")
	g.checkVendor(f)
	g.checkDevice(f)
	g.checkPlatform(f)
	g.checkIsolation(f)
	g.checkPod(f)
	return errors.Join(f.list...)
}

func (g GPUType) checkVendor(f *faults) {
	f.check(g.Slice == "" || g.Vendor == NVIDIA && g.GPUs == 1 && isSlice(g.Slice), "Slice", g.Slice,
		"a MIG profile, as in 1g.10gb, with one NVIDIA GPU; else nothing")
	switch g.Vendor {
	case NoGPU:
		f.check(g.GPUs == 0, "GPUs", g.GPUs, "0 where there is no GPU")
		f.check(g.Arch == "", "Arch", g.Arch, "nothing where there is no GPU")
		return
	case NVIDIA:
		f.check(isArch(g.Arch), "Arch", g.Arch, "a compute capability without its point, as in 90a")
	case AMD:
		f.check(g.Arch == "", "Arch", g.Arch, "nothing: HIP builds ask the device")
	case Google:
		f.check(g.Arch == "", "Arch", g.Arch, "nothing: there is no nvcc for a TPU")
	default:
		f.check(false, "Vendor", g.Vendor, fmt.Sprintf("one of %q", []Vendor{NoGPU, NVIDIA, AMD, Google}))
	}
	f.check(g.GPUs >= 1, "GPUs", g.GPUs, "at least 1")
}

// checkDevice wants to be told how a device is known: what is left out would
// let any machine judge.
func (g GPUType) checkDevice(f *faults) {
	d := g.Device
	if g.Vendor == NoGPU {
		f.check(d.Any(), "Device", d, "nothing where there is no GPU")
		return
	}
	f.check(len(d.Names) >= 1 && len(d.Names) <= maxDeviceNames, "Device.Names", d.Names, fmt.Sprintf("1 to %d names", maxDeviceNames))
	for _, name := range d.Names {
		f.check(fits(name, isDeviceName, maxDeviceName), "Device.Names", name,
			"a name as the driver tells it, as in NVIDIA L40S: a letter first, then letters, digits, spaces and ()./+-, and * for any text")
		_, part, _ := strings.Cut(strings.ToLower(name), " mig ")
		f.check(part == g.Slice, "Device.Names", name, fmt.Sprintf("MIG and the slice %q behind the GPU's name, or neither without a slice", g.Slice))
	}
	switch g.Vendor {
	case NVIDIA:
		want := strings.TrimRight(g.Arch, smalls)
		f.check(d.Arch == want, "Device.Arch", d.Arch, fmt.Sprintf("%q, the compute capability that Arch (%s) is for", want, g.Arch))
	case AMD:
		f.check(isGfx(d.Arch), "Device.Arch", d.Arch, "the GPU's target, as in gfx942")
	case Google:
		f.check(d.Arch == "", "Device.Arch", d.Arch, "nothing: a TPU does not tell")
	}
	if g.Slice != "" || g.Vendor == Google {
		f.check(d.MemoryGiB == 0, "Device.MemoryGiB", d.MemoryGiB, "0: a slice's name says it, and a TPU does not tell")
		return
	}
	f.check(d.MemoryGiB >= 1 && d.MemoryGiB <= maxDeviceMemory, "Device.MemoryGiB", d.MemoryGiB, fmt.Sprintf("1 to %d, the least that the driver may tell", maxDeviceMemory))
}

func (g GPUType) checkPlatform(f *faults) {
	switch g.Platform {
	case Host:
		f.check(g.Image == "", "Image", g.Image, "nothing on the host platform")
	case Docker, Kubernetes:
		if err := CheckImage(g.Image); err != nil {
			f.list = append(f.list, fmt.Errorf("GPU type %s: Image: %w", f.row, err))
		}
	default:
		f.check(false, "Platform", g.Platform, fmt.Sprintf("one of %q", []Platform{Host, Docker, Kubernetes}))
	}
	if g.Platform == Kubernetes && g.Isolation == Node {
		f.check(fits(g.ResourceClass, isClass, maxClass), "ResourceClass", g.ResourceClass, "the name of a resource class: small letters, digits and -")
	} else {
		f.check(g.ResourceClass == "", "ResourceClass", g.ResourceClass, "nothing unless on Kubernetes with node isolation")
	}
}

// checkPod wants what a cluster takes. The text stands in a patch of the pod.
func (g GPUType) checkPod(f *faults) {
	p := g.Pod
	if g.Platform != Kubernetes || g.Isolation != Step {
		f.check(len(p.NodeSelector) == 0 && len(p.Tolerations) == 0 && p.RuntimeClass == "", "Pod", p,
			"nothing unless on Kubernetes with step isolation")
		return
	}
	for _, label := range p.NodeSelector {
		f.check(isLabelKey(label.Name) && isLabelValue(label.Value), "Pod.NodeSelector", label, "labels of nodes, as in nvidia.com/gpu.product")
	}
	for _, t := range p.Tolerations {
		f.check(isLabelKey(t.Key) && isLabelValue(t.Value), "Pod.Tolerations", t, "taints of nodes, as in nvidia.com/gpu")
		f.check(slices.Contains([]string{"", "NoSchedule", "PreferNoSchedule", "NoExecute"}, t.Effect), "Pod.Tolerations", t.Effect,
			"NoSchedule, PreferNoSchedule, NoExecute or nothing")
	}
	f.check(p.RuntimeClass == "" || fits(p.RuntimeClass, isClass, maxClass), "Pod.RuntimeClass", p.RuntimeClass,
		"the name of a runtime class: small letters, digits and -")
}

func (g GPUType) checkIsolation(f *faults) {
	amdStep := g.Isolation == Step && g.Vendor == AMD && g.Platform == Docker
	switch g.Isolation {
	case Node:
		f.check(g.MachineGPUs == 0, "MachineGPUs", g.MachineGPUs, "0 with node isolation: the node knows")
	case Step:
		f.check(g.Platform != Host, "Isolation", g.Isolation, "node on the host platform, where a step can limit nothing")
		if g.Platform == Kubernetes {
			f.check(g.MachineGPUs == 0, "MachineGPUs", g.MachineGPUs, "0 on Kubernetes: the device plugin allots devices")
			break
		}
		f.check(g.Slice == "", "Slice", g.Slice, "nothing with step isolation: only the node knows its slices")
		f.check(g.MachineGPUs == g.GPUs, "MachineGPUs", g.MachineGPUs,
			fmt.Sprintf("GPUs (%d): a step gets every device of its machine", g.GPUs))
	default:
		f.check(false, "Isolation", g.Isolation, fmt.Sprintf("one of %q", []Isolation{Node, Step}))
	}
	f.check(amdStep == (len(g.DeviceGroups) > 0), "DeviceGroups", g.DeviceGroups,
		"group ids with AMD in docker and step isolation, else nothing")
	for _, id := range g.DeviceGroups {
		f.check(made(id, digits) && len(id) <= 10, "DeviceGroups", id, "a numeric group id")
	}
}

// CheckImage refuses an image reference that may mean another image tomorrow:
// it wants a tag other than "latest", or a sha256 digest.
//
// Errors: [ErrImage].
func CheckImage(ref string) error {
	if !isPinned(ref) {
		return &imageError{ref, "is not pinned, want registry/name with a tag other than latest, or a sha256 digest"}
	}
	return nil
}

// faults gathers what is wrong with one row.
type faults struct {
	row  string
	list []error
}

func (f *faults) check(ok bool, field string, got any, want string) {
	if !ok {
		f.list = append(f.list, fault(f.row, field, got, want))
	}
}
