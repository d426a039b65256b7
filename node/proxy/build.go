package proxy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/limits"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// build makes the container's settings from the slot's and, where a step has a
// say, from what was asked.
//
// Errors: one line for a job's log, which names the option and what is allowed.
func (p *Proxy) build(a *asked) (*given, error) {
	if err := a.forbidden(); err != nil {
		return nil, err
	}
	image, err := p.pinned(a.Image)
	if err != nil {
		return nil, err
	}
	g := &given{
		Image: image, User: fmt.Sprintf("%d:%d", p.JobUID, p.GID),
		Entrypoint: a.Entrypoint, Cmd: a.Cmd, Env: environment(a.Env), Labels: p.labels(a.Labels),
		AttachStdin: a.AttachStdin, AttachStdout: a.AttachStdout, AttachStderr: a.AttachStderr,
		Tty: a.Tty, OpenStdin: a.OpenStdin, StdinOnce: a.StdinOnce,
		StopSignal: a.StopSignal, StopTimeout: a.StopTimeout,
		Healthcheck: healthcheck{Test: []string{"NONE"}},
		HostConfig:  p.limits(),
	}
	h, asks := &g.HostConfig, &a.HostConfig
	h.AutoRemove, h.Init = asks.AutoRemove, asks.Init
	h.ShmSize = min(max(asks.ShmSize, 0), p.Slot.MemoryBytes)
	if h.Ulimits, err = ulimits(asks.Ulimits); err != nil {
		return nil, err
	}
	if h.Tmpfs, err = tmpfs(asks.Tmpfs, p.Slot.MemoryBytes); err != nil {
		return nil, err
	}
	if h.Mounts, err = p.mounts(asks); err != nil {
		return nil, err
	}
	if p.Proofs != "" {
		h.Mounts = append(h.Mounts, mount{Type: "bind", Source: p.Proofs, Target: schema.ProofDir, ReadOnly: true})
	}
	if a.WorkingDir != "" {
		if err := target(a.WorkingDir); err != nil {
			return nil, fmt.Errorf("workdir %s: %v", text.Quote(a.WorkingDir), err)
		}
		g.WorkingDir = a.WorkingDir
	}
	return g, nil
}

// limits are the settings that are the slot's alone.
func (p *Proxy) limits() givenHost {
	return givenHost{
		Container:      limits.NewContainer(p.Slot),
		ReadonlyRootfs: true, CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
		NetworkMode: "none", IpcMode: "private", CgroupnsMode: "private",
		LogConfig: logConfig{Type: "none"}, RestartPolicy: restartPolicy{Name: "no"},
	}
}

// forbidden returns the first thing that no step of ours says.
func (a *asked) forbidden() error {
	h := &a.HostConfig
	for _, rule := range []struct {
		broken bool
		option string
		why    string
	}{
		{h.Privileged, "--privileged", "a container has no privileges"},
		{!slices.Contains([]string{"", "private"}, h.PidMode), "--pid " + text.Quote(h.PidMode), "a container has a pid namespace of its own"},
		{!slices.Contains([]string{"", "private", "shareable", "none"}, h.IpcMode), "--ipc " + text.Quote(h.IpcMode), "a container has an ipc namespace of its own"},
		{!slices.Contains([]string{"", "private"}, h.UTSMode), "--uts " + text.Quote(h.UTSMode), "a container has a uts namespace of its own"},
		{h.UsernsMode != "", "--userns " + text.Quote(h.UsernsMode), "the node decides that"},
		{!slices.Contains([]string{"", "private"}, h.CgroupnsMode), "--cgroupns " + text.Quote(h.CgroupnsMode), "a container has a cgroup namespace of its own"},
		{!slices.Contains([]string{"", "none", "default"}, h.NetworkMode), "--network " + text.Quote(h.NetworkMode), "want none"},
		{len(h.PortBindings) > 0 || h.PublishAllPorts, "--publish", "there is no network"},
		{len(h.DeviceRequests) > 0, "--gpus", "a container gets the slot's devices"},
		{len(h.Devices) > 0, "--device", "a container gets the slot's devices"},
		{len(h.DeviceCgroupRules) > 0, "--device-cgroup-rule", "a container gets the slot's devices"},
		{len(h.GroupAdd) > 0, "--group-add", "a container gets the groups of the slot's devices"},
		{len(h.CapAdd) > 0, "--cap-add", "a container has no capabilities"},
		{h.MaskedPaths != nil || h.ReadonlyPaths != nil, "--security-opt systempaths", "want no-new-privileges"},
		{h.Runtime != "", "--runtime " + text.Quote(h.Runtime), "the node decides that"},
		{h.CgroupParent != "" || h.Cgroup != "", "--cgroup-parent", "a container runs in the slot's slice"},
		{len(h.Sysctls) > 0, "--sysctl", "the node decides that"},
		{len(h.StorageOpt) > 0, "--storage-opt", "the node decides that"},
		{len(h.VolumesFrom) > 0, "--volumes-from", "want only the job's directory"},
		{len(a.Volumes) > 0, "--volume without a directory", "want only the job's directory"},
		{len(h.Links) > 0, "--link", "there is no network"},
		{!slices.Contains([]string{"", "no"}, h.RestartPolicy.Name), "--restart", "want no"},
	} {
		if rule.broken {
			return fmt.Errorf("%s: not allowed here: %s", rule.option, rule.why)
		}
	}
	for _, option := range h.SecurityOpt {
		if !slices.Contains([]string{"no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"}, option) {
			return fmt.Errorf("--security-opt %s: not allowed here: want no-new-privileges", text.Quote(option))
		}
	}
	if a.StopTimeout != nil && (*a.StopTimeout < 0 || *a.StopTimeout > 300) {
		return fmt.Errorf("--stop-timeout %d: want 0 to 300 seconds", *a.StopTimeout)
	}
	return nil
}

// environment keeps the variables that a step of ours passes. A name without a
// value takes the variable out of the image's environment.
func environment(asks []string) []string {
	// Said to NVIDIA's and AMD's own runtimes where one of them is the engine's
	// default: images ask them for all devices by these names.
	out := []string{"NVIDIA_VISIBLE_DEVICES=void", "AMD_VISIBLE_DEVICES=void"}
	for _, entry := range asks {
		name, _, _ := strings.Cut(entry, "=")
		if Passes(name) {
			out = append(out, entry)
		}
	}
	return out
}

var ours = regexp.MustCompile("^" + schema.EnvPrefix + "[A-Z0-9_]+$")

// Passes reports whether a variable of a job's goes into its container.
func Passes(name string) bool {
	return ours.MatchString(name) ||
		slices.Contains([]string{schema.EnvOldPayload, schema.EnvOldQueue, "TPU_SKIP_MDS_QUERY"}, name)
}

// label is one that the docker plugin gives a container. The pipeline's author may
// choose its value.
func (g *given) label(name string) string { return text.Line(g.Labels["com.buildkite."+name], 200) }

// labels keeps those by which the docker plugin finds its containers.
func (p *Proxy) labels(asks map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range asks {
		if strings.HasPrefix(key, "com.buildkite.") {
			out[key] = value
		}
	}
	out[node.SlotLabel] = p.Slot.Name
	return out
}

// asked is what is looked at in the body of a create. A setting that is not here
// is dropped, whatever it is.
type asked struct {
	Image      string
	Entrypoint []string
	Cmd        []string
	Env        []string
	Labels     map[string]string
	WorkingDir string

	AttachStdin, AttachStdout, AttachStderr bool
	Tty, OpenStdin, StdinOnce               bool

	StopSignal  string
	StopTimeout *int

	Volumes    map[string]any
	HostConfig askedHost
}

type askedHost struct {
	// What a step has a say in.
	Binds      []string
	Mounts     []askedMount
	Tmpfs      map[string]string
	ShmSize    int64
	Ulimits    []ulimit
	AutoRemove bool
	Init       *bool

	// What is refused unless it is as it is here anyway.
	NetworkMode, PidMode, IpcMode, UTSMode, UsernsMode, CgroupnsMode, Cgroup string

	Privileged        bool
	PublishAllPorts   bool
	PortBindings      map[string]any
	CapAdd            []string
	SecurityOpt       []string
	MaskedPaths       []string
	ReadonlyPaths     []string
	Devices           []any
	DeviceCgroupRules []string
	DeviceRequests    []any
	GroupAdd          []string
	VolumesFrom       []string
	Links             []string
	Sysctls           map[string]string
	StorageOpt        map[string]string
	Runtime           string
	CgroupParent      string
	RestartPolicy     struct{ Name string }
}

type askedMount struct {
	Type, Source, Target string
	ReadOnly             bool
}

// given is what the engine gets: all of it, so that a new setting of a new engine
// cannot slip through.
type given struct {
	Image      string
	User       string
	Entrypoint []string `json:",omitempty"`
	Cmd        []string `json:",omitempty"`
	Env        []string
	Labels     map[string]string
	WorkingDir string `json:",omitempty"`

	AttachStdin, AttachStdout, AttachStderr bool
	Tty, OpenStdin, StdinOnce               bool

	StopSignal  string `json:",omitempty"`
	StopTimeout *int   `json:",omitempty"`

	Healthcheck healthcheck
	HostConfig  givenHost
}

// healthcheck turns an image's own off: it would run beside what is measured.
type healthcheck struct{ Test []string }

type givenHost struct {
	limits.Container

	Privileged     bool
	ReadonlyRootfs bool
	CapDrop        []string
	SecurityOpt    []string
	NetworkMode    string
	IpcMode        string
	CgroupnsMode   string
	LogConfig      logConfig
	RestartPolicy  restartPolicy

	Mounts     []mount           `json:",omitempty"`
	Tmpfs      map[string]string `json:",omitempty"`
	ShmSize    int64             `json:",omitempty"`
	Ulimits    []ulimit          `json:",omitempty"`
	AutoRemove bool
	Init       *bool `json:",omitempty"`
}

type ulimit struct {
	Name       string
	Soft, Hard int64
}

type mount struct {
	Type, Source, Target string
	ReadOnly             bool `json:",omitempty"`
}

type logConfig struct{ Type string }

type restartPolicy struct{ Name string }
