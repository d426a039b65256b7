// Package pipelines says what runs where: the table of GPU types, one row
// each. It is data and the rules that data must keep; it knows nothing about
// YAML, plugins or Buildkite's API (package generator does), and it reads no
// environment.
//
// To add a GPU type, add one row to [Fleet] and run
//
//	go test ./generator -update
//
// No other code names a GPU type. What a vendor means is one switch in package
// generator, which fails for a vendor it does not know.
package pipelines

import "time"

// A Vendor says whose devices a job gets. The zero value is no vendor at all
// and is refused; rows without a GPU say [NoGPU].
type Vendor string

const (
	NoGPU  Vendor = "none"
	NVIDIA Vendor = "nvidia"
	AMD    Vendor = "amd"
)

// A Platform says what surrounds the runner on the machine.
type Platform string

const (
	Host   Platform = "host"   // the agent starts kbrun itself
	Docker Platform = "docker" // the docker plugin starts kbrun in a container
)

// An Isolation says who gives a container its devices, CPUs and memory.
type Isolation string

const (
	// Node is a machine set up by kbnode: it adds the devices and limits of
	// the one GPU that the agent owns, and refuses a step that names its own.
	Node Isolation = "node"
	// Step is a machine without kbnode: the step carries the row's limits and
	// asks for every device there is, so the machine must belong to one job
	// at a time ([GPUType.MachineGPUs]).
	Step Isolation = "step"
)

// A GPUType says where jobs for one kind of GPU run and what one job may use.
type GPUType struct {
	Name   string // as submitters write it, "H100_BK"; unique, also without case
	Vendor Vendor
	Arch   string // what nvcc is given after sm_, "90a"; empty unless NVIDIA
	Queue  string // agent queue, "h100"; serves this GPU type only

	GPUs      int // devices one job gets; 0 with NoGPU
	CPUs      int // whole cores one job gets: a promise to submitters
	MemoryGiB int // host memory one job gets, units of 2^30 bytes: a promise too

	Platform  Platform
	Image     string // by digest or pinned tag; empty on the host platform
	Isolation Isolation

	// MachineGPUs is how many devices the machine has. Step isolation only,
	// where it must equal GPUs: a step cannot say which device is free.
	MachineGPUs int
	// DeviceGroups are the numeric group ids that own /dev/kfd and the render
	// nodes on the machine. AMD with Step isolation only; names would be looked
	// up in the image, where they may mean other numbers.
	DeviceGroups []string

	// Timeout bounds one job from start to finish; waiting in the queue is not
	// counted. Whole minutes, since timeout_in_minutes has no fractions. It
	// must leave room for the runner's own limits (two compilations of 120 s
	// and three phases of 180 s by default), so that the runner ends first and
	// writes its result.
	Timeout time.Duration

	// Off, when not empty, is the reason why nothing may be sent there now.
	Off string
}

// A Table is a list of GPU types in the order they are printed.
type Table []GPUType

// Fleet lists every GPU type kbgen can render.
//
// Queues, architectures, CPUs and memory are those of the Buildkite runners in
// gpu-mode/kernelbot (deployment/buildkite); "test" is the queue of its L40S
// machine.
var Fleet = Table{
	{Name: "CPU_BK", Vendor: NoGPU, Queue: "cpu", CPUs: 2, MemoryGiB: 4,
		Platform: Host, Isolation: Node, Timeout: 15 * time.Minute},
	{Name: "H100_BK", Vendor: NVIDIA, Arch: "90a", Queue: "h100", GPUs: 1, CPUs: 8, MemoryGiB: 64,
		Platform: Docker, Image: CUDAImage, Isolation: Node, Timeout: 15 * time.Minute},
	{Name: "B200_BK", Vendor: NVIDIA, Arch: "100", Queue: "b200", GPUs: 1, CPUs: 8, MemoryGiB: 64,
		Platform: Docker, Image: CUDAImage, Isolation: Node, Timeout: 15 * time.Minute},
	{Name: "L40S_BK", Vendor: NVIDIA, Arch: "89", Queue: "test", GPUs: 1, CPUs: 8, MemoryGiB: 64,
		Platform: Docker, Image: CUDAImage, Isolation: Node, Timeout: 15 * time.Minute},
	{Name: "MI300_BK", Vendor: AMD, Queue: "mi300", GPUs: 1, CPUs: 8, MemoryGiB: 64,
		Platform: Docker, Image: ROCmImage, Isolation: Node, Timeout: 20 * time.Minute}, // first compilation is slow
}
