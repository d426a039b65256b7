package proxy

import "github.com/gpu-mode/kbgen/node/limits"

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

type mount struct{ Type, Source, Target string }

type logConfig struct{ Type string }

type restartPolicy struct{ Name string }
