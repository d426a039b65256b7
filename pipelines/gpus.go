// Package pipelines says what runs where. It is data, and the rules that the
// data must keep:
//
//   - [Fleet], the table of GPU types, one row each
//   - [Kinds] of steps, one function each, which turns a row into a
//     [CommandStep]
//   - [Pipelines], which put kinds on rows
//   - [NewRequest], which reads what a build asks for
//
// It knows nothing of YAML, plugins or Buildkite's API; package generator does.
// It reads no environment: whoever calls it brings a lookup function.
//
// A new GPU type is one row of [Fleet] and one run of make golden. No other code
// names a GPU type. What a vendor means is one switch in package generator,
// which fails for a vendor that it does not know. CONTRIBUTING.md has the steps.
package pipelines

import (
	"cmp"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// A Vendor says whose devices a job gets. The zero value is no vendor at all
// and is refused; rows without a GPU say [NoGPU].
type Vendor string

const (
	NoGPU  Vendor = "none"
	NVIDIA Vendor = "nvidia"
	AMD    Vendor = "amd"
	Google Vendor = "google" // TPU
)

// A Platform says what surrounds the runner on the machine.
type Platform string

const (
	Host       Platform = "host"       // the agent starts kbrun itself
	Docker     Platform = "docker"     // the docker plugin starts kbrun in a container
	Kubernetes Platform = "kubernetes" // the agent runs in the pod of the job, one pod each
)

// An Isolation says who gives a container its devices, CPUs and memory.
type Isolation string

const (
	// Node is a machine set up by kbnode: it adds the devices and limits of
	// the one GPU that the agent owns, and refuses a step that names its own.
	// On Kubernetes it is the cluster: a resource class holds them.
	Node Isolation = "node"
	// Step is a machine without kbnode: the step carries the row's limits and
	// asks for every device there is, so the machine must belong to one job
	// at a time ([GPUType.MachineGPUs]). On Kubernetes the step patches its
	// own pod (podSpecPatch).
	Step Isolation = "step"
)

// A GPUType says where jobs for one kind of GPU run and what one job may use.
type GPUType struct {
	Name   string // as submitters write it, "H100_BK"; unique, also without case
	Vendor Vendor
	Arch   string // what nvcc is given after sm_, "90a"; empty unless NVIDIA
	Queue  string // agent queue, "h100"; serves this GPU type only

	// Device says how each device that a job gets is known. kbrun refuses any
	// other, and one that does not tell. Nothing with NoGPU.
	Device schema.DeviceType

	GPUs      int    // devices one job gets; 0 with NoGPU; 1 with a slice
	Slice     string // part of one NVIDIA GPU, as MIG names it, "1g.10gb"; empty: whole GPUs
	CPUs      int    // whole cores one job gets: a promise to submitters
	MemoryGiB int    // host memory one job gets, units of 2^30 bytes: a promise too
	ShmGiB    int    // /dev/shm of a container, units of 2^30 bytes; 0 means [DefaultShmGiB]; part of MemoryGiB

	Platform  Platform
	Image     string // by digest or pinned tag; empty on the host platform
	Isolation Isolation

	// ResourceClass names what the cluster's owner set aside for one job: the
	// GPU, CPUs, memory, node selector. Kubernetes with Node isolation only.
	ResourceClass string

	// Pod says where on a cluster the pod of a job goes, and how it is run.
	// Kubernetes with Step isolation only: else the resource class says it.
	Pod Pod

	// MachineGPUs is how many devices the machine has. Docker with Step
	// isolation only, where it must equal GPUs: a step cannot say which device
	// is free.
	MachineGPUs int
	// DeviceGroups are the numeric group ids that own /dev/kfd and the render
	// nodes on the machine. AMD in docker with Step isolation only; names would
	// be looked up in the image, where they may mean other numbers.
	DeviceGroups []string

	// Timeout bounds one job from start to finish; waiting in the queue is not
	// counted. Whole minutes, since timeout_in_minutes has no fractions. A
	// build that says how long its payload may legally take gets less, never
	// more ([StepTimeout]).
	Timeout time.Duration

	// Sandbox is the least that kbrun must be able to build around a submission
	// there: "none", "partial" or "full"; empty means partial. A machine that
	// cannot ends the job as its own fault.
	Sandbox string

	// Off, when not empty, is the reason why nothing may be sent there now.
	Off string
}

// LeastSandbox is the row's Sandbox, or what a row without one means.
func (g GPUType) LeastSandbox() string { return cmp.Or(g.Sandbox, schema.SandboxPartial) }

// A Pod is what a step on Kubernetes asks of the cluster beside devices, CPUs
// and memory. The zero value asks for nothing.
type Pod struct {
	NodeSelector []Var        // labels that the node has, in printed order
	Tolerations  []Toleration // taints of nodes that are kept for such jobs
	RuntimeClass string       // "nvidia" where that is not the default
}

// A Toleration lets a pod onto nodes with a taint.
type Toleration struct {
	Key    string // "nvidia.com/gpu"
	Value  string // empty: whatever the taint's is
	Effect string // NoSchedule, PreferNoSchedule or NoExecute; empty: any
}

// DefaultShmGiB is the /dev/shm of a container whose row does not say:
// docker's 64 MiB is too small for torch's data loaders.
const DefaultShmGiB = 8

// A Table is a list of GPU types in the order they are printed.
type Table []GPUType

// unlent is why a row is off that no vendor serves yet.
const unlent = "no vendor serves this queue yet"

// Devices that several rows have. Names are those that drivers tell; the least
// memory leaves room for what error correction and firmware keep.
var (
	// SXM, PCIe and NVL boards; not GH200, H200, H20, H800.
	h100 = schema.DeviceType{Names: []string{"NVIDIA H100 *"}, Arch: "90", MemoryGiB: 75}
	l4   = schema.DeviceType{Names: []string{"NVIDIA L4"}, Arch: "89", MemoryGiB: 21}
	// MI300A, MI308X and MI325X have the same architecture.
	mi300x = schema.DeviceType{Names: []string{"AMD Instinct MI300X", "AMD Instinct MI300X *"}, Arch: "gfx942", MemoryGiB: 180}
)

// Fleet lists every GPU type kbgen can render.
//
// Queues, architectures, CPUs and memory of the rows ending in _BK are those
// of the Buildkite runners in gpu-mode/kernelbot (deployment/buildkite);
// "test" is the queue of its L40S machine. The other names and architectures
// are Kernelbot's own (src/libkernelbot/consts.py).
var Fleet = Table{
	{Name: "CPU_BK", Vendor: NoGPU, Queue: "cpu", CPUs: 2, MemoryGiB: 4,
		Platform: Host, Isolation: Node, Timeout: 15 * time.Minute},
	{Name: "H100_BK", Vendor: NVIDIA, Arch: "90a", Queue: "h100", GPUs: 1, CPUs: 8, MemoryGiB: 64,
		Device:   h100,
		Platform: Docker, Image: CUDAImage, Isolation: Node, Timeout: 15 * time.Minute},
	{Name: "B200_BK", Vendor: NVIDIA, Arch: "100", Queue: "b200", GPUs: 1, CPUs: 8, MemoryGiB: 64,
		Device:   schema.DeviceType{Names: []string{"NVIDIA B200", "NVIDIA B200 *"}, Arch: "100", MemoryGiB: 170},
		Platform: Docker, Image: CUDAImage, Isolation: Node, Timeout: 15 * time.Minute},
	{Name: "L40S_BK", Vendor: NVIDIA, Arch: "89", Queue: "test", GPUs: 1, CPUs: 8, MemoryGiB: 64,
		Device:   schema.DeviceType{Names: []string{"NVIDIA L40S"}, Arch: "89", MemoryGiB: 44},
		Platform: Docker, Image: CUDAImage, Isolation: Node, Timeout: 15 * time.Minute},
	{Name: "MI300_BK", Vendor: AMD, Queue: "mi300", GPUs: 1, CPUs: 8, MemoryGiB: 64,
		Device:   mi300x,
		Platform: Docker, Image: ROCmImage, Isolation: Node, Timeout: 20 * time.Minute}, // first compilation is slow

	{Name: "A100", Vendor: NVIDIA, Arch: "80", Queue: "a100", GPUs: 1, CPUs: 8, MemoryGiB: 64,
		Device:   schema.DeviceType{Names: []string{"NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"}, Arch: "80", MemoryGiB: 75},
		Platform: Docker, Image: CUDAImage, Isolation: Node, Timeout: 60 * time.Minute, Off: unlent},
	{Name: "L4", Vendor: NVIDIA, Arch: "89", Queue: "l4", GPUs: 1, CPUs: 8, MemoryGiB: 32,
		Device:   l4,
		Platform: Docker, Image: CUDAImage, Isolation: Node, Timeout: 60 * time.Minute, Off: unlent},
	{Name: "L4x4", Vendor: NVIDIA, Arch: "89", Queue: "l4x4", GPUs: 4, CPUs: 32, MemoryGiB: 128, ShmGiB: 32,
		Device:   l4,
		Platform: Docker, Image: CUDAImage, Isolation: Node, Timeout: 60 * time.Minute, Off: unlent},
	{Name: "T4", Vendor: NVIDIA, Arch: "75", Queue: "t4", GPUs: 1, CPUs: 4, MemoryGiB: 16,
		Device:   schema.DeviceType{Names: []string{"Tesla T4", "NVIDIA T4"}, Arch: "75", MemoryGiB: 14},
		Platform: Docker, Image: CUDAImage, Isolation: Node, Timeout: 60 * time.Minute, Off: unlent},
	{Name: "H100_1G10GB", Vendor: NVIDIA, Arch: "90a", Queue: "h100-1g10gb", GPUs: 1, Slice: "1g.10gb", CPUs: 4, MemoryGiB: 16,
		Device:   schema.DeviceType{Names: []string{"NVIDIA H100 * MIG 1g.10gb"}, Arch: "90"},
		Platform: Docker, Image: CUDAImage, Isolation: Node, Timeout: 30 * time.Minute, Off: unlent},
	{Name: "H100x8", Vendor: NVIDIA, Arch: "90a", Queue: "h100x8", GPUs: 8, CPUs: 96, MemoryGiB: 1024, ShmGiB: 64,
		Device:   h100,
		Platform: Docker, Image: CUDAImage, Isolation: Step, MachineGPUs: 8, Timeout: 60 * time.Minute, Off: unlent},
	{Name: "MI250", Vendor: AMD, Queue: "mi250", GPUs: 1, CPUs: 8, MemoryGiB: 64,
		Device:   schema.DeviceType{Names: []string{"AMD Instinct MI250", "AMD Instinct MI250 *", "AMD Instinct MI250X / MI250"}, Arch: "gfx90a", MemoryGiB: 60},
		Platform: Docker, Image: ROCmImage, Isolation: Node, Timeout: 60 * time.Minute, Off: unlent},
	{Name: "MI300x8", Vendor: AMD, Queue: "mi300x8", GPUs: 8, CPUs: 96, MemoryGiB: 1024, ShmGiB: 64,
		Device:   mi300x,
		Platform: Docker, Image: ROCmImage, Isolation: Step, MachineGPUs: 8, DeviceGroups: []string{"44", "992"},
		Timeout: 60 * time.Minute, Off: unlent},
	{Name: "MI355X", Vendor: AMD, Queue: "mi355x", GPUs: 1, CPUs: 14, MemoryGiB: 340,
		Device:   schema.DeviceType{Names: []string{"AMD Instinct MI355X", "AMD Instinct MI355X *"}, Arch: "gfx950", MemoryGiB: 280},
		Platform: Kubernetes, Image: ROCmImage, Isolation: Node, ResourceClass: "gpu-mi355x", Timeout: 60 * time.Minute, Off: unlent},
	{Name: "GOOGLE_TPU", Vendor: Google, Queue: "google-tpu", GPUs: 1, CPUs: 24, MemoryGiB: 48, ShmGiB: 16,
		Device:   schema.DeviceType{Names: []string{"TPU"}},
		Platform: Docker, Image: TPUImage, Isolation: Node, Timeout: 60 * time.Minute, Off: unlent},
}

// ServiceQueues serve the machines that no submission is judged on, in the form of
// rows. They are no GPU types: nobody can ask for one.
var ServiceQueues = Table{
	{Name: "BOOTSTRAP", Vendor: NoGPU, Queue: "bootstrap", CPUs: 1, MemoryGiB: 1,
		Platform: Host, Isolation: Node, Timeout: 5 * time.Minute},
	{Name: "IMAGES", Vendor: NoGPU, Queue: "images", CPUs: 4, MemoryGiB: 16,
		Platform: Host, Isolation: Node, Timeout: 120 * time.Minute},
}
