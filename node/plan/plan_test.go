package plan

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/cpulist"
	"github.com/gpu-mode/kbgen/node/facts"
	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/queuefile"
)

var update = flag.Bool("update", false, "rewrite testdata from what Make returns")

var rows = map[string]Row{
	"H100_BK":  {Name: "H100_BK", Vendor: "nvidia", Platform: Docker, Queue: "h100", Image: "kbgen-runner:cuda", GPUs: 1, CPUs: 8, MemoryGiB: 64, Timeout: 15 * time.Minute},
	"H100_X4":  {Name: "H100_X4", Vendor: "nvidia", Platform: Docker, Queue: "h100x4", Image: "kbgen-runner:cuda", GPUs: 2, CPUs: 16, MemoryGiB: 128, Timeout: 30 * time.Minute},
	"MIG_BK":   {Name: "MIG_BK", Vendor: "nvidia", Slice: "1g.10gb", Platform: Docker, Queue: "mig", Image: "kbgen-runner:cuda", GPUs: 1, CPUs: 4, MemoryGiB: 16, Timeout: 15 * time.Minute},
	"MI300_BK": {Name: "MI300_BK", Vendor: "amd", Platform: Docker, Queue: "mi300", Image: "kbgen-runner:rocm", GPUs: 1, CPUs: 8, MemoryGiB: 64, Timeout: 20 * time.Minute},
	"CPU_BK":   {Name: "CPU_BK", Vendor: "none", Platform: Host, Queue: "cpu", CPUs: 2, MemoryGiB: 4, Timeout: 15 * time.Minute, Commands: []string{"kbrun run --out result.json"}},
	"POD_BK":   {Name: "POD_BK", Vendor: "amd", Platform: "kubernetes", Queue: "pod", GPUs: 1},
}

// files are the queue files of the machines of package facts' tests: node, machine
// and groups.
var files = map[string]string{
	"nvidia-1": `{name: a1, isolation: node, machine: {cpus: 32, memory_gib: 128, disk_gb: 500, network_mbps: 10000}, gpus: [
  {type: H100_BK, count: 1, queue: h100, agent: {cpus: 16, memory_gib: 64, disk_gb: 100}}]}`,
	"nvidia-8": `{name: h100-01, isolation: node, machine: {cpus: 144, memory_gib: 1024, disk_gb: 2000, network_mbps: 10000}, gpus: [
  {type: H100_BK, count: 8, queue: h100, agent: {cpus: 16, memory_gib: 64, disk_gb: 100}}]}`,
	"mig": `{name: mig-01, isolation: node, machine: {cpus: 32, memory_gib: 128, disk_gb: 500, network_mbps: 10000}, gpus: [
  {type: MIG_BK, uuids: [MIG-00000000-feed-beef-cafe-000000000000, MIG-00000000-feed-beef-cafe-000000000001], queue: mig, agent: {cpus: 4, memory_gib: 16, disk_gb: 50}}]}`,
	"amd-8": `{name: mi300-01, isolation: node, machine: {cpus: 256, memory_gib: 2048, disk_gb: 2000, network_mbps: 10000}, gpus: [
  {type: MI300_BK, count: 8, queue: mi300, agent: {cpus: 16, memory_gib: 128, disk_gb: 100}}]}`,
	"mixed": `{name: mixed-01, isolation: node, machine: {cpus: 96, memory_gib: 512, disk_gb: 2000, network_mbps: 10000}, gpus: [
  {type: H100_X4, count: 2, queue: h100x4, agent: {gpus: 2, cpus: 32, memory_gib: 128, disk_gb: 100}},
  {type: MI300_BK, count: 1, queue: mi300, agent: {cpus: 16, memory_gib: 64, disk_gb: 100}},
  {type: CPU_BK, count: 1, queue: cpu, agent: {cpus: 8, memory_gib: 16, disk_gb: 50}}]}`,
	"cpu-only": `{name: cpu-01, isolation: node, machine: {cpus: 32, memory_gib: 128, disk_gb: 500, network_mbps: 10000}, gpus: [
  {type: CPU_BK, count: 3, queue: cpu, agent: {cpus: 8, memory_gib: 16, disk_gb: 50}}]}`,
	"numa-smt": `{name: b200-01, isolation: node, machine: {cpus: 128, memory_gib: 512, disk_gb: 2000, network_mbps: 10000}, gpus: [
  {type: H100_BK, count: 4, queue: h100, agent: {cpus: 24, memory_gib: 64, disk_gb: 100}}]}`,
	"small": `{name: small-01, isolation: node, machine: {cpus: 4, memory_gib: 8, disk_gb: 100, network_mbps: 1000}, gpus: [
  {type: H100_BK, count: 2, queue: h100, agent: {cpus: 1, memory_gib: 2, disk_gb: 10}}]}`,
}

func machine(t *testing.T, name string) *facts.Facts {
	t.Helper()
	data, err := os.ReadFile("../facts/testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	f := new(facts.Facts)
	if err := json.Unmarshal(data, f); err != nil {
		t.Fatal(err)
	}
	return f
}

// input is one machine with the queue file of its node, changed by strings.NewReplacer.
func input(t *testing.T, name string, changes ...string) Input {
	t.Helper()
	text := strings.NewReplacer(changes...).Replace(files[name])
	file, faults := queuefile.Decode(name+".yml", []byte("version: 1\nvendor: acme\ncontacts: [{name: Ops, email: ops@acme.dev}]\nnodes: ["+text+"]\n"))
	for _, f := range faults {
		if f.Severity == schema.SeverityError && name != "small" { // which is too small for a queue file's own sums
			t.Fatal(f)
		}
	}
	return Input{Facts: machine(t, name), File: file, Node: file.Nodes[0].Name, Rows: rows, AllowSmall: name == "small"}
}

func TestMake(t *testing.T) {
	for name := range files {
		t.Run(name, func(t *testing.T) {
			p, err := Make(input(t, name))
			if err != nil {
				t.Fatal(err)
			}
			got := text(p)
			golden := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("Make (-want +got):\n%s", diff)
			}
		})
	}
}

// text is all of a plan, for people to read.
func text(p *Plan) string {
	var b strings.Builder
	for _, n := range p.Notes {
		fmt.Fprintln(&b, "note:", n)
	}
	for _, x := range p.Missing {
		fmt.Fprintf(&b, "missing: %s (%s), package %v: %s\n", x.What, x.Why, x.Package, x.Command)
	}
	s := &p.Set
	for _, u := range s.Users {
		fmt.Fprintln(&b, "user", u.Name, u.Home)
	}
	for _, d := range s.Dirs {
		fmt.Fprintln(&b, "dir", d.Mode, d.Owner, d.Group, d.Path)
	}
	for _, c := range s.Copies {
		fmt.Fprintln(&b, "copy", c.Path, c.From, c.Mode)
	}
	for _, u := range s.Units {
		fmt.Fprintf(&b, "unit %s enabled=%v active=%v drain=%v asks=%v uses=%v\n", u.Name, u.Enabled, u.Active, u.Drain, u.Asks, u.Uses)
	}
	for _, f := range s.Files {
		fmt.Fprintf(&b, "\n-- %s %s %s:%s marked=%v foreign=%v --\n%s", f.Path, f.Mode, f.Owner, f.Group, f.Marked, f.Foreign, f.Content)
	}
	return b.String()
}

// What holds for every plan, whatever its golden says.
func TestSlotsShareNothing(t *testing.T) {
	for name := range files {
		t.Run(name, func(t *testing.T) {
			in := input(t, name)
			p, err := Make(in)
			if err != nil {
				t.Fatal(err)
			}
			core := map[int]int{}
			for _, c := range in.Facts.CPUs {
				core[c.ID] = c.Core
			}
			cores, nodes, ports := map[int]string{}, map[string]string{}, map[int]string{}
			for _, s := range p.Config.Slots {
				cpus, _ := cpulist.Parse(s.CPUs)
				for _, id := range cpus {
					if other, ok := cores[core[id]]; ok && other != s.Name {
						t.Errorf("core %d is of %s and %s", core[id], other, s.Name)
					}
					cores[core[id]] = s.Name
				}
				for _, c := range in.Facts.CPUs {
					if cores[c.Core] == s.Name && !slices.Contains(cpus, c.ID) {
						t.Errorf("%s has a part of core %d", s.Name, c.Core)
					}
				}
				for _, d := range s.Devices {
					own := d.UUID + d.PCI
					if other, ok := nodes[own]; ok {
						t.Errorf("%s is of %s and %s", own, other, s.Name)
					}
					nodes[own] = s.Name
				}
				if other, ok := ports[s.HealthPort]; ok {
					t.Errorf("port %d is of %s and %s", s.HealthPort, other, s.Name)
				}
				ports[s.HealthPort] = s.Name
			}
			if len(cores) >= len(slices.Compact(sortedCores(in.Facts))) {
				t.Error("no core is left for the machine itself")
			}
		})
	}
}

func sortedCores(f *facts.Facts) []int {
	var all []int
	for _, c := range f.CPUs {
		all = append(all, c.Core)
	}
	slices.Sort(all)
	return all
}

func TestGPUsGetTheCoresOfTheirNode(t *testing.T) {
	in := input(t, "nvidia-8")
	p, err := Make(in)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range p.Config.Slots {
		want := "0"
		if i >= 4 {
			want = "1"
		}
		if s.MemoryNodes != want {
			t.Errorf("%s: memory of node %q, want %s", s.Name, s.MemoryNodes, want)
		}
		if want := fmt.Sprintf("/dev/nvidia%d", 7-i); s.Devices[0].Nodes[0] != want {
			t.Errorf("%s: %s, want %s", s.Name, s.Devices[0].Nodes[0], want)
		}
	}
}

// An index in the queue file stays a tag, and the UUID is what counts.
func TestIndexesBecomeUUIDs(t *testing.T) {
	p, err := Make(input(t, "nvidia-8"))
	if err != nil {
		t.Fatal(err)
	}
	s := p.Config.Slots[3]
	if s.Devices[0].UUID != "GPU-00000003-feed-beef-cafe-000000000003" || s.Devices[0].CDI != "nvidia.com/gpu="+s.Devices[0].UUID || !slices.Contains(s.Tags, "gpu-index=3") {
		t.Errorf("slot 3: %+v", s)
	}
}

func TestFaultsAreSaidAllAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name, machine string
		changes       []string
		change        func(*Input)
		want          []string
	}{
		{name: "unknown node", machine: "nvidia-1", change: func(in *Input) { in.Node = "a2" }, want: []string{`node "a2": got no agent in the queue file`}},
		{name: "unknown device", machine: "nvidia-8", changes: []string{"count: 8", "indexes: [0, 9]"}, want: []string{`gpu1: got device "9", want one of nvidia's on this machine: 0 (GPU-00000000-feed-beef-cafe-000000000000), 1 (`}},
		{name: "one device twice", machine: "nvidia-1", changes: []string{"count: 1", "count: 2", "cpus: 16", "cpus: 8", "memory_gib: 64", "memory_gib: 32"},
			change: func(in *Input) {
				in.File.Nodes[0].GPUs = append(in.File.Nodes[0].GPUs[:0], group("0"), group("GPU-00000000-feed-beef-cafe-000000000000"))
			},
			want: []string{"gpu1: device GPU-00000000-feed-beef-cafe-000000000000 is gpu0's already"}},
		{name: "a whole GPU in MIG mode", machine: "mig", changes: []string{"type: MIG_BK, uuids: [MIG-00000000-feed-beef-cafe-000000000000, MIG-00000000-feed-beef-cafe-000000000001]", "type: MIG_BK, indexes: [0]"},
			want: []string{"gpu0: GPU 0 is in MIG mode, where no job can use it whole: name its instances by UUID: MIG-00000000-feed-beef-cafe-000000000000, MIG-"}},
		{name: "nothing of that maker", machine: "nvidia-1", changes: []string{"H100_BK", "MI300_BK"}, want: []string{`gpu0: got device "0", want one of amd's on this machine: it has none`}},
		{name: "too many cores", machine: "cpu-only", change: func(in *Input) { in.Facts.CPUs = in.Facts.CPUs[:25] }, want: []string{"CPUs: got 25, want 26: 24 for the slots and 2 for the machine itself"}},
		{name: "too much memory", machine: "nvidia-1", change: func(in *Input) { in.Facts.MemoryBytes = 64 << 30 }, want: []string{"memory: got 64.0 GiB, want 68.2: 64.2 for the slots with their agents and 4.0 for the machine itself"}},
		{name: "a machine that is too small", machine: "small", change: func(in *Input) { in.AllowSmall = false }, want: []string{
			"memory: got 8.0 GiB, want 8.5", "gpu0: got 1 CPUs, want at least 8, which H100_BK promises to its jobs", "gpu1: got 2 GiB of memory, want at least 64",
		}},
		{name: "old systemd and control groups", machine: "nvidia-1", change: func(in *Input) { in.Facts.Systemd, in.Facts.Cgroup.Version = 245, 1 }, want: []string{
			"systemd: got 245, want 247 or later", "control groups: got version 1, want 2",
		}},
		{name: "an old agent", machine: "nvidia-1", change: func(in *Input) { in.Facts.Agent.Version = "3.121.4" }, want: []string{"/usr/bin/buildkite-agent: got version 3.121.4, want 3.122 to 4"}},
		{name: "an agent of the future", machine: "nvidia-1", change: func(in *Input) { in.Facts.Agent.Version = "5.0.0" }, want: []string{"got version 5.0.0, want 3.122 to 4"}},
		{name: "another platform", machine: "amd-8", changes: []string{"MI300_BK", "POD_BK"}, want: []string{"nodes[0].gpus[0]: GPU type POD_BK runs on kubernetes, want docker or host"}},
		{name: "a daemon.json that is none", machine: "nvidia-1", change: func(in *Input) { in.Facts.Docker.DaemonJSON = "{" }, want: []string{"/etc/docker/daemon.json: unexpected end"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := input(t, tt.machine, tt.changes...)
			if tt.change != nil {
				tt.change(&in)
			}
			_, err := Make(in)
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Make: got %v, want %s", err, want)
				}
			}
		})
	}
}

// group is one GPU by its index or UUID.
func group(device string) queuefile.Group {
	g := queuefile.Group{Type: "H100_BK", Queue: "h100", Agent: queuefile.Share{CPUs: 8, MemoryGiB: 32, DiskGB: 50}}
	if strings.HasPrefix(device, "GPU-") {
		g.UUIDs = []string{device}
	} else {
		g.Count = 1
	}
	return g
}

// A second plan, of the machine as the first one left it, is the same.
func TestWhatKbnodeMadeStaysInThePlan(t *testing.T) {
	for _, name := range []string{"nvidia-1", "small"} {
		first, err := Make(input(t, name))
		if err != nil {
			t.Fatal(err)
		}
		in := input(t, name)
		if i := find(first, node.DaemonJSON); i >= 0 {
			in.Facts.Docker.DaemonJSON, in.Facts.Docker.CDIDirs = string(first.Set.Files[i].Content), []string{"/etc/cdi", "/var/run/cdi"}
		}
		if find(first, node.CDISpec) >= 0 {
			in.Facts.CDI = append(in.Facts.CDI, facts.CDISpec{Path: node.CDISpec, Kind: cdiKind, Devices: []string{first.Config.Slots[0].Devices[0].UUID, first.Config.Slots[len(first.Config.Slots)-1].Devices[0].UUID}})
		}
		second, err := Make(in)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first.Set, second.Set); diff != "" {
			t.Errorf("%s: (-first +second):\n%s", name, diff)
		}
	}
}

func find(p *Plan, path string) int {
	return slices.IndexFunc(p.Set.Files, func(f resource.File) bool { return f.Path == path })
}

func TestNothingOfNVIDIAOnANodeOfAMD(t *testing.T) {
	p, err := Make(input(t, "amd-8"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range p.Set.Files {
		if strings.HasPrefix(f.Path, "/etc/kbnode/slots") || strings.HasSuffix(f.Path, ".slice") || strings.HasPrefix(f.Path, "/etc/cdi") {
			if strings.Contains(string(f.Content), "nvidia") {
				t.Errorf("%s:\n%s", f.Path, f.Content)
			}
		}
	}
	if s := p.Config.Slots[0]; !slices.Equal(s.Groups, []int{109}) || s.Devices[0].CDI != "" || !slices.Equal(s.Devices[0].Nodes, []string{"/dev/kfd", "/dev/dri/renderD128"}) {
		t.Errorf("slot 0: %+v", s)
	}
}

// Agents and their proxies start again for a new release, whose program replaces
// the old one without kbnode's doing.
func TestReleaseChangesWhatAgentsRead(t *testing.T) {
	var configs [3]string
	for i, release := range []string{"", "0.1.0", "0.2.0"} {
		in := input(t, "nvidia-1")
		in.Release = release
		p, err := Make(in)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(p.Set.Files, func(f resource.File) bool { return f.Path == node.ConfigPath })
		configs[i] = string(p.Set.Files[at].Content)
		if !slices.ContainsFunc(p.Set.Units, func(u resource.Unit) bool { return u.Drain && slices.Contains(u.Uses, node.ConfigPath) }) {
			t.Error("no agent starts again for its config")
		}
	}
	if configs[1] == configs[2] || strings.TrimPrefix(configs[1], "# of kbnode \"0.1.0\"\n") != configs[0] {
		t.Errorf("got %q and %q, want a line with the release in front of %q", configs[1], configs[2], configs[0])
	}
}
