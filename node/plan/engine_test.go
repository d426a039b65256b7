package plan

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/facts"
	"github.com/gpu-mode/kbgen/node/resource"
)

func TestMissing(t *testing.T) {
	debian12 := facts.Distribution{ID: "debian", Version: "12"}
	for _, tt := range []struct {
		name, machine string
		change        func(*Input)
		what, command string // empty: nothing is missing
		pkg           bool
	}{
		{"all is there", "nvidia-8", nil, "", "", false},
		{"no docker on Debian 13", "nvidia-1", func(in *Input) { in.Facts.Docker = nil }, "docker", "apt-get install --yes docker.io docker-cli", true},
		{"no docker on Ubuntu", "amd-8", func(in *Input) { in.Facts.Docker = nil }, "docker", "apt-get install --yes docker.io", true},
		{"no docker on Debian 12 with NVIDIA's GPUs", "nvidia-1", func(in *Input) { in.Facts.Docker, in.Facts.Distribution = nil, debian12 }, "docker", "download.docker.com/linux/debian", true},
		{"no docker on a relative of Red Hat", "mixed", func(in *Input) { in.Facts.Docker = nil }, "docker", "dnf config-manager --add-repo https://download.docker.com/linux/centos/docker-ce.repo", true},
		{"no docker on a distribution of its own", "nvidia-1", func(in *Input) { in.Facts.Docker, in.Facts.Distribution = nil, facts.Distribution{ID: "nixos"} }, "docker", "install docker 25 or newer", false},
		{"an engine without CDI", "nvidia-8", func(in *Input) { in.Facts.Docker.Version, in.Facts.Docker.CDIDirs = "20.10.24", nil }, "docker 25 or newer", "docker-ce", true},
		{"an engine without CDI, for AMD", "amd-8", func(in *Input) { in.Facts.Docker.Version, in.Facts.Docker.CDIDirs = "20.10.24", nil }, "", "", false},
		{"a dead engine", "amd-8", func(in *Input) { in.Facts.Docker.Version = "" }, "a running docker engine", "systemctl start docker.service", false},
		{"the other cgroup driver", "amd-8", func(in *Input) { in.Facts.Docker.CgroupDriver = "cgroupfs" }, "docker's systemd cgroup driver", "native.cgroupdriver=systemd", false},
		{"no agent", "nvidia-8", func(in *Input) { in.Facts.Agent = nil }, "buildkite-agent", "apt-get install --yes buildkite-agent", true},
		{"a given agent", "nvidia-8", func(in *Input) { in.Facts.Agent, in.AgentFrom, in.AgentVersion = nil, "/tmp/agent", "3.138.0" }, "", "", false},
		{"the tool, and no spec", "nvidia-8", func(in *Input) { in.Facts.CDI = nil }, "a CDI spec that names GPUs by UUID", "nvidia-ctk cdi generate --device-name-strategy=uuid", false},
		{"a spec of indexes", "nvidia-8", func(in *Input) { in.Facts.CDI[0].Devices = []string{"0", "all"} }, "a CDI spec that names GPUs by UUID", "nvidia-ctk cdi generate", false},
		{"no tool, no libraries", "small", func(in *Input) { in.Facts.Libraries = nil }, "NVIDIA's libraries", "ldconfig", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := input(t, tt.machine)
			if tt.machine == "mixed" {
				in.Facts.Agent = &facts.Agent{Path: "/usr/bin/buildkite-agent", Version: "3.138.0"}
				in.Facts.CDI = append(in.Facts.CDI, facts.CDISpec{Kind: cdiKind, Devices: []string{in.Facts.GPUs[0].UUID, in.Facts.GPUs[1].UUID}})
			}
			if tt.change != nil {
				tt.change(&in)
			}
			p, err := Make(in)
			if err != nil {
				t.Fatal(err)
			}
			if tt.what == "" {
				if len(p.Missing) > 0 {
					t.Errorf("missing: %+v", p.Missing)
				}
				return
			}
			if len(p.Missing) != 1 {
				t.Fatalf("missing: %+v, want one", p.Missing)
			}
			if x := p.Missing[0]; x.What != tt.what || !strings.Contains(x.Command, tt.command) || x.Package != tt.pkg || x.Why == "" {
				t.Errorf("missing: %+v, want %s by %s, package %v", x, tt.what, tt.command, tt.pkg)
			}
		})
	}
}

// What somebody else wrote into daemon.json stays, numbers and all.
func TestDaemonJSONKeepsWhatItHas(t *testing.T) {
	in := input(t, "nvidia-1")
	in.Facts.Docker.DaemonJSON = `{"max-concurrent-downloads": 12345678901234567890, "features": {"buildkit": true}, "x": {"y": ["<z>"]}}`
	p, err := Make(in)
	if err != nil {
		t.Fatal(err)
	}
	f := p.Set.Files[find(p, node.DaemonJSON)]
	var got map[string]json.RawMessage
	if err := json.Unmarshal(f.Content, &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"max-concurrent-downloads": "12345678901234567890", "features": `{"buildkit":true,"cdi":true}`, "x": `{"y":["<z>"]}`} {
		if compact := strings.Join(strings.Fields(string(got[key])), ""); compact != want {
			t.Errorf("%s: %s, want %s", key, compact, want)
		}
	}
	if !f.Foreign || f.Marked {
		t.Errorf("marked %v, foreign %v: it is somebody else's", f.Marked, f.Foreign)
	}
	i := slices.IndexFunc(p.Set.Units, func(u resource.Unit) bool { return u.Name == "docker.service" })
	if u := p.Set.Units[i]; !u.Asks || !slices.Contains(u.Uses, node.DaemonJSON) {
		t.Errorf("docker: %+v, want it to restart for daemon.json, with leave", u)
	}
}

// A slot whose node is full leaves the cores beside others' GPUs to them.
func TestACrowdedNodeTakesNobodysCores(t *testing.T) {
	in := input(t, "numa-smt", "cpus: 24", "cpus: 26") // node 0 has room for two of three, node 1 for two of one
	p, err := Make(in)
	if err != nil {
		t.Fatal(err)
	}
	last := p.Config.Slots[3]
	if last.MemoryNodes != "1" {
		t.Errorf("gpu3, alone at node 1: CPUs %s, memory of node %q", last.CPUs, last.MemoryNodes)
	}
	if len(p.Notes) == 0 || !strings.Contains(strings.Join(p.Notes, "\n"), "gpu2: its GPU is at NUMA node 0, whose cores are taken") {
		t.Errorf("notes: %q", p.Notes)
	}
}

// A host slot of AMD has the groups of its device nodes by a drop-in.
func TestHostSlotsHaveTheGroupsOfTheirDevices(t *testing.T) {
	in := input(t, "amd-8")
	row := rows["MI300_BK"]
	row.Platform, row.Commands = Host, []string{"kbrun run"}
	in.Rows = map[string]Row{"MI300_BK": row}
	in.Facts.Docker = nil
	p, err := Make(in)
	if err != nil || len(p.Missing) > 0 {
		t.Fatal(err, p.Missing)
	}
	f := p.Set.Files[find(p, "/etc/systemd/system/kbnode-agent@gpu0.service.d/host.conf")]
	if !strings.Contains(string(f.Content), "\nSupplementaryGroups=109\n") {
		t.Errorf("%s", f.Content)
	}
	if slices.ContainsFunc(p.Set.Units, func(u resource.Unit) bool {
		return strings.Contains(u.Name, "proxy") || strings.Contains(u.Name, "docker")
	}) {
		t.Errorf("something of docker's without docker: %+v", p.Set.Units)
	}
}

// Partitions of a card share its UUID, so that it names none of them.
func TestAPartitionIsNotNamedByItsCard(t *testing.T) {
	in := input(t, "amd-8", "count: 8", "uuids: [GPU-9a00000000000000]")
	in.Facts.GPUs[1].UUID = in.Facts.GPUs[0].UUID
	if _, err := Make(in); err == nil || !strings.Contains(err.Error(), "2 partitions of the card have that UUID") {
		t.Errorf("Make: %v", err)
	}
}
