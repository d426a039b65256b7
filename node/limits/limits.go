// Package limits says how a slot's memory, processes, cores and devices are limited,
// for a job and for the slot's slice, in which job, agent and hooks run. Plans take
// the numbers from it, units and containers are made with them, and gate, doctor and
// trial compare them with what systemd and the kernel enforce.
//
// Source: cgroup v2, files memory.max, memory.swap.max, pids.max,
// cpuset.cpus.effective; systemd.resource-control(5).
package limits

import (
	"slices"
	"strconv"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/templates"
)

// What agent, hooks and the docker CLI need beside a job.
const (
	agentBytes = 256 << 20
	agentPids  = 256
)

// Set gives a job of the slot memory and a number of processes and threads, and the
// slice what agent and hooks need besides.
func Set(s *node.Slot, memoryGiB, pids int) {
	s.MemoryBytes = int64(memoryGiB) << 30
	s.SliceBytes = s.MemoryBytes + agentBytes
	s.Pids, s.SlicePids = pids, pids+agentPids
}

// deviceNodes returns the device nodes that a job may open, each once.
func deviceNodes(s *node.Slot) []string {
	var nodes []string
	for _, d := range s.Devices {
		for _, path := range d.Nodes {
			if !slices.Contains(nodes, path) {
				nodes = append(nodes, path)
			}
		}
	}
	return nodes
}

// Unit returns the unit of the slot's slice.
func Unit(s *node.Slot) (string, error) {
	return (&templates.NodeSlice{
		Slot: s.Name, GPUType: s.GPUType, CPUs: s.CPUs, MemoryNodes: s.MemoryNodes, MemoryBytes: s.SliceBytes, Pids: s.SlicePids, Nodes: deviceNodes(s),
	}).Unit()
}

// cpuset is a list of processors.
const cpuset = "cpuset.cpus.effective"

// A Limit is one bound of a control group.
type Limit struct {
	File     string // of the control group
	Property string // of the slice's unit
	Want     string // in the file
	Optional bool   // some kernels have no such file, and nothing to limit
}

// Slice returns the limits of the slot's slice.
func Slice(s *node.Slot) []Limit {
	return append(group(s.SliceBytes, s.SlicePids, s.CPUs), Limit{"memory.swap.max", "MemorySwapMax", "0", true})
}

// Job returns the limits of the control group of a job's container.
func Job(s *node.Slot) []Limit { return group(s.MemoryBytes, s.Pids, s.CPUs) }

func group(bytes int64, pids int, cpus string) []Limit {
	return []Limit{
		{File: "memory.max", Property: "MemoryMax", Want: strconv.FormatInt(bytes, 10)},
		{File: "pids.max", Property: "TasksMax", Want: strconv.Itoa(pids)},
		{File: cpuset, Property: "AllowedCPUs", Want: cpus},
	}
}
