package facts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gpu-mode/kbgen/node/cpulist"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite testdata/*.json from what Read returns")

// A fixture is a machine as a txtar file has it: its files, what programs
// print in prints/NAME ARGUMENTS, programs on PATH in tools, numeric groups of files in
// groups, and its processors in topology, in one line.
type fixture struct {
	root   string
	run    map[string]string
	tools  map[string]string
	groups map[string]int
}

func open(t *testing.T, file string) *fixture {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t.TempDir(), map[string]string{}, map[string]string{}, map[string]int{}}
	for _, a := range archive.Files {
		text := string(a.Data)
		switch command, ok := strings.CutPrefix(a.Name, "prints/"); {
		case ok:
			f.run[command] = text
		case a.Name == "tools":
			for path := range strings.FieldsSeq(text) {
				f.tools[filepath.Base(path)] = path
			}
		case a.Name == "groups":
			for line := range strings.Lines(text) {
				var path string
				var gid int
				fmt.Sscan(line, &path, &gid)
				f.groups[path] = gid
			}
		case a.Name == "topology":
			f.topology(t, text)
		default:
			f.write(t, a.Name, text)
		}
	}
	return f
}

func (f *fixture) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(f.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// topology makes processors as kernels number them: first one thread of each
// core, then the others.
func (f *fixture) topology(t *testing.T, line string) {
	t.Helper()
	var nodes, cores, threads, memory int
	if _, err := fmt.Sscanf(line, "nodes=%d cores=%d threads=%d memory_gib=%d", &nodes, &cores, &threads, &memory); err != nil {
		t.Fatalf("topology: %v", err)
	}
	all := nodes * cores
	for node := range nodes {
		var list []int
		for c := node * cores; c < (node+1)*cores; c++ {
			var siblings []int
			for thread := range threads {
				siblings = append(siblings, thread*all+c)
			}
			for _, id := range siblings {
				at := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", id)
				f.write(t, at+"topology/thread_siblings_list", cpulist.Format(siblings)+"\n")
				f.write(t, at+"topology/physical_package_id", fmt.Sprintln(node))
			}
			list = append(list, siblings...)
		}
		at := fmt.Sprintf("sys/devices/system/node/node%d/", node)
		f.write(t, at+"cpulist", cpulist.Format(list)+"\n")
		f.write(t, at+"meminfo", fmt.Sprintf("Node %d MemTotal:  %d kB\n", node, memory/nodes<<20))
	}
	f.write(t, "proc/meminfo", fmt.Sprintf("MemTotal:  %d kB\nMemFree: 1 kB\nSwapTotal:  8388604 kB\n", memory<<20))
}

func (f *fixture) machine() Machine {
	return Machine{
		Root: f.root,
		Run: func(_ context.Context, name string, args ...string) ([]byte, error) {
			command := strings.Join(append([]string{filepath.Base(name)}, args...), " ")
			longest := ""
			for key := range f.run {
				if strings.HasPrefix(command, key) && len(key) > len(longest) {
					longest = key
				}
			}
			if longest == "" {
				return nil, errors.New("exit status 1")
			}
			return []byte(f.run[longest]), nil
		},
		Look: func(name string) (string, bool) { path, ok := f.tools[name]; return path, ok },
		Group: func(path string) (int, bool, bool) {
			if _, err := os.Stat(filepath.Join(f.root, path)); err != nil {
				return 0, false, false
			}
			gid, closed := f.groups[path]
			return gid, !closed, true
		},
	}
}

// Package plan's tests read the goldens of this one.
func TestRead(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txtar")
	if len(files) != 8 {
		t.Fatalf("%d machines, want 8", len(files))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			facts, err := Read(t.Context(), open(t, file).machine())
			if err != nil {
				t.Fatal(err)
			}
			got := encode(t, facts)
			golden := strings.TrimSuffix(file, "txtar") + "json"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("Read (-want +got):\n%s", diff)
			}
		})
	}
}

// encode writes a processor in one line: there are many.
func encode(t *testing.T, f *Facts) []byte {
	t.Helper()
	var lines []string
	for _, c := range f.CPUs {
		line, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, "    "+string(line))
	}
	few := *f
	few.CPUs = nil
	doc, err := json.MarshalIndent(few, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(bytes.Replace(doc, []byte(`"cpus": null`), []byte("\"cpus\": [\n"+strings.Join(lines, ",\n")+"\n  ]"), 1), '\n')
}

func TestIndexFollowsPCIAddressAndNotMinor(t *testing.T) {
	facts, err := Read(t.Context(), open(t, "testdata/nvidia-8.txtar").machine())
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range facts.GPUs {
		if g.Index != i || g.Minor != 7-i || g.Nodes[0] != fmt.Sprintf("/dev/nvidia%d", 7-i) {
			t.Errorf("GPU at %s: index %d, minor %d, nodes %v", g.PCI, g.Index, g.Minor, g.Nodes)
		}
	}
}

// The numbers that nvidia-smi -q -x gives beat the order of instances.
func TestInstancesAreMatchedByTheirNumbers(t *testing.T) {
	f := open(t, "testdata/mig.txtar")
	f.run["nvidia-smi -q -x"] = `<nvidia_smi_log><gpu id="0"><uuid>GPU-00000000-feed-beef-cafe-000000000000</uuid><mig_devices>
<mig_device><index>0</index><gpu_instance_id>8</gpu_instance_id><compute_instance_id>0</compute_instance_id></mig_device>
<mig_device><index>1</index><gpu_instance_id>7</gpu_instance_id><compute_instance_id>0</compute_instance_id></mig_device>
</mig_devices></gpu></nvidia_smi_log>`
	facts, err := Read(t.Context(), f.machine())
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range facts.GPUs[0].Instances {
		if want := map[int]string{7: "MIG-00000000-feed-beef-cafe-000000000001", 8: "MIG-00000000-feed-beef-cafe-000000000000"}[in.GPU]; in.UUID != want {
			t.Errorf("GPU instance %d has UUID %q, want %q", in.GPU, in.UUID, want)
		}
	}
}

func TestAnEmptyRootIsNoError(t *testing.T) {
	m := Machine{
		Root: t.TempDir(),
		Run:  func(context.Context, string, ...string) ([]byte, error) { return nil, errors.New("no such program") },
		Look: func(string) (string, bool) { return "", false },
	}
	facts, err := Read(t.Context(), m)
	if err != nil || len(facts.GPUs) > 0 || facts.Docker != nil || len(facts.Unread) == 0 {
		t.Errorf("Read: %+v, %v", facts, err)
	}
}

// A machine with the agent's package was not set up by anybody yet.
func TestThePackageOfTheAgentIsNoSeed(t *testing.T) {
	f := open(t, "testdata/cpu-only.txtar")
	for _, name := range []string{"etc/buildkite-agent/buildkite-agent.cfg", "etc/buildkite-agent/hooks/environment.sample", "etc/systemd/system/buildkite-agent.service"} {
		f.write(t, name, "x")
	}
	facts, err := Read(t.Context(), f.machine())
	if err != nil || len(facts.Seeds) > 0 {
		t.Errorf("seeds: %v, %v", facts.Seeds, err)
	}
}
