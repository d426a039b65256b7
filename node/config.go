// Package node describes a vendor's machine as kbnode sets it up: its slots, each
// the share of one agent, and where things lie. Its packages do the work:
//
//   - facts reads the machine, plan turns facts and a queue file into what the
//     machine should have, resource compares that with what it has, apply changes it
//   - limits says what a job and its slice may use, disk bounds what it writes,
//     cpulist reads lists of processors
//   - gate, proxy and image stand between a job and the machine
//   - system runs the programs of the machine, docker asks the engine
//   - health says how a slot's devices are, doctor what is wrong and how to mend it
//   - setup carries out plan, apply and adopt
//   - trial starts jobs and containers that prove what a machine promises
//   - status says what slots do now, drain takes them out of use and back, audit
//     records which jobs ran
//   - broker hands out secrets
//   - release checks the programs against a signed release
//
// This package starts nothing and changes nothing.
package node

import (
	"time"
)

// Where kbnode keeps things. Everything but the slots' own directories is root's.
const (
	ConfigPath = "/etc/kbnode/slots.yml"    // a Config; anyone may read it, nothing in it is secret
	TokenPath  = "/etc/kbnode/token"        // the agents' registration token, 0600
	HooksDir   = "/etc/kbnode/hooks"        // the agents' hooks
	PinsPath   = "/var/lib/kbnode/pins.yml" // Pins
	LedgerDir  = "/var/lib/kbnode/ledger"   // what apply found before it changed anything, 0700
	SlotsDir   = "/var/lib/kbnode/slots"    // a directory for each slot; its disk is mounted there
	DisksDir   = "/var/lib/kbnode/disks"    // an image for each slot, see package disk
	PausedDir  = "/var/lib/kbnode/paused"   // a file for each slot that takes no jobs; the reason stands in it
	RunDir     = "/run/kbnode"              // a directory for each slot, with its docker.sock
	ProofsDir  = "/var/lib/kbnode/proofs"   // what kbrun prove said of each GPU; jobs see it
	AuditDir   = "/var/lib/kbnode/audit"    // records of the jobs that ran, see package audit
	UnitDir    = "/etc/systemd/system"
	DaemonJSON = "/etc/docker/daemon.json"
	CDIDir     = "/etc/cdi"
	CDISpec    = CDIDir + "/kbnode-nvidia.yaml" // names NVIDIA's devices if no other spec does
)

// Version is that of the config's format.
const Version = 1

// A Config is what apply leaves behind for everything that runs later: the
// units' programs, doctor, status. It holds no secret.
type Config struct {
	Version  int    `yaml:"version"`
	Node     string `yaml:"node"`               // the queue file's name of the machine
	Vendor   string `yaml:"vendor"`             // who lends it
	Endpoint string `yaml:"endpoint,omitempty"` // of the agent API; empty: Buildkite's
	// The next plan or apply uses these, node and endpoint if no flag says otherwise.
	QueueFile        string `yaml:"queue_file,omitempty"`        // absolute
	VerificationJWKS string `yaml:"verification_jwks,omitempty"` // the keys that steps must be signed with; empty: none
	AllowSmall       bool   `yaml:"allow_small,omitempty"`

	Program string `yaml:"program"` // kbnode itself, "/usr/bin/kbnode"
	Agent   Agent  `yaml:"agent"`
	Docker  Docker `yaml:"docker"`
	// Digests are those that images must have, "sha256:...", by reference as steps
	// write it. AllowTags lets kbnode image pull others by their tags.
	Digests   map[string]string `yaml:"digests,omitempty"`
	AllowTags bool              `yaml:"allow_tags,omitempty"`
	Slots     []*Slot           `yaml:"slots"`
}

// An Agent is the buildkite-agent that the slots run.
type Agent struct {
	Path    string `yaml:"path"`    // "/usr/bin/buildkite-agent"
	Version string `yaml:"version"` // "3.138.0"
}

// A Docker is the engine that the slots' proxies talk to. Zero where no slot
// needs one.
type Docker struct {
	Socket string `yaml:"socket,omitempty"` // "/run/docker.sock"
	CLI    string `yaml:"cli,omitempty"`    // "/usr/bin/docker"
}

// A Slot is one agent's share of a node: a queue, devices, cores, memory.
type Slot struct {
	Name string `yaml:"name"` // "gpu0", "cpu0"; letters and digits
	User string `yaml:"user"` // "kbagent-gpu0", the agent's
	// JobUser runs the slot's containers, in User's group, so that a job can neither
	// read the agent's memory nor signal it. Docker only.
	JobUser string   `yaml:"job_user,omitempty"` // "kbjob-gpu0"
	Queue   string   `yaml:"queue"`
	Tags    []string `yaml:"tags"` // "key=value", the queue first, as queuefile.Agent has them
	GPUType string   `yaml:"gpu_type"`
	// Platform is the row's: docker, where a job is one container, or host, where
	// the agent starts kbrun itself.
	Platform string `yaml:"platform"`

	Devices []Device `yaml:"devices,omitempty"`
	Groups  []int    `yaml:"groups,omitempty"` // numeric groups that a job needs to open them (AMD)

	CPUs        string `yaml:"cpus"`                   // "0-7,64-71", as the kernel writes it
	MemoryNodes string `yaml:"memory_nodes,omitempty"` // "0"; empty: all
	MemoryBytes int64  `yaml:"memory_bytes"`           // of a job
	SliceBytes  int64  `yaml:"slice_bytes"`            // of the slice: a job's and what agent and hooks need
	Pids        int    `yaml:"pids"`                   // processes and threads of a job
	SlicePids   int    `yaml:"slice_pids"`
	DiskBytes   int64  `yaml:"disk_bytes"` // of the file system in Dir

	// Images are the references that a step may name; what runs is the image that
	// Pins has for one of them. Docker only.
	Images []string `yaml:"images,omitempty"`
	// Commands are what a step may run, each whole as the job has it in
	// BUILDKITE_COMMAND. Host only: a container may run anything.
	Commands []string `yaml:"commands,omitempty"`

	Timeout    time.Duration `yaml:"timeout"`     // the longest job
	HealthPort int           `yaml:"health_port"` // of the agent's status page, on loopback
}

// A Device is one GPU, one part of one, or one TPU chip.
type Device struct {
	Vendor string   `yaml:"vendor"`         // "nvidia", "amd" or "google"
	UUID   string   `yaml:"uuid,omitempty"` // NVIDIA's, of the GPU or the MIG instance
	PCI    string   `yaml:"pci,omitempty"`  // "0000:3b:00.0", the way to say it for AMD
	CDI    string   `yaml:"cdi,omitempty"`  // "nvidia.com/gpu=GPU-..."; empty: Nodes are given as they are
	Nodes  []string `yaml:"nodes"`          // device nodes, those that it shares with others as well
}

// Pins say which image runs where a step names a reference. kbnode image writes
// them, the proxies read them at each container.
type Pins struct {
	Version int            `yaml:"version"`
	Images  map[string]Pin `yaml:"images"` // by reference as steps write it
}

// A Pin is the image that a reference stands for on this machine.
type Pin struct {
	ID       string    `yaml:"id"`                 // the engine's image ID, "sha256:..."
	Digest   string    `yaml:"digest,omitempty"`   // the registry's, "name@sha256:..."; empty: loaded by hand
	Previous string    `yaml:"previous,omitempty"` // the ID before, which rollback goes back to
	At       time.Time `yaml:"at"`
	// Held is an ID that rollback went back from: a timer's update leaves it alone.
	Held string `yaml:"held,omitempty"`
	// Old are IDs from before Previous that kbnode pulled and gc is to remove.
	Old []string `yaml:"old,omitempty"`
}

// Dir is the slot's directory, root's, where its disk is mounted.
func (s *Slot) Dir() string { return SlotsDir + "/" + s.Name }

// TempDir is TMPDIR of the slot's agent. A job's directory is a direct child of
// it, "buildkite-job-...", and what its container may mount.
func (s *Slot) TempDir() string { return s.Dir() + "/tmp" }

// UserDirs are the directories in Dir that belong to the slot's user: TempDir, and
// two of the agent's.
func (s *Slot) UserDirs() []string {
	return []string{s.TempDir(), s.Dir() + "/builds", s.Dir() + "/context"}
}

// HasGPU reports whether the slot's devices are GPUs.
func (s *Slot) HasGPU() bool {
	return len(s.Devices) > 0 && (s.Devices[0].Vendor == "nvidia" || s.Devices[0].Vendor == "amd")
}

// Users are the slot's accounts.
func (s *Slot) Users() []string {
	if s.JobUser == "" {
		return []string{s.User}
	}
	return []string{s.User, s.JobUser}
}

// DiskImage holds the file system that is mounted on Dir.
func (s *Slot) DiskImage() string { return DisksDir + "/" + s.Name + ".img" }

// MountUnit mounts DiskImage on Dir.
func (s *Slot) MountUnit() string { return "var-lib-kbnode-slots-" + s.Name + ".mount" }

// Slice is the unit that holds the slot's limits.
func (s *Slot) Slice() string { return "kbnode-" + s.Name + ".slice" }

// CgroupDir is where the kernel has the slice while something is in it.
func (s *Slot) CgroupDir() string { return "/sys/fs/cgroup/kbnode.slice/" + s.Slice() }

// Unit is the agent's.
func (s *Slot) Unit() string { return "kbnode-agent@" + s.Name + ".service" }

// ProxySocket is where the slot's docker socket proxy listens.
func (s *Slot) ProxySocket() string { return RunDir + "/" + s.Name + "/docker.sock" }

// Label is the label, "key=value", of the containers that the slot's proxy makes.
func (s *Slot) Label() string { return SlotLabel + "=" + s.Name }

// AgentConfig is the file that the slot's agent is started with.
func (s *Slot) AgentConfig() string { return "/etc/kbnode/" + s.Name + "/agent.cfg" }

// Paused is the file whose presence keeps the slot from taking jobs.
func (s *Slot) Paused() string { return PausedDir + "/" + s.Name }

// SlotLabel is the key of [Slot.Label].
const SlotLabel = "kbnode.slot"
