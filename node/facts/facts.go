// Package facts reads what a vendor's machine is: processors, memory, GPUs, docker,
// systemd, the agent, and what was set up on it before. It changes nothing, wants
// no privilege, and knows nothing of slots and queue files.
package facts

// Facts are what [Read] found. Lists are in the machine's order, so that the
// same machine gives the same text.
type Facts struct {
	Hostname     string       `json:"hostname"`
	Distribution Distribution `json:"distribution"`
	Kernel       string       `json:"kernel"`
	Arch         string       `json:"arch"`    // as uname -m says it, "x86_64"
	Systemd      int          `json:"systemd"` // 257; 0: none, or it does not answer
	Cgroup       Cgroup       `json:"cgroup"`

	CPUs        []CPU      `json:"cpus"`
	NUMANodes   []NUMANode `json:"numa_nodes"`
	MemoryBytes int64      `json:"memory_bytes"`
	SwapBytes   int64      `json:"swap_bytes"`
	Disks       []Disk     `json:"disks"`

	GPUs   []GPU    `json:"gpus"`
	Common []string `json:"common_nodes"` // device nodes that all of NVIDIA's GPUs share
	Driver string   `json:"nvidia_driver,omitempty"`
	// Libraries are those of NVIDIA's driver that programs in a container need, and
	// nvidia-smi, as absolute paths.
	Libraries []string  `json:"nvidia_libraries"`
	CDI       []CDISpec `json:"cdi"`

	Docker *Docker `json:"docker"` // nil: no docker on PATH
	Agent  *Agent  `json:"agent"`  // nil: no buildkite-agent on PATH
	// Tools are the programs that kbnode may need, by name; those that are missing
	// are not in it.
	Tools map[string]string `json:"tools"`

	NameServers []string `json:"name_servers"` // addresses in /etc/resolv.conf

	Units []string `json:"kbnode_units"` // files of kbnode's units that are there
	Seeds []string `json:"seeds"`        // what Kernelbot's older scripts left: units, slices, settings, hooks
	// Unread says what could not be read and why, one line each.
	Unread []string `json:"unread"`
}

// A Distribution is what /etc/os-release says.
type Distribution struct {
	ID      string   `json:"id"`      // "debian"
	Version string   `json:"version"` // "13"
	Like    []string `json:"like"`    // "rhel", "fedora"
}

// A Cgroup is the hierarchy that units live in.
type Cgroup struct {
	Version     int      `json:"version"` // 2, 1, or 0 where there is none
	Controllers []string `json:"controllers"`
}

// A CPU is one logical processor.
type CPU struct {
	ID     int  `json:"id"`
	Core   int  `json:"core"` // the lowest ID among its siblings, itself included
	Socket int  `json:"socket"`
	Node   int  `json:"numa_node"`
	Online bool `json:"online"`
}

// A NUMANode is one with memory or processors.
type NUMANode struct {
	ID          int   `json:"id"`
	MemoryBytes int64 `json:"memory_bytes"`
}

// A Disk is the file system that a directory is on.
type Disk struct {
	Path      string `json:"path"`
	FreeBytes int64  `json:"free_bytes"`
}

// Makers of GPUs, as the table of GPU types calls them.
const (
	NVIDIA = "nvidia"
	AMD    = "amd"
	Google = "google"
)

// A GPU is a device that jobs can use: a GPU, a partition of one of AMD's, a TPU
// chip. What NVIDIA makes of one GPU with MIG are its instances.
type GPU struct {
	Vendor string `json:"vendor"`
	Index  int    `json:"index"` // among the vendor's; NVIDIA's by PCI address, as nvidia-smi counts
	Name   string `json:"name,omitempty"`
	UUID   string `json:"uuid,omitempty"` // AMD's is the same for all partitions of a card
	PCI    string `json:"pci,omitempty"`  // "0000:3b:00.0"; a partition's function is its number
	Minor  int    `json:"minor"`          // of its device node, which is not the index
	Node   int    `json:"numa_node"`      // -1: not known
	// Nodes are its own device nodes.
	Nodes     []string   `json:"nodes"`
	Groups    []int      `json:"groups,omitempty"` // numeric groups of the nodes that not everybody may open (AMD)
	MIG       bool       `json:"mig,omitempty"`    // in MIG mode: the whole GPU is of no use to jobs
	Instances []Instance `json:"instances,omitempty"`
}

// An Instance is one compute instance of a GPU in MIG mode.
type Instance struct {
	UUID    string   `json:"uuid,omitempty"` // empty: nvidia-smi did not say
	Profile string   `json:"profile,omitempty"`
	GPU     int      `json:"gpu_instance"`
	Compute int      `json:"compute_instance"`
	Nodes   []string `json:"nodes"` // its two capabilities; the GPU's own nodes are needed as well
}

// A Docker is the engine, and the CLI that kbnode verify calls.
type Docker struct {
	CLI          string   `json:"cli"`
	Version      string   `json:"version,omitempty"` // of the engine; empty: it does not answer
	Socket       string   `json:"socket,omitempty"`
	CgroupDriver string   `json:"cgroup_driver,omitempty"`
	CDIDirs      []string `json:"cdi_dirs"` // empty: CDI is off, or the engine has none
	LiveRestore  bool     `json:"live_restore"`
	Root         string   `json:"root,omitempty"` // where images and containers are
	Running      int      `json:"running"`        // containers
	DaemonJSON   string   `json:"daemon_json,omitempty"`
}

// A CDISpec is one file of CDI devices.
type CDISpec struct {
	Path    string   `json:"path"`
	Kind    string   `json:"kind"`
	Devices []string `json:"devices"`
}

// An Agent is the buildkite-agent that was found.
type Agent struct {
	Path    string `json:"path"`
	Version string `json:"version"` // "3.138.0"
}
