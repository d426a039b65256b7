package templates

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

const (
	gpuUUID = "GPU-5f0c9a52-0b4e-4d5c-9d6a-2f1f3c5b7a01"
	migUUID = "MIG-0a1b2c3d-0b4e-4d5c-9d6a-2f1f3c5b7a03"
)

// agentsOf is a node with a whole GPU, a part of one, and a slot without.
func agentsOf() Compose {
	return Compose{
		Node: "h100-01", Token: "/etc/kbnode/agent-token", Hooks: "/etc/kbnode/hooks", Drain: time.Hour,
		Agents: []ContainerAgent{
			{Slot: "gpu0", Image: "kbgen-agent:cuda-13.0", Tags: []string{"queue=h100", "gpu-uuid=" + gpuUUID}, Devices: []string{gpuUUID}, CPUs: 16, MemoryGiB: 64, Pids: 4096},
			{Slot: "gpu1", Image: "registry.example:5000/agent@" + digest, Tags: []string{"queue=h100-1g10gb"}, Devices: []string{migUUID}, CPUs: 4, MemoryGiB: 16, Pids: 4096},
			{Slot: "gpu2", Image: "kbgen-agent:cpu", Tags: []string{"queue=cpu"}, CPUs: 2, MemoryGiB: 4, Pids: 1024},
		},
	}
}

// withBroker is the same by way of CDI, with a broker.
func withBroker() Compose {
	c := agentsOf()
	c.CDI, c.Broker, c.BrokerGroup, c.Endpoint, c.HostNetwork = true, "/run/kbnode/secretd.sock", 990, "http://127.0.0.1:1234/v3", true
	return c
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "agent", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestComposeGoldens(t *testing.T) {
	for name, c := range map[string]Compose{"compose.yml": agentsOf(), "compose-broker.yml": withBroker()} {
		got, err := c.Render()
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, string(got))
	}
	unit, err := AgentUnit("/etc/kbnode/compose.yml", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "agent@.service", unit)
}

// What must hold of every service, whatever its golden says: read again as
// whoever starts it reads it.
func TestComposeIsSafe(t *testing.T) {
	type service struct {
		Image, User, Pid, Ipc, Restart string
		Privileged                     bool
		ReadOnly                       bool `yaml:"read_only"`
		Entrypoint, Command            []string
		Environment                    map[string]string
		EnvFile                        any      `yaml:"env_file"`
		CapDrop                        []string `yaml:"cap_drop"`
		CapAdd                         []string `yaml:"cap_add"`
		SecurityOpt                    []string `yaml:"security_opt"`
		Devices                        []string
		Runtime                        string
		Volumes                        []composeMount
		Tmpfs                          []string
		Networks                       []string
		PidsLimit                      int `yaml:"pids_limit"`
		Deploy                         composeDeploy
	}
	for name, c := range map[string]Compose{"driver": agentsOf(), "cdi": withBroker()} {
		t.Run(name, func(t *testing.T) {
			text, err := c.Render()
			if err != nil {
				t.Fatal(err)
			}
			var file struct {
				Services map[string]service
				Secrets  map[string]map[string]string
			}
			if err := yaml.Unmarshal(text, &file); err != nil {
				t.Fatal(err)
			}
			if len(file.Services) != len(c.Agents) {
				t.Fatalf("%d services, want %d", len(file.Services), len(c.Agents))
			}
			users := map[string]bool{}
			for i, a := range c.Agents {
				s := file.Services[a.Slot]
				if s.Privileged || s.Pid != "" || s.Ipc != "" || s.Runtime != "" || s.Devices != nil || s.EnvFile != nil || !s.ReadOnly || s.PidsLimit != a.Pids || s.Restart != "no" {
					t.Errorf("%s: %+v", a.Slot, s)
				}
				if !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.CapAdd, []string{"KILL", "SETGID", "SETUID"}) || !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) {
					t.Errorf("%s: capabilities -%q +%q, %q", a.Slot, s.CapDrop, s.CapAdd, s.SecurityOpt)
				}
				for _, m := range s.Volumes {
					if m.Type != "bind" || !m.ReadOnly || strings.Contains(m.Source, "docker") || m.Bind.Create {
						t.Errorf("%s: mount %+v", a.Slot, m)
					}
				}
				for _, m := range s.Tmpfs {
					if !strings.Contains(m, ":exec,") || !strings.Contains(m, "size=") {
						t.Errorf("%s: tmpfs %s", a.Slot, m)
					}
				}
				for name := range s.Environment {
					if strings.Contains(name, "TOKEN") || strings.HasPrefix(name, "BUILDKITE") {
						t.Errorf("%s: %s is in the container's environment", a.Slot, name)
					}
				}
				all := strings.Join(s.Command, "\n")
				for _, want := range []string{"--disconnect-after-job", "--ping-mode=poll-only", "--token=fd://3", "--no-plugins", fmt.Sprintf("--reuid=%d ", firstJobUser+i)} {
					if !strings.Contains(all, want) {
						t.Errorf("%s: the agent's arguments lack %s:\n%s", a.Slot, want, all)
					}
				}
				if strings.Contains(all, "$") || strings.Contains(all, "file://") {
					t.Errorf("%s: the agent's arguments:\n%s", a.Slot, all)
				}
				if api := !strings.Contains(all, "--no-job-api"); api != (c.Broker != "") {
					t.Errorf("%s: the job API is on: %t, want it with a broker only", a.Slot, api)
				}
				var ids []string
				for _, d := range s.Deploy.Resources.Reservations.Devices {
					ids = append(ids, d.DeviceIDs...)
				}
				var want []string
				for _, uuid := range a.Devices {
					if c.CDI {
						uuid = "nvidia.com/gpu=" + uuid
					}
					want = append(want, uuid)
				}
				if !slices.Equal(ids, want) || s.Environment["NVIDIA_VISIBLE_DEVICES"] != "void" {
					t.Errorf("%s: devices %q beside %v, want %q", a.Slot, ids, s.Environment, want)
				}
				user := s.Tmpfs[0]
				if users[user] {
					t.Errorf("%s shares its user with another slot", a.Slot)
				}
				users[user] = true
				if !c.HostNetwork && !slices.Equal(s.Networks, []string{a.Slot}) {
					t.Errorf("%s: networks %q, want its own", a.Slot, s.Networks)
				}
			}
			if got := file.Secrets["agent-token"]["file"]; got != c.Token {
				t.Errorf("the token's file is %q", got)
			}
		})
	}
}

func TestComposeRefuses(t *testing.T) {
	for _, tt := range []struct {
		placeholder string
		change      func(*Compose)
	}{
		{"node", func(c *Compose) { c.Node = "h100 01" }},
		{"token", func(c *Compose) { c.Token = "token" }},
		{"token", func(c *Compose) { c.Token = "/etc/../root/token" }},
		{"hooks", func(c *Compose) { c.Hooks = "/etc/hooks:rw" }},
		{"hooks", func(c *Compose) { c.Hooks = "" }},
		{"broker", func(c *Compose) { c.Broker, c.BrokerGroup = "/run/$X", 990 }},
		{"broker group", func(c *Compose) { c.Broker = "/run/kbnode/secretd.sock" }},
		{"endpoint", func(c *Compose) { c.Endpoint = "https://user:secret@agent.example/v3" }},
		{"endpoint", func(c *Compose) { c.Endpoint = "https://agent.example/v3 --debug" }},
		{"drain", func(c *Compose) { c.Drain = 0 }},
		{"drain", func(c *Compose) { c.Drain = 1500 * time.Millisecond }},
		{"agents", func(c *Compose) { c.Agents = nil }},
		{"agents", func(c *Compose) { c.Agents = make([]ContainerAgent, MaxAgents+1) }},
		{"slot", func(c *Compose) { c.Agents[0].Slot = "gpu 0" }},
		{"slot", func(c *Compose) { c.Agents[1].Slot = "gpu0" }},
		{"agent gpu0: image", func(c *Compose) { c.Agents[0].Image = "agent" }},
		{"agent gpu0: image", func(c *Compose) { c.Agents[0].Image = "agent:latest" }},
		{"agent gpu0: image", func(c *Compose) { c.Agents[0].Image = "${IMAGE}:1" }},
		{"agent gpu0: tag", func(c *Compose) { c.Agents[0].Tags = []string{"queue=a,gpu=b"} }},
		{"agent gpu0: tag", func(c *Compose) { c.Agents[0].Tags = []string{"queue=$TOKEN"} }},
		{"agent gpu0: device", func(c *Compose) { c.Agents[0].Devices = []string{"0"} }},
		{"agent gpu0: device", func(c *Compose) { c.Agents[0].Devices = []string{"all"} }},
		{"agent gpu1: device", func(c *Compose) { c.Agents[1].Devices = []string{gpuUUID} }},
		{"agent gpu0: cpus", func(c *Compose) { c.Agents[0].CPUs = 0 }},
		{"agent gpu0: memory in GiB", func(c *Compose) { c.Agents[0].MemoryGiB = 0 }},
		{"agent gpu0: pids", func(c *Compose) { c.Agents[0].Pids = 0 }},
	} {
		c := agentsOf()
		tt.change(&c)
		text, err := c.Render()
		var fault *PlaceholderError
		if !errors.As(err, &fault) || text != nil {
			t.Errorf("%s: got %v and %d bytes, want a PlaceholderError", tt.placeholder, err, len(text))
			continue
		}
		if fault.Name != tt.placeholder {
			t.Errorf("got a fault of %q, want one of %q: %v", fault.Name, tt.placeholder, err)
		}
	}
	if err := agentsOf().Validate(); err != nil {
		t.Errorf("without a change: %v", err)
	}
	for _, path := range []string{"compose.yml", "/etc/a b", "/etc/%i.yml"} {
		if unit, err := AgentUnit(path, time.Hour); err == nil || unit != "" {
			t.Errorf("AgentUnit(%q): got %q and no error", path, unit)
		}
	}
	if _, err := AgentUnit("/etc/compose.yml", 0); err == nil {
		t.Error("AgentUnit with no drain: got no error")
	}
}

// systemd reads the unit, where there is one to ask.
func TestAgentUnitIsVerified(t *testing.T) {
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze on PATH")
	}
	unit, err := AgentUnit("/etc/kbnode/compose.yml", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	complaints := func(unit string) []string {
		dir := t.TempDir()
		// What the unit needs of the node: neither docker nor its unit need be here.
		unit = strings.ReplaceAll(unit, "/usr/bin/docker", "/bin/true")
		for name, text := range map[string]string{"agent@.service": unit, "docker.service": "[Service]\nExecStart=/bin/true\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(verify, "verify", "--man=no", filepath.Join(dir, "agent@.service"))
		cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
		out, _ := cmd.CombinedOutput() // its status tells of other units as well
		var lines []string
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "agent@") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	if lines := complaints(unit); len(lines) > 0 {
		t.Errorf("systemd-analyze verify: %q", lines)
	}
	if lines := complaints(strings.Replace(unit, "KillMode=mixed", "KillMod=mixed", 1)); len(lines) == 0 {
		t.Error("systemd-analyze verify does not notice a wrong key")
	}
}

// The image's recipe brings the agent and nothing else.
func TestAgentDockerfile(t *testing.T) {
	text, err := AgentDockerfile()
	if err != nil {
		t.Fatal(err)
	}
	var copies []string
	for line := range strings.Lines(string(text)) {
		if word, rest, _ := strings.Cut(strings.TrimSpace(line), " "); word == "COPY" || word == "ADD" {
			copies = append(copies, rest)
		}
	}
	if want := []string{"buildkite-agent /usr/local/bin/buildkite-agent"}; !slices.Equal(copies, want) {
		t.Errorf("it copies %q, want %q", copies, want)
	}
}
