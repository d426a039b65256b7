package setup

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/node/facts"
	"github.com/gpu-mode/kbgen/node/plan"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/queuefile"
)

// Draft returns a queue file of a machine, for its vendor to correct: its GPUs by
// UUID, or by index if they have none of their own, with an agent for each. Agents share
// the CPUs, memory and disk that the host does not need. A GPU that matches no row is
// listed in a comment.
func Draft(f *facts.Facts) (string, error) {
	d := &draft{}
	for i := range f.GPUs {
		d.add(&f.GPUs[i])
	}
	agents := 0
	for _, g := range d.node.GPUs {
		agents += len(g.UUIDs) + len(g.Indexes)
	}
	if agents == 0 {
		return "", errors.New(strings.Join(append([]string{"got no GPU that kbgen's table knows; kbgen vendor init plans a machine by its numbers"}, d.unknown...), "\n"))
	}
	d.node.Name, _, _ = strings.Cut(f.Hostname, ".")
	d.node.Isolation = string(pipelines.Node)
	d.node.Machine = machineOf(f, agents)
	share := shareOf(f, d.node.Machine, agents)
	for i := range d.node.GPUs {
		d.node.GPUs[i].Agent = share
	}
	text := queuefile.Write("example", d.node, d.rows.Requirements())
	for _, line := range d.unknown {
		text += "# " + line + "\n"
	}
	return text, nil
}

// A draft is a node with its rows, group by group, while it is made.
type draft struct {
	node    queuefile.Node
	rows    pipelines.Table
	unknown []string
}

func (d *draft) add(g *facts.GPU) {
	switch {
	case g.MIG:
		for _, in := range g.Instances {
			d.device(g, g.Name+" MIG "+in.Profile, in.UUID)
		}
		if len(g.Instances) == 0 {
			d.omit(g, g.Name, "it is in MIG mode and has no instances")
		}
	default:
		d.device(g, g.Name, g.UUID)
	}
}

// omit makes a comment of a device.
func (d *draft) omit(g *facts.GPU, name, why string) {
	d.unknown = append(d.unknown, fmt.Sprintf("left out: %s GPU %d, %q: %s", g.Vendor, g.Index, name, why))
}

// device adds a GPU, or a part of one, to the group of the first row for one device
// whose names match: facts have no architecture and no memory.
func (d *draft) device(g *facts.GPU, name, uuid string) {
	index := slices.IndexFunc(pipelines.Fleet, func(t pipelines.GPUType) bool {
		names := schema.DeviceType{Names: t.Device.Names}
		return string(t.Vendor) == g.Vendor && t.GPUs == 1 && t.Isolation == pipelines.Node &&
			(t.Platform == plan.Docker || t.Platform == plan.Host) && names.Mismatch(schema.Device{Name: name}) == ""
	})
	switch {
	case index < 0:
		d.omit(g, name, "no row of kbgen gpus has this name")
		return
	case g.Vendor == facts.NVIDIA && uuid == "":
		d.omit(g, name, "its driver reports no UUID; run nvidia-smi -L to initialize it")
		return
	}
	row := pipelines.Fleet[index]
	group := slices.IndexFunc(d.node.GPUs, func(g queuefile.Group) bool { return g.Type == row.Name })
	if group < 0 {
		group = len(d.node.GPUs)
		d.node.GPUs = append(d.node.GPUs, queuefile.Group{Type: row.Name, Queue: row.Queue})
		d.rows = append(d.rows, row)
	}
	if g.Vendor == facts.NVIDIA {
		d.node.GPUs[group].UUIDs = append(d.node.GPUs[group].UUIDs, uuid)
	} else { // AMD's partitions share their card's UUID, TPUs have none
		d.node.GPUs[group].Indexes = append(d.node.GPUs[group].Indexes, g.Index)
	}
}

// machineOf is the whole machine; its network is not known.
func machineOf(f *facts.Facts, agents int) queuefile.Machine {
	m := queuefile.Machine{MemoryGiB: int(f.MemoryBytes >> 30), NetworkMbps: queuefile.NetworkMbps(agents)}
	for _, c := range f.CPUs {
		if c.Online {
			m.CPUs++
		}
	}
	for i, disk := range f.Disks { // of jobs and of images
		if free := int(disk.FreeBytes / 1e9); i == 0 || free < m.DiskGB {
			m.DiskGB = free
		}
	}
	return m
}

// shareOf is what each agent gets: whole cores, and memory beside its own.
func shareOf(f *facts.Facts, m queuefile.Machine, agents int) queuefile.Share {
	cores := map[int]bool{}
	for _, c := range f.CPUs {
		if c.Online {
			cores[c.Core] = true
		}
	}
	threads := max(1, m.CPUs/max(1, len(cores)))
	cpus := (m.CPUs - queuefile.HostCPUs) / agents
	return queuefile.Share{
		CPUs:      max(1, cpus-cpus%threads),
		MemoryGiB: max(1, (m.MemoryGiB-queuefile.HostMemoryGiB(m.MemoryGiB))/agents-1),
		DiskGB:    max(1, (m.DiskGB-queuefile.HostDiskGB)/agents),
	}
}
