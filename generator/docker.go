package generator

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/gpu-mode/kbgen/pipelines"
)

// dockerSource pins the docker plugin. Before v5.12.0 a failed image pull ends
// with exit status 0: a green job without a result.
const dockerSource = "docker#v5.13.0"

// docker holds the settings of the docker plugin that kbgen writes, in printed
// order. What is not here is never written. Above all: privileged, pid, ipc,
// userns, runtime, volumes, propagate-environment, the expand-*-vars family,
// chown, and anything null, which makes the plugin drop settings at random.
//
// init stays at the plugin's default (on): docker's init reaps what a
// submission leaves behind and hands SIGTERM on. The labels that a node finds
// leftovers by stay on as well.
type docker struct {
	Image string `yaml:"image"`
	// SkipCheckout gives the job a fresh directory at /workdir instead of a
	// checkout that later jobs on the agent would share.
	SkipCheckout bool `yaml:"skip-checkout"`
	// MountAgent would put the job's access token into the container. False is
	// the plugin's default, written down because it must not change.
	MountAgent bool `yaml:"mount-buildkite-agent"`
	// PropagateUIDGID runs kbrun as the agent's user, the only one who can
	// write the fresh directory. Never written as false, which also enables it.
	PropagateUIDGID bool `yaml:"propagate-uid-gid"`
	// TTY off: docker refuses -t under agents without a pseudo-terminal.
	TTY          bool     `yaml:"tty"`
	Network      string   `yaml:"network"`
	ShmSize      string   `yaml:"shm-size"`
	Environment  []string `yaml:"environment"` // names only; values would end up in the uploaded pipeline
	Ulimits      []string `yaml:"ulimits"`
	DropCaps     []string `yaml:"drop-caps"`
	SecurityOpts []string `yaml:"security-opts"`
	Tmpfs        []string `yaml:"tmpfs"`

	// With step isolation only. Written on a node set up by kbnode they would
	// beat the node's own choice.
	GPUs             string   `yaml:"gpus,omitempty"`
	Devices          []string `yaml:"devices,omitempty"`
	AdditionalGroups []string `yaml:"additional-groups,omitempty"`
	CPUs             string   `yaml:"cpus,omitempty"`
	Memory           string   `yaml:"memory,omitempty"`
	MemorySwap       string   `yaml:"memory-swap,omitempty"`
}

// dockerConfig says how the container for one evaluation on g is started.
func dockerConfig(g pipelines.GPUType, r Request) (docker, error) {
	config := docker{
		Image:           cmp.Or(r.Image, g.Image),
		SkipCheckout:    true,
		PropagateUIDGID: true,
		Network:         "none", // the payload comes by environment, the result leaves by file
		ShmSize:         "8g",   // docker's 64 MiB is too small for torch's data loaders
		Environment:     environment(r.PayloadChunks),
		Ulimits:         []string{"memlock=-1", "core=0"}, // pinned host memory; no core dumps of submissions
		DropCaps:        []string{"ALL"},
		SecurityOpts:    []string{"no-new-privileges"},
		// exec, because docker mounts a tmpfs noexec and extensions are
		// compiled there and loaded from there.
		Tmpfs: []string{"/tmp:exec,size=8g,mode=1777"},
	}
	if g.Isolation == pipelines.Step {
		config.CPUs = strconv.Itoa(g.CPUs)
		config.Memory = fmt.Sprintf("%dg", g.MemoryGiB)
		config.MemorySwap = config.Memory // the same number: no swap on top
	}
	if err := addDevices(&config, g); err != nil {
		return docker{}, err
	}
	return config, nil
}

// addDevices is the only place that knows what a vendor means. With node
// isolation the node adds its devices, whoever made them.
func addDevices(config *docker, g pipelines.GPUType) error {
	step := g.Isolation == pipelines.Step
	switch g.Vendor {
	case pipelines.NoGPU:
	case pipelines.NVIDIA:
		if step {
			// Right only because the row says that the machine has no more
			// GPUs than the job gets; a number would always mean GPU 0.
			config.GPUs = "all"
		}
	case pipelines.AMD:
		if step {
			config.Devices = []string{"/dev/kfd", "/dev/dri"}
			config.AdditionalGroups = g.DeviceGroups
		}
	default:
		return fmt.Errorf("vendor %q: kbgen does not know its devices", g.Vendor)
	}
	return nil
}

// environment lists the variables a container gets, by name. A name that the
// job does not have is taken out of the image's environment, so carriers of
// the payload that a build does not use do no harm.
func environment(payloadChunks int) []string {
	names := []string{"KERNELBOT_RUN_ID", "KERNELBOT_GPU", "KERNELBOT_QUEUE", "KERNELBOT_MODE", "KERNELBOT_DEADLINE"}
	if payloadChunks == 0 {
		// The second is what older launchers call it.
		return append(names, "KERNELBOT_PAYLOAD", "SUBMISSION_PAYLOAD")
	}
	names = append(names, "KERNELBOT_PAYLOAD_CHUNKS", "KERNELBOT_PAYLOAD_SHA256")
	for i := range payloadChunks {
		names = append(names, fmt.Sprintf("KERNELBOT_PAYLOAD_%d", i))
	}
	return names
}
