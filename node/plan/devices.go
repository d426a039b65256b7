package plan

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/facts"
)

// devices finds what the queue file names, and refuses a device in two slots.
func (m *maker) devices() {
	taken := map[string]string{}
	for _, s := range m.slots {
		if s.row.GPUs == 0 {
			continue
		}
		numa := []int{}
		for _, name := range s.agent.Devices {
			d, gpu, err := m.device(s, name)
			if err != nil {
				m.wrong("%s: %v", s.Name, err)
				continue
			}
			key := d.Vendor + " " + d.Nodes[0] + d.UUID + d.PCI
			if other, ok := taken[key]; ok {
				m.wrong("%s: device %s is %s's already", s.Name, name, other)
				continue
			}
			taken[key] = s.Name
			s.Devices = append(s.Devices, d)
			for _, g := range gpu.Groups {
				if !slices.Contains(s.Groups, g) {
					s.Groups = append(s.Groups, g)
				}
			}
			numa = append(numa, gpu.Node)
		}
		if len(numa) > 0 && slices.Min(numa) == slices.Max(numa) {
			s.numa = numa[0]
		}
		if s.numa >= 0 && !slices.ContainsFunc(m.Facts.CPUs, func(c facts.CPU) bool { return c.Node == s.numa }) {
			s.numa = -1 // a node without processors
		}
	}
}

// device finds one by index, UUID or PCI address.
func (m *maker) device(s *slot, name string) (node.Device, *facts.GPU, error) {
	for i := range m.Facts.GPUs {
		g := &m.Facts.GPUs[i]
		if g.Vendor != s.row.Vendor {
			continue
		}
		for k := range g.Instances {
			if in := &g.Instances[k]; strings.EqualFold(in.UUID, name) {
				return node.Device{Vendor: g.Vendor, UUID: in.UUID, PCI: g.PCI, Nodes: slices.Concat(g.Nodes, in.Nodes, m.commonNodes())}, g, nil
			}
		}
		if name != strconv.Itoa(g.Index) && !strings.EqualFold(g.PCI, name) && !strings.EqualFold(g.UUID, name) {
			continue
		}
		d, err := m.wholeGPU(s, g, name)
		return d, g, err
	}
	return node.Device{}, nil, fmt.Errorf("got device %q, want one of %s's on this machine: %s", name, s.row.Vendor, m.list(s.row.Vendor))
}

// unneeded are device nodes that no computation opens: that of displays, and one by
// which a tool watches the memory of other processes.
var unneeded = []string{"/dev/nvidia-modeset", "/dev/nvidia-uvm-tools"}

// commonNodes are those of the machine and those that every program opens. The
// driver makes some of them with the first use.
func (m *maker) commonNodes() []string {
	all := []string{"/dev/nvidiactl", "/dev/nvidia-uvm"}
	for _, n := range m.Facts.Common {
		if !slices.Contains(all, n) && !slices.Contains(unneeded, n) {
			all = append(all, n)
		}
	}
	return all
}

func (m *maker) wholeGPU(s *slot, g *facts.GPU, name string) (node.Device, error) {
	d := node.Device{Vendor: g.Vendor, UUID: g.UUID, PCI: g.PCI, Nodes: g.Nodes}
	switch g.Vendor {
	case facts.NVIDIA:
		switch {
		case g.MIG:
			return d, fmt.Errorf("GPU %s is in MIG mode, where no job can use it whole: name its instances by UUID: %s", name, m.list(g.Vendor))
		case g.UUID == "":
			return d, fmt.Errorf("GPU %s: its driver reports no UUID; run nvidia-smi -L to initialize it", name)
		case s.row.Slice != "":
			return d, fmt.Errorf("got GPU %s, want a MIG instance, %s, as %s is a part of a GPU", name, s.row.Slice, s.row.Name)
		}
		d.Nodes = slices.Concat(g.Nodes, m.commonNodes())
	case facts.AMD:
		if strings.EqualFold(name, g.UUID) && m.partitions(g.UUID) > 1 {
			return d, fmt.Errorf("got UUID %s, want an index or a PCI address: %d partitions of the card have that UUID", name, m.partitions(g.UUID))
		}
	}
	return d, nil
}

// partitions counts the devices of one UUID.
func (m *maker) partitions(uuid string) int {
	n := 0
	for i := range m.Facts.GPUs {
		if m.Facts.GPUs[i].UUID == uuid {
			n++
		}
	}
	return n
}

// list names the devices of one vendor, as a queue file may.
func (m *maker) list(vendor string) string {
	var names []string
	for i := range m.Facts.GPUs {
		g := &m.Facts.GPUs[i]
		switch {
		case g.Vendor != vendor:
		case g.MIG:
			for _, in := range g.Instances {
				if in.UUID != "" {
					names = append(names, in.UUID)
				}
			}
		case vendor == facts.NVIDIA && g.UUID != "":
			names = append(names, fmt.Sprintf("%d (%s)", g.Index, g.UUID))
		case g.PCI != "":
			names = append(names, fmt.Sprintf("%d (%s)", g.Index, g.PCI))
		default:
			names = append(names, strconv.Itoa(g.Index))
		}
	}
	if len(names) == 0 {
		return "it has none"
	}
	return strings.Join(names, ", ")
}

// A cdiSpec is a file of the Container Device Interface, as far as it is needed.
//
// Source: github.com/cncf-tags/container-device-interface, SPEC.md, version 0.5.0.
type cdiSpec struct {
	Version string      `yaml:"cdiVersion"`
	Kind    string      `yaml:"kind"`
	Devices []cdiDevice `yaml:"devices"`
	Edits   cdiEdits    `yaml:"containerEdits"`
}

type cdiDevice struct {
	Name  string   `yaml:"name"`
	Edits cdiEdits `yaml:"containerEdits"`
}

type cdiEdits struct {
	Env    []string   `yaml:"env,omitempty"`
	Nodes  []cdiNode  `yaml:"deviceNodes,omitempty"`
	Mounts []cdiMount `yaml:"mounts,omitempty"`
}

type cdiNode struct {
	Path string `yaml:"path"`
}

type cdiMount struct {
	Host      string   `yaml:"hostPath"`
	Container string   `yaml:"containerPath"`
	Options   []string `yaml:"options,flow"`
}

// spec is kbnode's own: the slots' devices by UUID, and the driver's libraries
// where loaders of the usual images look for them.
func (m *maker) spec() []byte {
	s := cdiSpec{Version: "0.5.0", Kind: cdiKind, Edits: cdiEdits{Env: []string{"NVIDIA_VISIBLE_DEVICES=void"}}}
	common := m.commonNodes()
	for _, sl := range m.slots {
		for _, d := range sl.Devices {
			if d.Vendor != facts.NVIDIA {
				continue
			}
			device := cdiDevice{Name: d.UUID}
			for _, n := range d.Nodes {
				if !slices.Contains(common, n) {
					device.Edits.Nodes = append(device.Edits.Nodes, cdiNode{n})
				}
			}
			s.Devices = append(s.Devices, device)
		}
	}
	for _, n := range common {
		s.Edits.Nodes = append(s.Edits.Nodes, cdiNode{n})
	}
	for _, lib := range m.Facts.Libraries {
		for _, at := range m.inContainer(lib) {
			s.Edits.Mounts = append(s.Edits.Mounts, cdiMount{lib, at, []string{"ro", "nosuid", "nodev", "bind"}})
		}
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	_ = enc.Encode(s) // into memory, of a type that has a form
	return out.Bytes()
}

// inContainer is where an image's loader finds a library: Debian's and Red Hat's
// look in different directories.
func (m *maker) inContainer(lib string) []string {
	if !strings.Contains(path.Base(lib), ".so") {
		return []string{"/usr/bin/" + path.Base(lib)}
	}
	return []string{"/usr/lib/" + m.Facts.Arch + "-linux-gnu/" + path.Base(lib), "/usr/lib64/" + path.Base(lib)}
}
