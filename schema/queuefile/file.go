// Package queuefile is the format of queue files, in which a vendor says what it
// lends: one YAML file per machine or site, written by hand, checked by
// kbgen vendor check, compared with Buildkite by kblaunch queues --check.
//
// It reads no files and knows no GPU types: whoever checks a file brings the
// table along. Nothing in a queue file is secret, and nothing secret belongs
// into it.
package queuefile

import (
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
)

// A File is one queue file. Numbers are whole; 0 stands for a value that is
// missing or could not be read, which is a [schema.Finding] of its own.
type File struct {
	Version  int       `yaml:"version"`
	Vendor   string    `yaml:"vendor"` // who lends, "nebius"; not always who made the GPUs
	Contacts []Contact `yaml:"contacts"`
	Nodes    []Node    `yaml:"nodes"`
	Images   []Image   `yaml:"images"`
	// AllowTags lets a machine pull images that are not in Images by their tags.
	AllowTags bool `yaml:"allow_tags"`

	name string // as the caller of Decode gave it
	root *yaml.Node
	bad  map[string]bool // paths of values that Decode found unusable: nothing more is said about them
	// small are the faults that say no more than that there is too little of something.
	small map[*schema.Finding]bool
}

// An Image is the image that a machine runs where steps name a reference.
type Image struct {
	Reference string `yaml:"reference"` // as the row has it, "ghcr.io/gpu-mode/kbgen-runner:0.1.0-cuda"
	Digest    string `yaml:"digest"`    // "sha256:..."
}

// A Contact is a person or a team to ask about the machines.
type Contact struct {
	Name  string `yaml:"name"`
	Email string `yaml:"email"`
	Chat  string `yaml:"chat"`
}

// A Node is one machine.
type Node struct {
	Name      string  `yaml:"name"`
	Isolation string  `yaml:"isolation"` // "node" or "step"
	Machine   Machine `yaml:"machine"`
	GPUs      []Group `yaml:"gpus"`
}

// A Machine is the whole of a node, the host's own share included.
type Machine struct {
	CPUs        int `yaml:"cpus"`       // cores
	MemoryGiB   int `yaml:"memory_gib"` // units of 2^30 bytes
	DiskGB      int `yaml:"disk_gb"`    // units of 10^9 bytes
	NetworkMbps int `yaml:"network_mbps"`
}

// A Group is GPUs of one type on one node that are treated alike. One of
// Count, Indexes and UUIDs says which; Count means the indexes from 0.
type Group struct {
	Type    string   `yaml:"type"` // GPU type, "H100_BK"
	Count   int      `yaml:"count"`
	Indexes []int    `yaml:"indexes"`
	UUIDs   []string `yaml:"uuids"` // of GPUs or MIG instances
	Queue   string   `yaml:"queue"` // "h100", or a pattern such as "{vendor}-{gpu_type}-{index}"
	Agent   Share    `yaml:"agent"`
}

// A Share is what one agent has, and so what one job gets.
type Share struct {
	GPUs      int `yaml:"gpus"` // 0: left out, which means 1
	CPUs      int `yaml:"cpus"`
	MemoryGiB int `yaml:"memory_gib"`
	DiskGB    int `yaml:"disk_gb"`
}

// An Agent is one agent that a file promises to keep connected.
type Agent struct {
	Node    string
	GPUType string
	Queue   string
	Devices []string // indexes, or UUIDs where the file gives them
	Tags    []string // "key=value", what the agent registers with; the queue first

	Share        Share  // of the machine, its group's
	Path         string // of its group, "nodes[0].gpus[1]"
	Line, Column int
}

// Name is the file's name as Decode was given it.
func (f *File) Name() string { return f.name }

// Digests returns the digests of images, by reference; nil: there are none.
func (f *File) Digests() map[string]string {
	var digests map[string]string
	for _, i := range f.Images {
		if digests == nil {
			digests = map[string]string{}
		}
		digests[i.Reference] = i.Digest
	}
	return digests
}

// Agents lists every agent that the file promises, in its order. The file
// must be free of errors.
//
// Tags are queue, gpu (the GPU type), vendor, node, and gpu-uuid or gpu-index,
// which are those of the agent's first GPU.
func (f *File) Agents() []Agent {
	var all []Agent
	for i := range f.Nodes {
		for j := range f.Nodes[i].GPUs {
			all = append(all, f.agents(i, j)...)
		}
	}
	return all
}

// agents lists those of one group.
func (f *File) agents(node, group int) []Agent {
	n, g := &f.Nodes[node], &f.Nodes[node].GPUs[group]
	p := path{"nodes", node, "gpus", group}
	at := f.at(p)
	devices, tag := g.devices()
	per := max(1, g.Agent.GPUs)
	var all []Agent
	for i := 0; i+per <= len(devices); i += per {
		index := devices[i]
		if len(g.UUIDs) > 0 {
			index = strconv.Itoa(i / per)
		}
		queue := f.queue(n, g, index)
		all = append(all, Agent{
			Node: n.Name, GPUType: g.Type, Queue: queue, Devices: devices[i : i+per],
			Tags:  []string{"queue=" + queue, "gpu=" + g.Type, "vendor=" + f.Vendor, "node=" + n.Name, tag + "=" + devices[i]},
			Share: g.Agent, Path: p.String(), Line: at.Line, Column: at.Column,
		})
	}
	return all
}

// devices names the group's GPUs, and the tag that carries such a name.
func (g *Group) devices() (names []string, tag string) {
	if len(g.UUIDs) > 0 {
		return g.UUIDs, "gpu-uuid"
	}
	indexes := g.Indexes
	for i := 0; i < g.Count && len(g.Indexes) == 0; i++ {
		indexes = append(indexes, i)
	}
	for _, i := range indexes {
		names = append(names, strconv.Itoa(i))
	}
	return names, "gpu-index"
}

// perAgent reports whether each agent of the group has a queue of its own.
func (g *Group) perAgent() bool { return strings.Contains(g.Queue, "{index}") }

// queue fills in the group's pattern.
func (f *File) queue(n *Node, g *Group, index string) string {
	return strings.NewReplacer("{vendor}", f.Vendor, "{gpu_type}", schema.QueueGPUType(g.Type), "{node}", n.Name, "{index}", index).Replace(g.Queue)
}
