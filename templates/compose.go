package templates

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema/text"
)

// A Compose is a node's agents in containers, as docker compose reads them: one
// service for each slot. An agent takes one job and ends; whoever starts it anew
// (see [AgentUnit]) makes a new container.
//
// The agent is root without root's capabilities, but for those that hand the job
// to another user and end it. The job is that user: it can read neither the
// token's file nor the agent's memory. Nothing is writable but memory.
type Compose struct {
	Node   string // as its agents' names begin
	Agents []ContainerAgent

	CDI    bool   // devices by name of the Container Device Interface; else by NVIDIA's own driver
	Token  string // file with the registration token, of root and mode 0600
	Hooks  string // directory with the agent's hooks, of root
	Broker string // socket of the node's broker of secrets; empty: none
	// BrokerGroup is the number of the group that may use it.
	BrokerGroup int
	Endpoint    string // of the agent API; empty: Buildkite's
	// HostNetwork lets jobs reach all that listens on the node. Else each slot has
	// a network of its own.
	HostNetwork bool
	Drain       time.Duration // for the last job, once the agent is told to stop; whole seconds
}

// A ContainerAgent is one agent and what its jobs may use.
type ContainerAgent struct {
	Slot      string   // name of the service, "gpu0"
	Image     string   // see [AgentDockerfile]
	Tags      []string // "queue=h100", …
	Devices   []string // UUIDs of NVIDIA's GPUs or parts of one; none: no GPU
	CPUs      int
	MemoryGiB int // also of all that is written
	Pids      int // processes and threads
}

// Job users of the slots are firstJobUser and up: numbers that neither Debian,
// Fedora nor systemd gives to anybody.
const firstJobUser = 60600

// MaxAgents is how many agents a compose file may have.
const MaxAgents = 128

var (
	agentSlot   = form{text.Pattern(`^[a-z][a-z0-9-]{0,31}$`), "small letters, digits and -"}
	nodeName    = form{text.Pattern(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`), "letters, digits, - and _, at most 63"}
	agentImage  = form{text.Pattern(`^[a-z0-9][a-z0-9._/:-]*:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(@sha256:[0-9a-f]{64})?$|^[a-z0-9][a-z0-9._/:-]*@sha256:[0-9a-f]{64}$`), "an image with a tag or digest"}
	agentTag    = form{text.Pattern(`^[A-Za-z0-9_-]{1,80}=[A-Za-z0-9_.-]{1,120}$`), "name=value"}
	deviceUUID  = form{text.Pattern(`^(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`), "the UUID of one of NVIDIA's GPUs or MIG instances"}
	endpointURL = form{text.Pattern(`^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._-]+)*$`), "a URL without user, query or fragment"}
)

// Validate returns every fault of the values, joined; each is a
// [PlaceholderError].
func (c Compose) Validate() error {
	const what = "compose file"
	faults := []error{
		value{"node", c.Node, nodeName}.fault(what),
		value{"token", c.Token, absolutePath}.fault(what),
		value{"hooks", c.Hooks, absolutePath}.fault(what),
	}
	if c.Broker != "" {
		faults = append(faults, value{"broker", c.Broker, absolutePath}.fault(what))
		if c.BrokerGroup <= 0 {
			faults = append(faults, &PlaceholderError{what, "broker group", strconv.Itoa(c.BrokerGroup), "a group's number, not root's"})
		}
	}
	if c.Endpoint != "" {
		faults = append(faults, value{"endpoint", c.Endpoint, endpointURL}.fault(what))
	}
	if c.Drain < time.Second || c.Drain%time.Second != 0 {
		faults = append(faults, &PlaceholderError{what, "drain", c.Drain.String(), "whole seconds, at least one"})
	}
	if n := len(c.Agents); n == 0 || n > MaxAgents {
		faults = append(faults, &PlaceholderError{what, "agents", strconv.Itoa(n), fmt.Sprintf("1 to %d", MaxAgents)})
	}
	slots, devices := map[string]bool{}, map[string]bool{}
	once := func(where, name string, seen map[string]bool) {
		if seen[name] {
			faults = append(faults, &PlaceholderError{what, where, name, "it once"})
		}
		seen[name] = true
	}
	for _, a := range c.Agents {
		where := "agent " + a.Slot + ": "
		once("slot", a.Slot, slots)
		faults = append(faults,
			value{"slot", a.Slot, agentSlot}.fault(what),
			value{where + "image", a.Image, agentImage}.fault(what))
		if strings.HasSuffix(a.Image, ":latest") {
			faults = append(faults, &PlaceholderError{what, where + "image", a.Image, "a tag that stays, not latest"})
		}
		for _, tag := range a.Tags {
			faults = append(faults, value{where + "tag", tag, agentTag}.fault(what))
		}
		for _, device := range a.Devices {
			once(where+"device", device, devices)
			faults = append(faults, value{where + "device", device, deviceUUID}.fault(what))
		}
		for _, n := range []struct {
			what       string
			got, least int
		}{{"cpus", a.CPUs, 1}, {"memory in GiB", a.MemoryGiB, 1}, {"pids", a.Pids, 64}} {
			if n.got < n.least {
				faults = append(faults, &PlaceholderError{what, where + n.what, strconv.Itoa(n.got), fmt.Sprintf("at least %d", n.least)})
			}
		}
	}
	return errors.Join(faults...)
}

// The compose file, as far as it is ours.
type (
	composeFile struct {
		Name     string                    `yaml:"name"`
		Services map[string]composeService `yaml:"services"` // yaml.v3 writes gpu2 before gpu10
		Networks map[string]struct{}       `yaml:"networks,omitempty"`
		Secrets  map[string]*composeSecret `yaml:"secrets"`
	}
	composeSecret struct {
		File string `yaml:"file"`
	}
	composeService struct {
		Image        string            `yaml:"image"`
		Hostname     string            `yaml:"hostname"`
		User         string            `yaml:"user"`
		Init         bool              `yaml:"init"`
		Entrypoint   []string          `yaml:"entrypoint"`
		Command      []string          `yaml:"command"`
		Environment  map[string]string `yaml:"environment"`
		Secrets      []string          `yaml:"secrets"`
		Volumes      []composeMount    `yaml:"volumes"`
		ReadOnly     bool              `yaml:"read_only"`
		Tmpfs        []string          `yaml:"tmpfs"`
		CapDrop      []string          `yaml:"cap_drop"`
		CapAdd       []string          `yaml:"cap_add"`
		SecurityOpt  []string          `yaml:"security_opt"`
		CPUs         int               `yaml:"cpus"`
		MemLimit     string            `yaml:"mem_limit"`
		MemSwapLimit string            `yaml:"memswap_limit"`
		ShmSize      string            `yaml:"shm_size"`
		PidsLimit    int               `yaml:"pids_limit"`
		Ulimits      map[string]int    `yaml:"ulimits"`
		NetworkMode  string            `yaml:"network_mode,omitempty"`
		Networks     []string          `yaml:"networks,omitempty"`
		Logging      composeLogging    `yaml:"logging"`
		Restart      string            `yaml:"restart"`
		StopGrace    string            `yaml:"stop_grace_period"`
		Deploy       *composeDeploy    `yaml:"deploy,omitempty"`
	}
	composeMount struct {
		Type     string `yaml:"type"`
		Source   string `yaml:"source"`
		Target   string `yaml:"target"`
		ReadOnly bool   `yaml:"read_only"`
		Bind     struct {
			Create bool `yaml:"create_host_path"`
		} `yaml:"bind"`
	}
	composeLogging struct {
		Driver  string            `yaml:"driver"`
		Options map[string]string `yaml:"options"`
	}
	composeDeploy struct {
		Resources struct {
			Reservations struct {
				Devices []composeDevice `yaml:"devices"`
			} `yaml:"reservations"`
		} `yaml:"resources"`
	}
	composeDevice struct {
		Driver       string   `yaml:"driver"`
		DeviceIDs    []string `yaml:"device_ids"`
		Capabilities []string `yaml:"capabilities"`
	}
)

const composeHead = `# One Buildkite agent in a container for each slot of node %s.
# Made by: kbnode compose. An agent ends with its job; agent@.service
# (kbnode compose --unit) makes the next container.
`

// Render returns the compose file, for docker compose 2 and newer.
//
// Errors: those of [Compose.Validate].
func (c Compose) Render() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	file := composeFile{
		Name: "kbnode", Services: map[string]composeService{}, Networks: map[string]struct{}{},
		Secrets: map[string]*composeSecret{"agent-token": {File: c.Token}},
	}
	for i, a := range c.Agents {
		file.Services[a.Slot] = c.service(a, firstJobUser+i)
		if !c.HostNetwork {
			file.Networks[a.Slot] = struct{}{}
		}
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, composeHead, c.Node)
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(file), enc.Close()); err != nil {
		return nil, fmt.Errorf("writing the compose file: %w", err)
	}
	return out.Bytes(), nil
}

func (c Compose) service(a ContainerAgent, jobUser int) composeService {
	bind := func(path, target string) composeMount {
		return composeMount{Type: "bind", Source: path, Target: target, ReadOnly: true}
	}
	s := composeService{
		Image: a.Image, Hostname: a.Slot, User: "0:0", Init: true,
		// The token comes as an open file: neither arguments nor environment nor a
		// file of the job's user have it. $$ is compose's own $.
		Entrypoint: []string{"/bin/sh", "-c", `exec 3</run/secrets/agent-token && exec buildkite-agent "$$@"`, "buildkite-agent"},
		Command:    c.command(a, jobUser),
		Environment: map[string]string{
			"HOME": "/tmp",
			// What an image says here would give it GPUs where NVIDIA's runtime is
			// the default. A device request takes precedence.
			"NVIDIA_VISIBLE_DEVICES": "void",
		},
		Secrets:  []string{"agent-token"},
		Volumes:  []composeMount{bind(c.Hooks, "/etc/kbnode/hooks")},
		ReadOnly: true,
		// Compilers' output must be executable; memory bounds them all together.
		Tmpfs: []string{
			fmt.Sprintf("/builds:exec,mode=0755,uid=%[1]d,gid=%[1]d,size=%[2]dm", jobUser, a.MemoryGiB<<10/2),
			fmt.Sprintf("/tmp:exec,mode=1777,size=%dm", a.MemoryGiB<<10/2),
		},
		CapDrop: []string{"ALL"}, CapAdd: []string{"KILL", "SETGID", "SETUID"},
		SecurityOpt: []string{"no-new-privileges:true"},
		CPUs:        a.CPUs, MemLimit: fmt.Sprintf("%dg", a.MemoryGiB), MemSwapLimit: fmt.Sprintf("%dg", a.MemoryGiB),
		ShmSize: fmt.Sprintf("%dm", a.MemoryGiB<<10/4), PidsLimit: a.Pids,
		Ulimits: map[string]int{"core": 0},
		Logging: composeLogging{"local", map[string]string{"max-size": "10m", "max-file": "3"}},
		// A restart by the engine would be of the same container.
		Restart: "no", StopGrace: fmt.Sprintf("%.0fs", c.Drain.Seconds()),
	}
	if c.Broker != "" {
		s.Volumes = append(s.Volumes, bind(c.Broker, "/run/kbnode/secretd.sock"))
	}
	if c.HostNetwork {
		s.NetworkMode = "host"
	} else {
		s.Networks = []string{a.Slot}
	}
	if len(a.Devices) > 0 {
		d := composeDevice{Driver: "nvidia", DeviceIDs: a.Devices, Capabilities: []string{"gpu", "compute", "utility"}}
		if c.CDI {
			d = composeDevice{Driver: "cdi", Capabilities: []string{"gpu"}}
			for _, uuid := range a.Devices {
				d.DeviceIDs = append(d.DeviceIDs, "nvidia.com/gpu="+uuid)
			}
		}
		s.Deploy = &composeDeploy{}
		s.Deploy.Resources.Reservations.Devices = []composeDevice{d}
	}
	return s
}

// command is the agent's arguments.
func (c Compose) command(a ContainerAgent, jobUser int) []string {
	groups, jobAPI := "--clear-groups", " --no-job-api"
	if c.Broker != "" { // its client tells the redactor first, which is the job API's
		groups, jobAPI = fmt.Sprintf("--groups=%d", c.BrokerGroup), ""
	}
	args := []string{
		"start", "--token=fd://3", "--config=/dev/null",
		"--name=" + c.Node + "-" + a.Slot, "--tags=" + strings.Join(a.Tags, ","),
		// With a stream of pings the agent notices only after up to a minute that it
		// has had its job.
		"--disconnect-after-job", "--ping-mode=poll-only",
		"--build-path=/builds", "--hooks-path=/etc/kbnode/hooks", "--sockets-path=/builds/.sockets",
		"--no-plugins", "--no-ssh-keyscan",
		fmt.Sprintf("--bootstrap-script=/usr/bin/setpriv --reuid=%[1]d --regid=%[1]d %s --inh-caps=-all --no-new-privs /usr/local/bin/buildkite-agent bootstrap%s", jobUser, groups, jobAPI),
	}
	if c.Endpoint != "" {
		args = append(args, "--endpoint="+c.Endpoint)
	}
	return args
}

// AgentUnit returns systemd's agent@.service, whose instances are the slots of a
// compose file at path; drain is that of [Compose].
//
// Errors: *[PlaceholderError].
func AgentUnit(path string, drain time.Duration) (string, error) {
	const what = "unit agent@.service"
	if err := (value{"file", path, absolutePath}).fault(what); err != nil {
		return "", err
	}
	if drain < time.Second || drain%time.Second != 0 {
		return "", &PlaceholderError{what, "drain", drain.String(), "whole seconds, at least one"}
	}
	seconds := int(drain / time.Second)
	return fill("agent/agent@.service", what, nil, "@FILE@", path, "@DRAIN@", strconv.Itoa(seconds), "@TIMEOUT@", strconv.Itoa(seconds+120))
}

// AgentDockerfile returns the recipe of an agent's image on any base.
func AgentDockerfile() ([]byte, error) { return files.ReadFile("agent/agent.Dockerfile") }
