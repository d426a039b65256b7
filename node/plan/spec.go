package plan

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/node/facts"
)

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
